// What a consumer group of the backward kernel does to one tile: products, weights and gradients.
#pragma once

#include "optimized/attention/hopper/backward/shared/blocks.cuh"
#include "optimized/attention/hopper/machine/fresh_product.h"

namespace ringside::hopper::backward_detail {

// Where a thread's values of [64][8 n] lie: rows row and row + 8, columns 8 n + column and the
// next. Its number is unsigned: quotients of numbers whose sign is not known take steps more.
struct Place {
  int row, column;

  __device__ explicit Place(uint32_t thread)
      : row(thread / 32 * 16 + thread % 32 / 4), column(thread % 4 * 2) {}
};

// Bytes from a tile's beginning to where a thread begins with its d(scores), and with its dq. What
// comes next is there with bits changed that say which 16 bytes of a row these are.
__device__ __forceinline__ uint32_t place_of_scores(uint32_t thread) {
  const uint32_t lane = thread % 32, warp = thread / 32;
  return (warp * 16 + lane % 16) * 128 + (lane / 16 ^ lane % 8) * 16;
}
template <Dq kDq>
__device__ __forceinline__ uint32_t place_of_dq(uint32_t thread) {
  const Place place(thread);
  const uint32_t row = place.row, column = place.column, turn = row % 8 * 16;
  // A lane's two places are neighbours, even and odd: all are in different banks.
  if constexpr (kDq == Dq::add_fragments) return row * 128 + (column * 16 ^ turn);
  // In float32, odd rows are two groups of columns ahead of even ones: all are in different banks.
  if constexpr (kDq == Dq::add) return row * 128 + (column * 4 ^ turn ^ row % 2 * 64);
  return row * 128 + (column * 2 ^ turn);
}

// d [64][2 R] = a . b^T, both of so many columns in panels so many bytes apart.
template <typename T, int kColumns, int R>
__device__ __forceinline__ void multiply_rows(float (&d)[R], uint64_t a, int a_panel, uint64_t b,
                                              int b_panel) {
  multiply_slices<T, Deep::along_rows, Deep::along_rows, kColumns / 16>(d, a, a_panel, b, b_panel);
}

// The same, in the registers of d where they are, or added to what they hold.
template <typename T, int kColumns, bool kAdd = true>
__device__ __forceinline__ void add_rows(float (&d)[32], uint64_t a, int a_panel, uint64_t b,
                                         int b_panel) {
#pragma unroll
  for (int k = 0; k < kColumns / 16; ++k)
    Product<T, 64>::template multiply<Deep::along_rows, Deep::along_rows>(
        d, moved(a, slice_offset<Deep::along_rows>(k, a_panel)),
        moved(b, slice_offset<Deep::along_rows>(k, b_panel)), kAdd || k > 0);
}

// d [64 keys][2 R] += a . b, or = where there is nothing yet: a from registers, b a tile of
// queries, or so many slices of it.
template <typename T, bool kAdd = true, int R, int kSlices>
__device__ __forceinline__ void multiply_queries(float (&d)[R], const uint32_t (&a)[kSlices][4],
                                                 uint64_t b) {
#pragma unroll
  for (int k = 0; k < kSlices; ++k)
    Product<T, 2 * R>::template multiply<Deep::down_rows>(
        d, a[k], moved(b, slice_offset<Deep::down_rows>(k, 0)), kAdd || k > 0);
}

// dq [64 queries][2 R columns] = ds^T . k, over an item's keys.
template <typename T, int kKeys, int R>
__device__ __forceinline__ void multiply_keys(float (&dq)[R], uint64_t ds, uint64_t k_panel) {
  multiply_slices<T, Deep::down_rows, Deep::down_rows, kKeys / 16>(dq, ds, 0, k_panel, 0);
}

// A number of each of a thread's queries, or of those from this one on.
template <int N>
__device__ __forceinline__ void load_of_queries(float2 (&to)[N], const float (&from)[kQueries],
                                                uint32_t thread, int first = 0) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    to[n] = *reinterpret_cast<const float2*>(&from[first + 8 * n + Place(thread).column]);
}
// Of such numbers, that of each of its pairs.
__device__ __forceinline__ void spread(float (&to)[32], const float2 (&from)[8]) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
    to[4 * n] = to[4 * n + 2] = from[n].x, to[4 * n + 1] = to[4 * n + 3] = from[n].y;
}

