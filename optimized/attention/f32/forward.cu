// Forward attention in float32: one block for one item and head, an online softmax that runs across
// all key segments of the item, then one merge into out and lse.
#include "optimized/attention/f32/common.cuh"
#include "reference/attention/partial.h"

namespace ringside::f32 {
namespace {

template <int D>
struct RunningSoftmax {  // of a thread's rows; out and sum are relative to exp(top)
  static constexpr int R = Sizes<D>::R;
  float top[R], sum[R];
  Columns<D> out = {};

  __device__ RunningSoftmax() {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      top[i] = -INFINITY;
      sum[i] = 0;
    }
  }

  // Turns scores (-inf: not seen) into exp(score - top) and rescales what came before. The 16
  // threads of a row are neighbours in a warp.
  __device__ void absorb(Scores<D>& scores) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      float new_top = top[i];
#pragma unroll
      for (int j = 0; j < R; ++j) new_top = fmaxf(new_top, scores[i][j]);
      for (int lanes = kSide / 2; lanes > 0; lanes /= 2)
        new_top = fmaxf(new_top, __shfl_xor_sync(0xffffffff, new_top, lanes));
      const float rescale = new_top == top[i] ? 1.0f : expf(top[i] - new_top);
      const float shift = isinf(new_top) ? 0.0f : new_top;  // +inf: the sum becomes +inf, not NaN
      float row_sum = 0;
#pragma unroll
      for (int j = 0; j < R; ++j) {
        scores[i][j] = scores[i][j] == -INFINITY ? 0.0f : expf(scores[i][j] - shift);
        row_sum += scores[i][j];
      }
      for (int lanes = kSide / 2; lanes > 0; lanes /= 2)
        row_sum += __shfl_xor_sync(0xffffffff, row_sum, lanes);
      sum[i] = sum[i] * rescale + row_sum;
      top[i] = new_top;
#pragma unroll
      for (int c = 0; c < Sizes<D>::C; ++c)
#pragma unroll
        for (int x = 0; x < 4; ++x) out[i][c][x] *= rescale;
    }
  }
};

// The largest score of all rows of the block, or NaN, as then a sum is; rows that are not there
// have none.
template <int D>
__device__ void raise_max_logit(int32_t* of_head, const RunningSoftmax<D>& softmax) {
  float highest = -INFINITY;
#pragma unroll
  for (int i = 0; i < Sizes<D>::R; ++i)
    highest = larger(highest, isnan(softmax.sum[i]) ? softmax.sum[i] : softmax.top[i]);
  for (int lanes = 16; lanes > 0; lanes /= 2)
    highest = larger(highest, __shfl_xor_sync(0xffffffff, highest, lanes));
  if (threadIdx.x % 32 == 0 && highest != -INFINITY) atomicMax(of_head, ordered_key(highest));
}

