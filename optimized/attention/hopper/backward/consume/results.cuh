// What a consumer group of the backward kernel leaves, in shared memory and in global: dq of a
// block, dk and dv of an item.
#pragma once

#include "optimized/attention/hopper/backward/consume/tile.cuh"

namespace ringside::hopper::backward_detail {

// A group's dq in fragments, as its registers hold them, to where its sender finds them, from the
// thread's first place on.
template <int R>
__device__ __forceinline__ void store_fragments(uint32_t first, const float (&dq)[R]) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int n = 0; n < R / 4; n += 2) {
      const float* two = &dq[4 * n + 2 * half];
      const uint32_t to = (first ^ n % 4 * 8) + n / 4 * kQueryPanel + half * 1024;
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(two[0]), "f"(two[1]),
                   "f"(two[4]), "f"(two[5])
                   : "memory");
    }
}

// The same of dq in the order of columns: float32, or final ones in T, from this column of the tile
// on.
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

}  // namespace ringside::hopper::backward_detail
