// How the mma.sync forward kernel begins and ends an item: rows that an earlier launch has seen go
// on from their float32 accumulators; results go back there, or out in the operands' type.
#pragma once

#include "optimized/attention/mma/online_softmax.cuh"
#include "optimized/tables/accumulator_tiles.h"

namespace ringside::mma {

// visit(n) for the groups of 8 columns of a row, dim / 8 of them: all that are compiled, as a rule,
// and then none is asked for.
template <typename C, typename Visit>
__device__ void for_each_group(int dim, Visit visit) {
  if (dim == C::kV) {
#pragma unroll
    for (int n = 0; n < C::kV / 8; ++n) visit(n);
  } else {
#pragma unroll
    for (int n = 0; n < C::kV / 8; ++n)
      if (8 * n < dim) visit(n);
  }
}

// visit(two accumulators, index of a lane's row, n) for the rows that are wanted: where `out` has a
// head's. Row after row, as each has one address, in tiles as in plain rows: addresses by turns
// share registers, and stores wait for each other.
template <typename C, typename Visit>
__device__ void for_each_accumulator(const ForwardParameters& arguments, const LaneRows<C>& rows,
                                     const bool (&wanted)[2 * C::kM], int head, Visit visit) {
  const int heads = arguments.shape.num_heads, dim = arguments.shape.head_dim_v;
  const int column = fresh_thread() % 4 * 2;
  const auto visit_rows = [&](float* begin, auto of_group) {
    constexpr int kStep = decltype(of_group)::value;  // from a group to the next
#pragma unroll
    for (int i = 0; i < rows.kRows; ++i) {
      float* row = begin + 8 * i * arguments.out.row_stride;
      if (wanted[i])
        for_each_group<C>(dim,
                          [&](int n) { visit(reinterpret_cast<float2&>(row[n * kStep]), i, n); });
    }
  };
  if (arguments.out_in_tiles)
    visit_rows(static_cast<float*>(arguments.out.data) +
                   tiled_offset(rows.first, head, column, heads, dim),
               std::integral_constant<int, kTileCells>());
  else
    visit_rows(row_of<float>(arguments.out, rows.first, head) + column,
               std::integral_constant<int, 8>());
}

// A warp's rows as earlier launches left them: normalised output, and lse; (0, -inf) saw nothing.
// The softmax goes on as if a first key had had that score and that value. In float16 its weight is
// not 1 but 2^kSlack, as large as weights become: later ones, a key among all before it, are far
// smaller, and where a row has seen 10,000 keys they would lose digits. bfloat16 loses none.
//
// Accumulators pass by the L1 cache (ld.cg, st.cg), where the loop's spilled registers lie.
template <typename C>
__device__ void resume(const ForwardParameters& arguments, const LaneRows<C>& rows, int head,
                       OnlineSoftmax<C>& softmax, typename C::Output& output) {
  const AttentionShape& shape = arguments.shape;
  const float unfolded = 1 / folded_scale(shape);
  constexpr int kPower = std::is_same_v<typename C::T, __half> ? OnlineSoftmax<C>::kSlack : 0;
  constexpr float kWeight = 1 << kPower;
  float lse[rows.kRows];
  bool there[rows.kRows];
#pragma unroll
  for (int i = 0; i < rows.kRows; ++i) {
    there[i] = rows.has(i);
    lse[i] = there[i] ? arguments.lse.of(rows.first + 8 * i, head) : -INFINITY;
  }
  clear(output);
  for_each_accumulator<C>(arguments, rows, there, head, [&](const float2& from, int i, int n) {
    reinterpret_cast<float2&>(output[i / 2][n][i % 2 * 2]) = __ldcg(&from);
  });
#pragma unroll
  for (int i = 0; i < rows.kRows; ++i) {
    softmax.top[i / 2][i % 2] = (lse[i] - kPower / kLog2E) * unfolded;
    softmax.sum[i / 2][i % 2] = lse[i] != -INFINITY && threadIdx.x % 4 == 0 ? kWeight : 0;
  }
#pragma unroll
  for (int m = 0; m < C::kM; ++m)
#pragma unroll
    for (int n = 0; n < C::kV / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) output[m][n][i] *= kWeight;
}

// Writes a warp's rows: final ones in T, others in float32. Where nothing was seen but scores of
// -inf they are zeros, or NaN where a value was not finite.
template <typename C>
__device__ void finish(const ForwardParameters& arguments, const WorkItem& item, int head,
                       const OnlineSoftmax<C>& softmax, const typename C::Output& output) {
  using T = typename C::T;
  const LaneRows<C> rows(item);
  const AttentionShape& shape = arguments.shape;
  float factor[rows.kRows];
  bool writes[rows.kRows];
#pragma unroll
  for (int i = 0; i < rows.kRows; ++i) {
    const float sum = quad_sum(softmax.sum[i / 2][i % 2]);
    const float lse = softmax.top[i / 2][i % 2] * folded_scale(shape) + logf(sum);
    factor[i] = sum != 0 ? __fdividef(1, sum) : 0;
    writes[i] = rows.has(i);
    if (writes[i] && threadIdx.x % 4 == 0) arguments.lse.of(rows.first + 8 * i, head) = lse;
  }
  const auto result = [&](int i, int n) -> float2 {
    const float* two = output[i / 2][n] + i % 2 * 2;
    return {factor[i] * two[0], factor[i] * two[1]};
  };
  const bool goes_apart = leaves_final(item, arguments.final_out.data != nullptr);
  if (arguments.is_final || goes_apart) {
    const DeviceMatrix& out = goes_apart ? arguments.final_out : arguments.out;
    T* begin = row_of<T>(out, rows.first, head) + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < rows.kRows; ++i) {
      T* row = begin + 8 * i * out.row_stride;
      if (writes[i])
        for_each_group<C>(shape.head_dim_v, [&](int n) {
          const float2 two = result(i, n);
          reinterpret_cast<uint32_t&>(row[8 * n]) = pack<T>(two.x, two.y);
        });
    }
  } else {
    for_each_accumulator<C>(arguments, rows, writes, head,
                            [&](float2& to, int i, int n) { __stcg(&to, result(i, n)); });
  }
}

}  // namespace ringside::mma