// visit(which) of a thread's pairs that are not seen. column: the first one's query.
template <int N, typename Visit>
__device__ __forceinline__ void for_each_unseen(const SeenKeysOfRows& rows, int key, int column,
                                                Visit visit) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const uchar4 of_two = *reinterpret_cast<const uchar4*>(&rows.of[8 * n + column]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uchar2 seen = i == 0 ? uchar2{of_two.x, of_two.y} : uchar2{of_two.z, of_two.w};
#pragma unroll
      for (int half = 0; half < 2; ++half)
        if (unsigned(key + 8 * half - seen.x) >= unsigned(seen.y)) visit(4 * n + 2 * half + i);
    }
  }
}

// scores become weights, exp(score - lse), also those of pairs that are not seen.
template <int N>
__device__ __forceinline__ void weigh(float (&scores)[4 * N], const float2 (&shifts)[N],
                                      float scale_log2) {
#pragma unroll
  for (int i = 0; i < 4 * N; ++i) {
    const float2& shift = shifts[i / 4];
    scores[i] = exp2_fast(fmaf(scores[i], scale_log2, i % 2 == 0 ? -shift.x : -shift.y));
  }
}
// The same; unless all see all, those of such pairs become -0, which no other is.
template <bool kClear, int N>
__device__ __forceinline__ void weigh(float (&scores)[4 * N], const float2 (&shifts)[N],
                                      const SeenKeysOfRows& rows, int key, int column,
                                      float scale_log2) {
  weigh(scores, shifts, scale_log2);
  if constexpr (!kClear) for_each_unseen<N>(rows, key, column, [&](int i) { scores[i] = -0.0f; });
}

// Weights and gradients of such pairs become 0, whatever they, delta and dout are.
template <int N>
__device__ __forceinline__ void hide(float (&weights)[4 * N], float (&grads)[4 * N],
                                     const SeenKeysOfRows& rows, int key, int column) {
  for_each_unseen<N>(rows, key, column, [&](int i) { weights[i] = grads[i] = 0; });
}

// grads, d(weights) less delta, become d(scores) up to the softmax scale.
template <int R>
__device__ __forceinline__ void differentiate(float (&grads)[R], const float (&weights)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) grads[i] *= weights[i];
}

// The same of d(weights), from which delta is yet to be taken; minus_deltas: of the queries.
template <int N>
__device__ __forceinline__ void differentiate(float (&grads)[4 * N], const float (&weights)[4 * N],
                                              const float2 (&minus_deltas)[N]) {
#pragma unroll
  for (int i = 0; i < 4 * N; ++i)
    grads[i] += i % 2 == 0 ? minus_deltas[i / 4].x : minus_deltas[i / 4].y;
  differentiate(grads, weights);
}

// Those of pairs that are not seen become 0, whatever delta and dout are: nobody has said that
// these are numbers.
template <int R>
__device__ __forceinline__ void hide_gradients(float (&grads)[R], const float (&weights)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i)
    if (__float_as_int(weights[i]) < 0) grads[i] = 0;
}

template <typename T, int K>
__device__ __forceinline__ void as_left_operand(uint32_t (&a)[K][4], const float (&from)[8 * K]) {
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = pack<T>(from[8 * k + 2 * i], from[8 * k + 2 * i + 1]);
}

// As pin() of wgmma.h: behind it, operands are what they are.
template <int K>
__device__ __forceinline__ void pin(uint32_t (&a)[K][4]) {
#pragma unroll
  for (int i = 0; i < 4 * K; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

// A group's d(scores), to its rows of [keys][queries], from the thread's first place on, which
// lies that of a slice before so many bits apart.
template <int K>
__device__ __forceinline__ void store_scores(uint32_t first, const uint32_t (&values)[K][4],
                                             int first_slice = 0) {
#pragma unroll
  for (int k = 0; k < K; ++k)
    store_matrices<false>(first ^ (first_slice + k) * 32, values[k][0], values[k][1], values[k][2],
                          values[k][3]);
}
}  // namespace ringside::hopper::backward_detail
