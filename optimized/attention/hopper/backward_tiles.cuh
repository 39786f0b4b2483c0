// What a consumer group of the backward kernel does to one tile: products, weights, gradients, and
// what goes to shared and to global memory.
#pragma once

#include "optimized/attention/hopper/backward_blocks.cuh"
#include "optimized/attention/hopper/fresh_product.h"

namespace ringside::hopper::backward_detail {

// Where a thread's values of [64][8 n] lie: rows row and row + 8, columns 8 n + column and the
// next.
struct Place {
  int row, column;

  __device__ Place()
      : row(threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x % 32 / 4),
        column(threadIdx.x % 4 * 2) {}
};

// d [64][64] = a . b^T, both of 128 columns in panels so many bytes apart.
template <typename T>
__device__ __forceinline__ void multiply_rows(float (&d)[32], uint64_t a, int a_panel, uint64_t b,
                                              int b_panel) {
  multiply_slices<T, Deep::along_rows, Deep::along_rows, kDim / 16>(d, a, a_panel, b, b_panel);
}

// d [64 keys][128] += a . b: a from registers, b a tile of queries.
template <typename T>
__device__ __forceinline__ void multiply_queries(float (&d)[64], const uint32_t (&a)[4][4],
                                                 uint64_t b) {
#pragma unroll
  for (int k = 0; k < kQueries / 16; ++k)
    Product<T, 128>::template multiply<Deep::down_rows>(
        d, a[k], moved(b, slice_offset<Deep::down_rows>(k, 0)), true);
}

// dq [64 queries][64 columns] = ds^T . k, over the keys of both groups.
template <typename T>
__device__ __forceinline__ void multiply_keys(float (&dq)[32], uint64_t ds, uint64_t k_panel) {
  multiply_slices<T, Deep::down_rows, Deep::down_rows, kKeys / 16>(dq, ds, 0, k_panel, 0);
}

// A number of each of a thread's queries; asked for before it waits for products.
__device__ __forceinline__ void load_of_queries(float2 (&to)[8], const float (&from)[kQueries]) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
    to[n] = *reinterpret_cast<const float2*>(&from[8 * n + threadIdx.x % 4 * 2]);
}

// visit(16 bytes) for a thread's part of what `threads` threads share: so many bytes of a tile.
template <int kBytes, int kSharers, typename Visit>
__device__ __forceinline__ void for_each_chunk(uint8_t* tile, int thread, Visit visit) {
#pragma unroll
  for (int i = 0; i < kBytes / 16 / kSharers; ++i)
    visit(reinterpret_cast<uint4*>(tile)[i * kSharers + thread]);
}

// scores become weights, exp(score - lse); those of pairs that are not seen, -0, which no other is.
template <bool kClear>
__device__ __forceinline__ void weigh(float (&scores)[32], const float2 (&shifts)[8],
                                      const QueryRows& rows, int key, float scale_log2) {
  const int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float2 shift = shifts[n];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      short2 seen = {};
      if constexpr (!kClear) seen = rows.seen[8 * n + column + i];
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

// grads, d(weights), become d(scores) up to the softmax scale: weight * (grad - delta).
__device__ __forceinline__ void differentiate(float (&grads)[32], const float (&weights)[32],
                                              const float2 (&deltas)[8]) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float2 delta = deltas[n];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      grads[4 * n + i] = weights[4 * n + i] * (grads[4 * n + i] - (i % 2 == 0 ? delta.x : delta.y));
  }
}

// Those of pairs that are not seen become 0, whatever delta and dout are: nobody has said that
// these are numbers.
__device__ __forceinline__ void hide_gradients(float (&grads)[32], const float (&weights)[32]) {
#pragma unroll
  for (int i = 0; i < 32; ++i)
    if (__float_as_int(weights[i]) < 0) grads[i] = 0;
}

template <typename T>
__device__ __forceinline__ void as_left_operand(uint32_t (&a)[4][4], const float (&from)[32]) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = pack<T>(from[8 * k + 2 * i], from[8 * k + 2 * i + 1]);
}

