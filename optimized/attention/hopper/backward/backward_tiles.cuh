// What a consumer group of the backward kernel does to one tile: products, weights, gradients, and
// what goes to shared and to global memory.
#pragma once

#include "optimized/attention/hopper/backward/backward_blocks.cuh"
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
// The same for each of its pairs.
__device__ __forceinline__ void load_of_pairs(float (&to)[32], const float (&from)[kQueries],
                                              uint32_t thread) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float2 two = *reinterpret_cast<const float2*>(&from[8 * n + Place(thread).column]);
    to[4 * n] = to[4 * n + 2] = two.x, to[4 * n + 1] = to[4 * n + 3] = two.y;
  }
}

// visit(16 bytes) for a thread's part of what `threads` threads share: so many bytes of a tile, of
// which registers hold four at a time.
template <int kBytes, int kSharers, typename Visit>
__device__ __forceinline__ void for_each_chunk(uint8_t* tile, uint32_t thread, Visit visit) {
#pragma unroll 4
  for (int i = 0; i < kBytes / 16 / kSharers; ++i)
    visit(reinterpret_cast<uint4*>(tile)[i * kSharers + thread]);
}

// scores become weights, exp(score - lse); those of pairs that are not seen, -0, which no other is.
// column: the first one's query.
template <bool kClear, int N>
__device__ __forceinline__ void weigh(float (&scores)[4 * N], const float2 (&shifts)[N],
                                      const SeenKeysOfRows& rows, int key, int column,
                                      float scale_log2) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float2 shift = shifts[n];
    uchar4 of_two = {};
    if constexpr (!kClear) of_two = *reinterpret_cast<const uchar4*>(&rows.of[8 * n + column]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uchar2 seen = i == 0 ? uchar2{of_two.x, of_two.y} : uchar2{of_two.z, of_two.w};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& score = scores[4 * n + 2 * half + i];
        score = fmaf(score, scale_log2, i == 0 ? -shift.x : -shift.y);
        score = exp2_fast(score);
        if constexpr (!kClear)
          if (unsigned(key + 8 * half - seen.x) >= unsigned(seen.y)) score = -0.0f;
      }
    }
  }
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

// A group's dq, to where its sender finds it, from the thread's first place on: float32, or final
// ones in T, from this column of the tile on.
template <typename T, Dq kDq, int R>
__device__ __forceinline__ void store_dq(uint32_t first, int first_column, const float (&dq)[R],
                                         float scale, uint32_t thread) {
  const bool odd = thread / 4 % 2 == 1;  // the row
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if constexpr (kDq == Dq::add) {
#pragma unroll
      for (int n = 0; n < R / 4; ++n) {
        const int other = n ^ 2;
        const float x = odd ? dq[4 * other + 2 * half] : dq[4 * n + 2 * half];
        const float y = odd ? dq[4 * other + 2 * half + 1] : dq[4 * n + 2 * half + 1];
        const uint32_t to = (first ^ n % 4 * 32) + n / 4 * kQueryPanel + half * 1024;
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(scale * x), "f"(scale * y)
                     : "memory");
      }
    } else {
#pragma unroll
      for (int n = 0; n < R / 4; ++n) {
        const uint32_t to = (first ^ (first_column + 8 * n) * 2) + half * 1024;
        const uint32_t two =
            pack<T>(scale * dq[4 * n + 2 * half], scale * dq[4 * n + 2 * half + 1]);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(two) : "memory");
      }
    }
  }
}

// Adds what an item's blocks of keys have left of dq before, in float32, to dq, not yet scaled.
template <int R>
__device__ __forceinline__ void add_carried(uint32_t first, float (&dq)[R], float scale,
                                            uint32_t thread) {
  const bool odd = thread / 4 % 2 == 1;  // the row
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int n = 0; n < R / 4; ++n) {
      const int own = n, other = n ^ 2;
      const uint32_t from_even = (first ^ own % 4 * 32) + own / 4 * kQueryPanel + half * 1024;
      const uint32_t from_odd = (first ^ other % 4 * 32) + other / 4 * kQueryPanel + half * 1024;
      float x, y;
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(x), "=f"(y)
                   : "r"(odd ? from_odd : from_even)
                   : "memory");
      dq[4 * n + 2 * half] = fmaf(scale, dq[4 * n + 2 * half], x);
      dq[4 * n + 2 * half + 1] = fmaf(scale, dq[4 * n + 2 * half + 1], y);
    }
}

// A group's final dk or dv, or so many panels of it, to where its sender finds it: [keys][64
// columns] each, so many bytes apart.
template <typename T, int kPanels, int kBytes, int R>
__device__ __forceinline__ void stage_keys(uint32_t tile, const float (&sum)[R], int first_panel,
                                           float scale, uint32_t thread) {
  const uint32_t first = tile + place_of_scores(thread);
#pragma unroll
  for (int k = 0; k < 4 * kPanels; ++k) {
    uint32_t of[4];
    const float* from = &sum[8 * k + 32 * first_panel];
#pragma unroll
    for (int i = 0; i < 4; ++i) of[i] = pack<T>(scale * from[2 * i], scale * from[2 * i + 1]);
    store_matrices<false>((first ^ k % 4 * 32) + k / 4 * kBytes, of[0], of[1], of[2], of[3]);
  }
}

// Where a lane puts a row of dk or dv, four columns at a time: neighbouring lanes swap halves of
// two groups of columns, so that an even one has four of the first and an odd one of the second.
struct KeyPlace {
  int64_t first[2];  // element of a lane's first and second row
  bool is_key[2], odd;
  int columns;  // of a row, from the lane's first on