template <int D>
__device__ __forceinline__ void attend(const ForwardArguments& a, int index, int head) {
  using S = Sizes<D>;
  extern __shared__ float4 shared[];
  float* q_tile = reinterpret_cast<float*>(shared);
  float *k_tile = q_tile + S::tile_floats, *v_tile = k_tile + S::tile_floats;
  float* weights = v_tile + S::tile_floats;
  __shared__ SharedRows<D> rows;

  const WorkItem item = a.work.items[index];
  const int kv_head = kv_head_of(a.shape, head), num_rows = item.end - item.begin;
  const int first_row = item.own.row + item.begin;
  const Scoring model(a.shape, a.options, a.work, item, head);
  load_tile<D>(q_tile, a.q, head, first_row, num_rows, a.shape.head_dim_qk);

  RunningSoftmax<D> softmax;
  for (int p = item.partner_begin; p < item.partner_end; ++p) {
    const Segment k = a.work.partners[p];
    const Interval keys = keys_seen(model.mask, k, item.own, item.begin, item.end);
    if (keys.size() == 0) continue;
    __syncthreads();  // nobody reads the rows of the partner before
    for (int i = threadIdx.x; i < S::rows; i += kThreads) {
      const int q = item.own.position(item.begin + i);
      const Interval seen = i < num_rows ? model.mask.visible_rows(k, q) : Interval{};
      rows.row[i] = {q, seen.begin, seen.end, 0, 0};
    }
    for (int begin = keys.begin; begin < keys.end; begin += S::rows) {
      const int count = min(S::rows, keys.end - begin);
      __syncthreads();
      load_tile<D>(k_tile, a.k, kv_head, k.row + begin, count, a.shape.head_dim_qk);
      const bool finite =
          load_tile<D>(v_tile, a.v, kv_head, k.row + begin, count, a.shape.head_dim_v);
      const bool all_finite = __syncthreads_and(finite);
      Scores<D> scores;
      multiply_rows<D>(q_tile, k_tile, scores);
#pragma unroll
      for (int i = 0; i < S::R; ++i) {
        const int own = tile_y() + kSide * i;
        const QueryRow row = rows.row[own];
#pragma unroll
        for (int j = 0; j < S::R; ++j) {
          const int key = begin + tile_x() + kSide * j;
          float slope;
          scores[i][j] =
              rows.sees(own, key, keys.end)
                  ? model.score(scores[i][j] * model.scale, row.position, k.position(key), &slope)
                  : -INFINITY;
        }
      }
      softmax.absorb(scores);
      if (a.options.dropout.p != 0) {
#pragma unroll
        for (int i = 0; i < S::R; ++i)
#pragma unroll
          for (int j = 0; j < S::R; ++j)
            if (scores[i][j] != 0)
              scores[i][j] = model.kept(scores[i][j], rows.row[tile_y() + kSide * i].position,
                                        k.position(begin + tile_x() + kSide * j));
      }
      store_scores<D>(scores, weights);
      __syncthreads();
      if (all_finite)
        add_weighted_rows<D, Read::straight>(weights, v_tile, softmax.out);
      else
        add_seen_rows<D, Read::straight>(weights, v_tile, softmax.out, [&](int i, int j) {
          return rows.sees(i, begin + j, keys.end);
        });
    }
  }

  if (a.max_logit != nullptr) raise_max_logit<D>(a.max_logit + model.head, softmax);
  float old_weight[S::R], weight[S::R], lse[S::R];
#pragma unroll
  for (int i = 0; i < S::R; ++i) {
    const int row = tile_y() + kSide * i;
    if (row >= num_rows) continue;
    const float before = a.lse.of(int64_t{first_row} + row, head);
    const auto w = merge_weights(before, softmax.top[i] + logf(softmax.sum[i]));
    old_weight[i] = w.a;
    weight[i] = softmax.sum[i] == 0 ? 0.0f : w.b / softmax.sum[i];  // 0: saw nothing but -inf
    lse[i] = w.lse;
  }
  float* out = static_cast<float*>(a.out.data);
  for_each_element<D>(softmax.out, num_rows, a.shape.head_dim_v,
                      [&](int i, int row, int d, float value) {
                        float& merged = out[offset_of(a.out, int64_t{first_row} + row, head) + d];
                        merged = old_weight[i] * merged + weight[i] * value;
                      });
  __syncthreads();  // everybody has read the old lse
#pragma unroll
  for (int i = 0; i < S::R; ++i) {
    const int row = tile_y() + kSide * i;
    if (tile_x() == 0 && row < num_rows) a.lse.of(int64_t{first_row} + row, head) = lse[i];
  }
}

template <int D>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ ForwardArguments a) {
  for_each_item(a.work, a.shape.num_heads, [&](int index, int head) { attend<D>(a, index, head); });
}

template <int D>
cudaError_t launch_forward(const ForwardArguments& a, cudaStream_t stream) {
  using S = Sizes<D>;
  return launch_list(forward_kernel<D>, a, a.work, a.shape.num_heads,
                     sizeof(float) * (3 * S::tile_floats + S::score_floats), stream);
}

}  // namespace

cudaError_t forward(const ForwardArguments& a, cudaStream_t stream) {
  if (a.layout == AccumulatorLayout::tiles || a.accumulate == Accumulate::only ||
      a.final_out.data != nullptr)
    return cudaErrorInvalidValue;  // see float32_family()
  switch (padded_dim(a.shape)) {
    case 64:
      return launch_forward<64>(a, stream);
    case 128:
      return launch_forward<128>(a, stream);
    default:
      return launch_forward<256>(a, stream);
  }
}

}  // namespace ringside::f32
