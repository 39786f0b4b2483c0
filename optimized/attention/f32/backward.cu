// Backward attention in float32, in two passes and without atomics: dq from items of query rows, dk
// and dv from items of key rows. Scores are computed twice, and every sum has one order: results
// are bit-equal from run to run.
//
//   p = exp(score - lse)   dp = dout . v   ds = slope * p * (dp - delta)
//   dq_i = sum_j ds_ij k_j   dk_j = sum_i ds_ij q_i   dv_j = sum_i p_ij dout_i
#include "optimized/attention/f32/common.cuh"

namespace ringside::f32 {
namespace {

struct KeyTile {      // key rows in shared memory
  const Segment& of;  // whose rows [begin, end) they are
  int begin, end;
};

// From the products q.k and dout.v of a tile to p (as it meets v) and ds, in place.
template <int D>
__device__ void gradients_of_scores(const Scoring& model, const SharedRows<D>& rows,
                                    const KeyTile& keys, Scores<D>& p, Scores<D>& ds) {
#pragma unroll
  for (int i = 0; i < Sizes<D>::R; ++i) {
    const int own = tile_y() + kSide * i;
    const QueryRow row = rows.row[own];
#pragma unroll
    for (int j = 0; j < Sizes<D>::R; ++j) {
      const int key = keys.begin + tile_x() + kSide * j, k = keys.of.position(key);
      if (rows.sees(own, key, keys.end)) {
        float slope;
        const float score = model.score(p[i][j] * model.scale, row.position, k, &slope);
        const float weight = score == -INFINITY && !isnan(row.lse) ? 0.0f : expf(score - row.lse);
        ds[i][j] = slope * weight * (model.kept(ds[i][j], row.position, k) - row.delta);
        p[i][j] = model.kept(weight, row.position, k);
      } else {
        p[i][j] = ds[i][j] = 0;
      }
    }
  }
}

// Fills the rows [begin, begin+count) of query segment `q` that look at key segment `k`.
template <int D>
__device__ void load_rows(SharedRows<D>& rows, const BackwardArguments& a, const Scoring& model,
                          const Segment& q, const Segment& k, Interval of_q, int head) {
  for (int i = threadIdx.x; i < Sizes<D>::rows; i += kThreads) {
    QueryRow row{};
    if (i < of_q.size()) {
      row.position = q.position(of_q.begin + i);
      const Interval seen = model.mask.visible_rows(k, row.position);
      row.seen_begin = seen.begin;
      row.seen_end = seen.end;
      const int64_t at = int64_t{q.row} + of_q.begin + i;
      if (seen.size() > 0) {  // else lse is -inf
        row.lse = a.lse.of(at, head);
        row.delta = a.delta.of(at, head);
      }
    }
    rows.row[i] = row;
  }
}

struct Tiles {  // in dynamic shared memory
  float *q, *dout, *k, *v, *scores;