  __device__ __forceinline__ KeyPlace(const DeviceMatrix& to, const BlockNote& note, int first_key,
                                      int dim, uint32_t thread)
      : odd(thread % 2 == 1) {
    const int column = (odd ? 8 : 0) + thread % 4 / 2 * 4;
    columns = dim - column;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = first_key + Place(thread).row + 8 * half;
      first[half] = (int64_t{note.key_row} + key) * to.row_stride +
                    int64_t{note.kv_head} * to.head_stride + column;
      is_key[half] = key < note.keys;
    }
  }
  __device__ __forceinline__ bool has(int half, int n) const {  // columns of groups n and n + 1
    return is_key[half] && 8 * n < columns;
  }
};

template <typename X>
__device__ __forceinline__ X from_neighbour(bool odd, X left, X right) {
  return __shfl_xor_sync(~0u, odd ? left : right, 1);
}

// What an item leaves of dk or dv, of which there is no more.
template <typename T, int R>
__device__ __forceinline__ void put_final_keys(const DeviceMatrix& to, const KeyPlace& place,
                                               float scale, const float (&sum)[R]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    T* row = static_cast<T*>(to.data) + place.first[half];
#pragma unroll
    for (int n = 0; n < R / 4; n += 2) {
      const float* two = &sum[4 * n + 2 * half];
      const uint32_t left = pack<T>(scale * two[0], scale * two[1]);
      const uint32_t right = pack<T>(scale * two[4], scale * two[5]);
      const uint32_t other = from_neighbour(place.odd, left, right);
      if (place.has(half, n))
        *reinterpret_cast<uint2*>(row + 8 * n) =
            place.odd ? uint2{other, right} : uint2{left, other};
    }
  }
}

// Likewise what is added to, in float32, or where others will be.
template <int R>
__device__ __forceinline__ void put_key_sums(const DeviceMatrix& to, const KeyPlace& place,
                                             bool is_first, float scale, const float (&sum)[R]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float* row = static_cast<float*>(to.data) + place.first[half];
#pragma unroll
    for (int n = 0; n < R / 4; n += 2) {
      const float *left = &sum[4 * n + 2 * half], *right = &sum[4 * (n + 1) + 2 * half];
      const float x = scale * from_neighbour(place.odd, left[0], right[0]);
      const float y = scale * from_neighbour(place.odd, left[1], right[1]);
      const float4 four = place.odd ? float4{x, y, scale * right[0], scale * right[1]}
                                    : float4{scale * left[0], scale * left[1], x, y};
      if (!place.has(half, n)) continue;
      if (is_first)
        *reinterpret_cast<float4*>(row + 8 * n) = four;
      else
        asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(row + 8 * n),
                     "f"(four.x), "f"(four.y), "f"(four.z), "f"(four.w)
                     : "memory");
    }
  }
}

template <typename T, int R>
__device__ __forceinline__ void put_keys(const Parameters& parameters, const DeviceMatrix& to,
                                         const BlockNote& note, int first_key, int dim, float scale,
                                         const float (&sum)[R], uint32_t thread) {
  const KeyPlace place(to, note, first_key, dim, thread);
  if (note.flags & kFinal)
    put_final_keys<T>(to, place, scale, sum);
  else
    put_key_sums(to, place, parameters.is_first, scale, sum);
}

__device__ __forceinline__ bool all_of_group(int group, bool says) {
  return all_of(kGroupBarrier + group, kGroupThreads, says);
}

// Queries that see the item in part: 0 in the place of what is not finite, once both groups have
// their scores. No product is under way here. Of so many rows of the tiles from a first one on.
// alone: the other group has nothing to do with them.
template <typename T, typename Shape, int kRows = kQueries>
__device__ __forceinline__ void drop_not_finite(uint8_t* q, uint8_t* dout, int32_t* dropped,
                                                int group, uint32_t thread, bool alone,
                                                int first_row = 0) {
  // visit(part of the tiles, its bytes, which are constant)
  const auto for_each_part = [&](auto visit) {
    if constexpr (kRows == kQueries) {
      visit(q, std::integral_constant<int, Shape::kQueryTile>{});
      visit(dout, std::integral_constant<int, Shape::kDoutTile>{});
    } else {
#pragma unroll 1
      for (int panel = 0; panel < Shape::kQkPanels + Shape::kVPanels; ++panel)
        visit((panel < Shape::kQkPanels ? q + panel * kQueryPanel
                                        : dout + (panel - Shape::kQkPanels) * kQueryPanel) +
                  first_row * 128,
              std::integral_constant<int, kRows * 128>{});
    }
  };
  FiniteCheck<T> check;
  for_each_part([&](uint8_t* part, auto bytes) {
    for_each_chunk<decltype(bytes)::value, kGroupThreads>(
        part, thread, [&](const uint4& chunk) { check.look_at(chunk); });
  });
  if (all_of_group(group, check.all_finite())) return;
  const int barrier = alone ? kGroupBarrier + group : kBothBarrier;
  const int sharers = alone ? kGroupThreads : kGroups * kGroupThreads;
  synchronize(barrier, sharers);
  for_each_part([&](uint8_t* part, auto bytes) {
    auto* const chunks = reinterpret_cast<uint4*>(part);
#pragma unroll 1
    for (int i = alone ? thread : group * kGroupThreads + thread; i < decltype(bytes)::value / 16;
         i += sharers)
      chunks[i] = finite_part<T>(chunks[i]);
  });
  show_to_async();
  synchronize(barrier, sharers);
  *dropped = 1;
}

}  // namespace ringside::hopper::backward_detail
