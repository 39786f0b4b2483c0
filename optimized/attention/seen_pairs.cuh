// What infinities and NaN do to the pairs that see them, pair by pair.
//
// Tensor cores multiply a block whole. A pair that is not seen has the weight 0, and 0 times a
// number that is not finite is NaN. In blocks that are seen in part, kernels put 0 in the place of
// such numbers of the right operand; what these do to the pairs that are seen is added here, to
// results in global memory: slowly, a warp a pair, and hardly ever. An item's results have one
// writer each, among its warps too. What tells of a result is its class (NaN, +inf, -inf).
#pragma once

#include "optimized/attention/heads.h"
#include "optimized/device/elements.cuh"
#include "optimized/tables/accumulator_tiles.h"
#include "optimized/tables/block_walk.h"
#include "reference/attention/partial.h"
#include "reference/attention/score_model.h"

namespace ringside::seen_pairs {

template <typename T>
__device__ inline T* row_of(const DeviceMatrix& x, int64_t row, int head) {
  return static_cast<T*>(x.data) + row * x.row_stride + head * x.head_stride;
}

// What options do to the scores and weights of an item's pairs of one query head.
template <bool kOptions>
struct Scoring {
  __device__ Scoring(const AttentionShape&, const ScoreOptions&, const WorkList&, const WorkItem&,
                     int) {}
  __device__ float score(float scaled, int, int, float* slope) const {
    *slope = 1;
    return scaled;
  }
  __device__ float kept(float weight, int, int) const { return weight; }
};
template <>
struct Scoring<true> {
  ScoreModel<float, ScoreOptions> model;