  template <int D>
  __device__ static Tiles in(void* shared) {
    float* first = static_cast<float*>(shared);
    constexpr int n = Sizes<D>::tile_floats;
    return {first, first + n, first + 2 * n, first + 3 * n, first + 4 * n};
  }
};

template <int D>
__device__ __forceinline__ void differentiate_queries(const BackwardArguments& a, int index,
                                                      int head) {
  using S = Sizes<D>;
  extern __shared__ float4 shared[];
  const Tiles tiles = Tiles::in<D>(shared);
  __shared__ SharedRows<D> rows;

  const WorkItem item = a.queries.items[index];
  const int kv_head = kv_head_of(a.shape, head), num_rows = item.end - item.begin;
  const int first_row = item.own.row + item.begin;
  const Scoring model(a.shape, a.options, a.queries, item, head);
  load_tile<D>(tiles.q, a.q, head, first_row, num_rows, a.shape.head_dim_qk);
  load_tile<D>(tiles.dout, a.dout, head, first_row, num_rows, a.shape.head_dim_v);

  Columns<D> dq = {};
  for (int p = item.partner_begin; p < item.partner_end; ++p) {
    const Segment k = a.queries.partners[p];
    const Interval keys = keys_seen(model.mask, k, item.own, item.begin, item.end);
    if (keys.size() == 0) continue;
    __syncthreads();
    load_rows<D>(rows, a, model, item.own, k, {item.begin, item.end}, head);
    for (int begin = keys.begin; begin < keys.end; begin += S::rows) {
      const int count = min(S::rows, keys.end - begin);
      __syncthreads();
      const bool finite =
          load_tile<D>(tiles.k, a.k, kv_head, k.row + begin, count, a.shape.head_dim_qk);
      load_tile<D>(tiles.v, a.v, kv_head, k.row + begin, count, a.shape.head_dim_v);
      const bool all_finite = __syncthreads_and(finite);
      Scores<D> weights, ds;
      multiply_rows<D>(tiles.q, tiles.k, weights);
      multiply_rows<D>(tiles.dout, tiles.v, ds);
      gradients_of_scores<D>(model, rows, {k, begin, keys.end}, weights, ds);
      store_scores<D>(ds, tiles.scores);
      __syncthreads();
      if (all_finite)
        add_weighted_rows<D, Read::straight>(tiles.scores, tiles.k, dq);
      else
        add_seen_rows<D, Read::straight>(tiles.scores, tiles.k, dq, [&](int i, int j) {
          return rows.sees(i, begin + j, keys.end);
        });
    }
  }
  add_to<D>(a.dq, head, first_row, num_rows, a.shape.head_dim_qk, dq);
}

template <int D>
__device__ __forceinline__ void differentiate_keys(const BackwardArguments& a, int index,
                                                   int kv_head) {
  using S = Sizes<D>;
  extern __shared__ float4 shared[];
  const Tiles tiles = Tiles::in<D>(shared);
  __shared__ SharedRows<D> rows;

  const WorkItem item = a.keys.items[index];
  const int num_rows = item.end - item.begin, first_row = item.own.row + item.begin;
  load_tile<D>(tiles.k, a.k, kv_head, first_row, num_rows, a.shape.head_dim_qk);
  load_tile<D>(tiles.v, a.v, kv_head, first_row, num_rows, a.shape.head_dim_v);

  Columns<D> dk = {}, dv = {};
  const Interval heads = query_heads_of(a.shape, kv_head);
  for (int head = heads.begin; head < heads.end; ++head) {
    const Scoring model(a.shape, a.options, a.keys, item, head);
    for (int p = item.partner_begin; p < item.partner_end; ++p) {
      const Segment q = a.keys.partners[p];
      const Interval queries = queries_seeing(model.mask, q, item.own, item.begin, item.end);
      for (int begin = queries.begin; begin < queries.end; begin += S::rows) {
        const Interval of_q{begin, min(begin + S::rows, queries.end)};
        __syncthreads();
        load_rows<D>(rows, a, model, q, item.own, of_q, head);
        bool finite =
            load_tile<D>(tiles.q, a.q, head, q.row + begin, of_q.size(), a.shape.head_dim_qk);
        finite &=
            load_tile<D>(tiles.dout, a.dout, head, q.row + begin, of_q.size(), a.shape.head_dim_v);
        const bool all_finite = __syncthreads_and(finite);
        const auto add_queries = [&](const float* queries, Columns<D>& sum) {
          if (all_finite)
            add_weighted_rows<D, Read::transposed>(tiles.scores, queries, sum);
          else
            add_seen_rows<D, Read::transposed>(tiles.scores, queries, sum, [&](int i, int j) {
              return rows.sees(j, item.begin + i, item.end);
            });
        };
        Scores<D> weights, ds;
        multiply_rows<D>(tiles.q, tiles.k, weights);
        multiply_rows<D>(tiles.dout, tiles.v, ds);
        gradients_of_scores<D>(model, rows, {item.own, item.begin, item.end}, weights, ds);
        store_scores<D>(weights, tiles.scores);
        __syncthreads();
        add_queries(tiles.dout, dv);
        __syncthreads();
        store_scores<D>(ds, tiles.scores);
        __syncthreads();
        add_queries(tiles.q, dk);
      }
    }
  }
  add_to<D>(a.dk, kv_head, first_row, num_rows, a.shape.head_dim_qk, dk);
  add_to<D>(a.dv, kv_head, first_row, num_rows, a.shape.head_dim_v, dv);
}

template <int D>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(const __grid_constant__ BackwardArguments a) {
  for_each_item(a.queries, a.shape.num_heads,
                [&](int index, int head) { differentiate_queries<D>(a, index, head); });
}

template <int D>
__global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(const __grid_constant__ BackwardArguments a) {
  for_each_item(a.keys, a.shape.num_kv_heads,
                [&](int index, int head) { differentiate_keys<D>(a, index, head); });
}

template <int D>
cudaError_t launch_backward(const BackwardArguments& a, cudaStream_t stream) {
  using S = Sizes<D>;
  const size_t bytes = sizeof(float) * (4 * S::tile_floats + S::score_floats);
  const cudaError_t error =
      launch_list(query_gradient_kernel<D>, a, a.queries, a.shape.num_heads, bytes, stream);
  if (error != cudaSuccess) return error;
  return launch_list(key_gradient_kernel<D>, a, a.keys, a.shape.num_kv_heads, bytes, stream);
}

}  // namespace

cudaError_t backward(const BackwardArguments& a, cudaStream_t stream) {
  if (a.accumulate == Accumulate::only || a.final_dk.data != nullptr ||
      a.dq_layout != AccumulatorLayout::rows)
    return cudaErrorInvalidValue;  // see float32_family()
  switch (padded_dim(a.shape)) {
    case 64:
      return launch_backward<64>(a, stream);
    case 128:
      return launch_backward<128>(a, stream);
    default:
      return launch_backward<256>(a, stream);
  }
}

}  // namespace ringside::f32

namespace ringside {

KernelFamily float32_family() {
  const auto rows = [](const AttentionShape& shape) {
    return f32::padded_dim(shape) == 64 ? f32::Sizes<64>::rows : f32::Sizes<256>::rows;
  };
  const auto supports = [](const AttentionShape& shape, const DeviceProperties&) {
    return shape.type == ElementType::float32 && shape.head_dim_qk >= 1 && shape.head_dim_v >= 1 &&
           shape.head_dim_qk <= 256 && shape.head_dim_v <= 256;
  };
  return {"float32", supports, rows, rows, rows, f32::forward, f32::backward, KernelFamily::always};
}

}  // namespace ringside