// As pin() of wgmma.h: behind it, operands are what they are.
__device__ __forceinline__ void pin(uint32_t (&a)[4][4]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

// A group's d(scores), to its rows of [keys][queries].
__device__ __forceinline__ void store_scores(uint32_t tile, const uint32_t (&values)[4][4]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroupThreads / 32;
  const uint32_t row = tile + (warp * 16 + lane % 16) * 128;
#pragma unroll
  for (int k = 0; k < 4; ++k)
    store_matrices<false>(row + ((2 * k + lane / 16) ^ (lane % 8)) * 16, values[k][0], values[k][1],
                          values[k][2], values[k][3]);
}

// A group's dq, to where its sender finds it: float32, or final ones in T.
template <typename T, Dq kDq>
__device__ __forceinline__ void store_dq(uint32_t tile, const float (&dq)[32], float scale) {
  const Place place;
  const bool odd = place.row % 2 == 1;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t row = tile + (place.row + 8 * half) * 128;
    const int turn = place.row % 8 * 16;
    if constexpr (kDq == Dq::add) {
      // Odd rows are two groups of columns ahead of even ones: all are in different banks.
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const int other = n ^ 2;
        const float x = odd ? dq[4 * other + 2 * half] : dq[4 * n + 2 * half];
        const float y = odd ? dq[4 * other + 2 * half + 1] : dq[4 * n + 2 * half + 1];
        const int column = (n % 4 * 8 ^ (odd ? 16 : 0)) + place.column;
        const uint32_t to = row + n / 4 * kQueryPanel + (column * 4 ^ turn);
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(scale * x), "f"(scale * y)
                     : "memory");
      }
    } else {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const uint32_t to = row + ((8 * n + place.column) * 2 ^ turn);
        const uint32_t two =
            pack<T>(scale * dq[4 * n + 2 * half], scale * dq[4 * n + 2 * half + 1]);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(two) : "memory");
      }
    }
  }
}

// What an item leaves of dk or dv: a thread's two rows, four columns at a time, as neighbouring
// lanes swap halves of two groups of columns.
template <typename T>
__device__ __forceinline__ void put_keys(const Parameters& parameters, const DeviceMatrix& to,
                                         const BlockNote& note, int first_key, int dim, float scale,
                                         const float (&sum)[64]) {
  const Place place;
  const bool odd = threadIdx.x % 2 == 1;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = first_key + place.row + 8 * half;
    const int64_t at = (int64_t{note.key_row} + key) * to.row_stride +
                       int64_t{note.kv_head} * to.head_stride + (odd ? 8 : 0) +
                       threadIdx.x % 4 / 2 * 4;
#pragma unroll
    for (int n = 0; n < 16; n += 2) {
      const float *left = &sum[4 * n + 2 * half], *right = &sum[4 * (n + 1) + 2 * half];
      const float x = __shfl_xor_sync(~0u, odd ? left[0] : right[0], 1);
      const float y = __shfl_xor_sync(~0u, odd ? left[1] : right[1], 1);
      const float4 four = odd ? float4{scale * x, scale * y, scale * right[0], scale * right[1]}
                              : float4{scale * left[0], scale * left[1], scale * x, scale * y};
      const int column = 8 * n + (odd ? 8 : 0) + threadIdx.x % 4 / 2 * 4;
      if (key >= note.keys || column >= dim) continue;
      if (parameters.is_final) {
        *reinterpret_cast<uint2*>(static_cast<T*>(to.data) + at + 8 * n) = {
            pack<T>(four.x, four.y), pack<T>(four.z, four.w)};
      } else {
        float* begin = static_cast<float*>(to.data) + at + 8 * n;
        if (parameters.is_first)
          *reinterpret_cast<float4*>(begin) = four;
        else
          asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(begin), "f"(four.x),
                       "f"(four.y), "f"(four.z), "f"(four.w)
                       : "memory");
      }
    }
  }
}

__device__ __forceinline__ void arrive_as_warp(Barrier& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(barrier);
}

}  // namespace ringside::hopper::backward_detail