  __device__ Scoring(const AttentionShape& shape, const ScoreOptions& o, const WorkList& work,
                     const WorkItem& item, int head)
      : model{o,
              sequence_mask(work, item),
              1,
              o.alibi_slopes ? o.alibi_slopes[shape.first_head + head] : 0,
              item.own.seq,
              shape.first_head + head} {}
  __device__ float score(float scaled, int q, int k, float* slope) const {
    return model.score(scaled, q, k, slope);
  }
  __device__ float kept(float weight, int q, int k) const { return model.kept(weight, q, k); }
};

// A query and a key: rows of their buffers, and positions.
struct Pair {
  int64_t row, key;
  int q, k;
};

// visit(d) for the columns of this lane. Loops stay as they are: all of this is compiled into every
// kernel that may need it.
template <typename Visit>
__device__ inline void for_each_column(int dim, Visit visit) {
#pragma unroll 1
  for (int d = threadIdx.x % 32; d < dim; d += 32) visit(d);
}

template <typename T>
__device__ inline bool all_finite(const T* x, int dim) {
  bool finite = true;
  for_each_column(dim, [&](int d) { finite &= isfinite(to_float(x[d])); });
  return __all_sync(~0u, finite);
}

template <typename T>
__device__ inline float dot(const T* x, const T* y, int dim) {
  float sum = 0;
  for_each_column(dim, [&](int d) { sum = fmaf(to_float(x[d]), to_float(y[d]), sum); });
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  return sum;
}

// add(d, weight * x[d]) for what is not finite.
template <typename T, typename Add>
__device__ inline void add_row(float weight, const T* x, int dim, Add add) {
  for_each_column(dim, [&](int d) {
    const float value = to_float(x[d]);
    if (!isfinite(value)) add(d, weight * value);
  });
}

// Final results are T's, others float32, which other launches may add to. To one, several items may
// add something.
template <typename T>
__device__ inline void add_to(void* results, int64_t at, bool is_final, float x) {
  if (!is_final) {
    atomicAdd(static_cast<float*>(results) + at, x);
    return;
  }
  static_assert(sizeof(T) == sizeof(unsigned short));
  auto* result = static_cast<unsigned short*>(results) + at;
  unsigned short seen = *result, before;
  do {
    before = seen;
    T sum;
    memcpy(&sum, &before, sizeof(T));
    assign(sum, to_float(sum) + x);
    unsigned short bits;
    memcpy(&bits, &sum, sizeof(T));
    seen = atomicCAS(result, before, bits);
  } while (seen != before);
}

// visit(pair) for the pairs of an item of query rows in key blocks that are not clear: key after
// key, the rows of this warp. Rows without is_met(key) are left out.
template <int Block, typename IsMet, typename Visit>
__device__ inline void for_each_pair_of_queries(const WorkList& work, const WorkItem& item,
                                                IsMet is_met, Visit visit) {
  const SequenceMask mask = sequence_mask(work, item);
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (KeyBlocks<Block> at(work, item); at.valid(); at.advance(work, item)) {
    if (at.is_clear()) continue;
    const Segment k = work.partners[at.partner];
    for (int key = at.begin; key < min(at.begin + Block, at.end); ++key) {
      if (!is_met(int64_t{k.row} + key)) continue;
#pragma unroll 1
      for (int i = item.begin + warp; i < item.end; i += warps)
        if (mask.visible_rows(k, item.own.position(i)).contains(key))
          visit(Pair{int64_t{item.own.row} + i, int64_t{k.row} + key, item.own.position(i),
                     k.position(key)});
    }
  }
}

// out += w v of an item's rows. A weight is 0 where the score is -inf, and positive otherwise;
// where it is not even a number, all of the row is NaN by now.
template <typename T, int Block, bool kOptions = false>
__device__ __noinline__ void add_values(const ForwardArguments& a, const WorkItem& item, int head) {
  const AttentionShape& s = a.shape;
  const int kv_head = kv_head_of(s, head);
  const bool goes_apart = leaves_final(item, a.final_out.data != nullptr);
  const bool is_final = a.accumulate == Accumulate::only || goes_apart;
  const DeviceMatrix& out = goes_apart ? a.final_out : a.out;
  const bool in_tiles = !is_final && a.layout == AccumulatorLayout::tiles;
  const Scoring<kOptions> scoring(s, a.options, a.work, item, head);
  for_each_pair_of_queries<Block>(
      a.work, item,
      [&](int64_t key) { return !all_finite(row_of<T>(a.v, key, kv_head), s.head_dim_v); },
      [&](const Pair& pair) {
        const auto [row, key, q, k] = pair;
        float slope;
        const float score =
            scoring.score(s.softmax_scale * dot(row_of<T>(a.q, row, head),
                                                row_of<T>(a.k, key, kv_head), s.head_dim_qk),
                          q, k, &slope);
        const float weight = scoring.kept(score == -INFINITY ? 0.0f : 1.0f, q, k);
        add_row(weight, row_of<T>(a.v, key, kv_head), s.head_dim_v, [&](int d, float x) {
          const int64_t at = in_tiles ? tiled_offset(row, head, d, s.num_heads, s.head_dim_v)
                                      : row * out.row_stride + head * out.head_stride + d;
          add_to<T>(out.data, at, is_final, x);
        });
      });
}

// A pair of a row and a key of an item.
__device__ inline Pair pair_of(const WorkItem& item, int64_t row, int position, int key) {
  return {row, key, position, item.own.position(key - item.own.row)};
}

// Of a pair, the weight that meets dout, and the gradient of the score, which softmax_scale is yet
// to multiply.
struct PairGradient {
  float p, ds;
};

template <typename T, bool kOptions>
__device__ inline PairGradient gradient_of(const BackwardArguments& a,
                                           const Scoring<kOptions>& scoring, const Pair& pair,
                                           int head, int kv_head) {
  const AttentionShape& s = a.shape;
  const auto [row, key, q, k] = pair;
  float slope;
  const float score = scoring.score(
      s.softmax_scale * dot(row_of<T>(a.q, row, head), row_of<T>(a.k, key, kv_head), s.head_dim_qk),
      q, k, &slope);
  const float dp = dot(row_of<T>(a.dout, row, head), row_of<T>(a.v, key, kv_head), s.head_dim_v);
  const float weight = larger(expf(score - a.lse.of(row, head)), kSmallestNormal<float>);
  const float p = score == -INFINITY ? 0.0f : weight;
  return {scoring.kept(p, q, k), slope * p * (scoring.kept(dp, q, k) - a.delta.of(row, head))};
}

// dq += ds k of an item of query rows.
template <typename T, int Block, bool kOptions = false>
__device__ __noinline__ void add_keys(const BackwardArguments& a, const WorkItem& item, int head) {
  const int dim = a.shape.head_dim_qk, kv_head = kv_head_of(a.shape, head);
  const bool is_final = a.accumulate == Accumulate::only;
  const Scoring<kOptions> scoring(a.shape, a.options, a.queries, item, head);
  for_each_pair_of_queries<Block>(
      a.queries, item, [&](int64_t key) { return !all_finite(row_of<T>(a.k, key, kv_head), dim); },
      [&](const Pair& pair) {
        const float ds = gradient_of<T>(a, scoring, pair, head, kv_head).ds;
        add_row(a.shape.softmax_scale * ds, row_of<T>(a.k, pair.key, kv_head), dim,
                [&](int d, float x) {
                  add_to<T>(a.dq.data, pair.row * a.dq.row_stride + head * a.dq.head_stride + d,
                            is_final, x);
                });
      });
}

// visit(row, position, head, keys) for the rows in query blocks that are not clear to an item of
// key rows, and the keys of the item that a row sees, in its buffer. A kernel's blocks may begin
// elsewhere: clear are those whose neighbours are, too. To see a pair of a clear one again changes
// no class.
template <int Block, int ItemKeys, typename Visit>
__device__ inline void for_each_row_of_keys(const WorkList& work, const WorkItem& item,
                                            Interval heads, Visit visit) {
  const SequenceMask mask = sequence_mask(work, item);
  const bool all_keys = item.end - item.begin == ItemKeys;
  for (QueryBlocks<Block> at(work, item, heads); at.valid(); at.advance(work, item)) {
    const bool is_clear =
        at.clear.begin < at.begin - Block + 2 && at.begin + 2 * Block - 1 <= at.clear.end;
    if (all_keys && is_clear) continue;
    const Segment q = work.partners[at.partner];
    for (int i = at.begin; i < min(at.begin + Block, at.end); ++i) {
      const Interval seen = mask.visible_rows(item.own, q.position(i));
      visit(int64_t{q.row} + i, q.position(i), at.head,
            Interval{item.own.row + max(seen.begin, item.begin),
                     item.own.row + min(seen.end, item.end)});
    }
  }
}

// dk += ds^T q and dv += p^T dout of an item of key rows, whose keys are dealt to the warps.
template <typename T, int Block, int ItemKeys, bool kOptions = false>
__device__ __noinline__ void add_queries(const BackwardArguments& a, const WorkItem& item,
                                         int kv_head) {
  const AttentionShape& s = a.shape;
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const bool goes_apart = leaves_final(item, a.final_dk.data != nullptr);
  const bool is_final = a.accumulate == Accumulate::only || goes_apart;
  const DeviceMatrix &dk = goes_apart ? a.final_dk : a.dk, &dv = goes_apart ? a.final_dv : a.dv;
  const auto add_pair = [&](const T* q, const T* dout, PairGradient pair, int key) {
    add_row(s.softmax_scale * pair.ds, q, s.head_dim_qk, [&](int d, float x) {
      add_to<T>(dk.data, key * dk.row_stride + kv_head * dk.head_stride + d, is_final, x);
    });
    add_row(pair.p, dout, s.head_dim_v, [&](int d, float x) {
      add_to<T>(dv.data, key * dv.row_stride + kv_head * dv.head_stride + d, is_final, x);
    });
  };
  for_each_row_of_keys<Block, ItemKeys>(
      a.keys, item, query_heads_of(s, kv_head),
      [&](int64_t row, int position, int head, Interval keys) {
        const Scoring<kOptions> scoring(s, a.options, a.keys, item, head);
        const T *q = row_of<T>(a.q, row, head), *dout = row_of<T>(a.dout, row, head);
        if (all_finite(q, s.head_dim_qk) && all_finite(dout, s.head_dim_v)) return;
#pragma unroll 1
        for (int key = keys.begin; key < keys.end; ++key)
          if (key % warps == warp)
            add_pair(q, dout,
                     gradient_of<T>(a, scoring, pair_of(item, row, position, key), head, kv_head),
                     key);
      });
}

// dq += ds k of an item of key rows; the rows that meet it are dealt to the warps.
template <typename T, int Block, int ItemKeys, bool kOptions = false>
__device__ __noinline__ void add_own_keys(const BackwardArguments& a, const WorkItem& item,
                                          int kv_head) {
  const int dim = a.shape.head_dim_qk;
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for_each_row_of_keys<Block, ItemKeys>(
      a.keys, item, query_heads_of(a.shape, kv_head),
      [&](int64_t row, int position, int head, Interval keys) {
        if (row % warps != warp) return;
        const Scoring<kOptions> scoring(a.shape, a.options, a.keys, item, head);
        const DeviceMatrix& dq = a.final_dq.data != nullptr ? a.final_dq : a.dq;
        const bool is_final = a.one_item_of_keys || a.final_dq.data != nullptr;
        const bool in_fragments = !is_final && a.dq_layout == AccumulatorLayout::fragments;
        const float scale = in_fragments ? 1 : a.shape.softmax_scale;
        const int64_t begin = row * dq.row_stride + head * dq.head_stride;
#pragma unroll 1
        for (int key = keys.begin; key < keys.end; ++key) {
          const T* k = row_of<T>(a.k, key, kv_head);
          if (all_finite(k, dim)) continue;
          const Pair pair = pair_of(item, row, position, key);
          add_row(scale * gradient_of<T>(a, scoring, pair, head, kv_head).ds, k, dim,
                  [&](int d, float x) {
                    const int place = in_fragments ? fragment_place(d) : d;
                    add_to<T>(dq.data, begin + place, is_final, x);
                  });
        }
      });
}

}  // namespace ringside::seen_pairs
