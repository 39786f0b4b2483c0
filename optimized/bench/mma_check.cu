// A library for mma_check.py: work lists built on the host, and the mma family's launches, with C
// names.
//
//   nvcc -std=c++20 -O3 -I. -gencode arch=compute_90,code=sm_90 --expt-relaxed-constexpr -Xcompiler
//   -fPIC
//        -shared optimized/bench/mma_check.cu optimized/attention_*_mma.cu -o mma_check.so
#include <algorithm>
#include <cstdio>
#include <vector>

#include "optimized/attention/mma/kernels.h"

using namespace ringside;

struct Lists {
  WorkList forward, queries, keys;
};

struct Matrix {
  void* data;
  int64_t row_stride, head_stride;
};

namespace {

template <typename T>
T* to_device(const std::vector<T>& from) {
  T* to = nullptr;
  cudaMalloc(&to, (from.size() + 1) * sizeof(T));
  cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice);
  return to;
}

WorkList build(const std::vector<Segment>& own, const std::vector<Segment>& partners, WorkList list,
               int rows, bool own_is_query, const std::vector<int32_t>& cu_q,
               const std::vector<int32_t>& cu_k) {
  std::vector<Segment> sorted = partners;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Segment& a, const Segment& b) { return a.seq < b.seq; });
  std::vector<std::pair<int64_t, WorkItem>> items;
  for (const Segment& segment : own) {
    const SequenceMask mask{list.mask, cu_q[segment.seq + 1] - cu_q[segment.seq],
                            cu_k[segment.seq + 1] - cu_k[segment.seq]};
    const int valid = segment.rows_below(own_is_query ? mask.len_q : mask.len_k);
    WorkItem item{segment, 0, 0, 0, 0, mask.len_q, mask.len_k};
    const auto first = std::lower_bound(sorted.begin(), sorted.end(), segment.seq,
                                        [](const Segment& s, int seq) { return s.seq < seq; });
    auto last = first;
    while (last != sorted.end() && last->seq == segment.seq) ++last;
    item.partner_begin = first - sorted.begin(), item.partner_end = last - sorted.begin();
    for (item.begin = 0; item.begin < valid; item.begin += rows) {
      item.end = std::min(item.begin + rows, valid);
      int64_t cost = 0;
      for (auto partner = first; partner != last; ++partner)
        cost += own_is_query ? mask.visible_keys(*partner, segment, item.begin, item.end).size()
                             : mask.seeing_queries(*partner, segment, item.begin, item.end).size();
      if (cost > 0) items.push_back({cost, item});
    }
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<WorkItem> ordered;
  for (const auto& [cost, item] : items) ordered.push_back(item);
  list.partners = to_device(sorted);
  list.num_items = to_device(std::vector<int32_t>{int32_t(ordered.size())});
  ordered.resize(ordered.size() + 3);  // capacity: some blocks find nothing to do
  list.items = to_device(ordered);
  list.max_items = ordered.size();
  return list;
}

AttentionShape shape_of(const int* s, float scale) {
  return {s[0], s[1], s[2], s[3], s[4], s[5], s[6], scale, static_cast<ElementType>(s[7])};
}

DeviceMatrix matrix(const Matrix& m) { return {m.data, m.row_stride, m.head_stride}; }

}  // namespace

extern "C" {

Lists* ringside_lists(const int* shape, const Segment* q, int num_q, const Segment* k, int num_k,
                      const int32_t* cu_q, const int32_t* cu_k, int batch, const int* mask) {
  const AttentionShape s = shape_of(shape, 1);
  const std::vector<Segment> qs(q, q + num_q), ks(k, k + num_k);
  const std::vector<int32_t> cq(cu_q, cu_q + batch + 1), ck(cu_k, cu_k + batch + 1);
  WorkList list;
  list.mask = {mask[0], mask[1], mask[2], static_cast<Align>(mask[3])};
  return new Lists{build(qs, ks, list, mma::forward_rows(s), true, cq, ck),
                   build(qs, ks, list, mma::backward_query_rows(s), true, cq, ck),
                   build(ks, qs, list, mma::backward_key_rows(s), false, cq, ck)};
}

// matrices: q, k, v, out
int ringside_forward(const Lists* lists, const int* shape, float scale, const Matrix* m, float* lse,
                     void* stream) {
  const ForwardArguments arguments{shape_of(shape, scale), matrix(m[0]), matrix(m[1]),
                                   matrix(m[2]),           matrix(m[3]), lse,
                                   lists->forward};
  return mma::forward(arguments, static_cast<cudaStream_t>(stream));
}

// matrices: q, k, v, dout, dq, dk, dv
int ringside_backward(const Lists* lists, const int* shape, float scale, const Matrix* m,
                      const float* lse, const float* delta, int deterministic, void* stream) {
  const BackwardArguments arguments{
      shape_of(shape, scale), matrix(m[0]), matrix(m[1]),   matrix(m[2]),
      matrix(m[3]),           lse,          delta,          matrix(m[4]),
      matrix(m[5]),           matrix(m[6]), lists->queries, lists->keys,
      deterministic != 0};
  return mma::backward(arguments, static_cast<cudaStream_t>(stream));
}

}  // extern "C"
