#include "reference/thd/micro_sequence.h"

#include <algorithm>
#include <limits>

#include "reference/support/errors.h"

namespace ringside::thd {
namespace {

int64_t stream_length(const std::vector<int32_t>& lengths) {
  int64_t total = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    require(lengths[i] >= 0, "lengths[", i, "]=", lengths[i],
            "; a length cannot be negative. Pass np.diff(cu_seqlens), not cu_seqlens");
    total += lengths[i];
  }
  require(total <= std::numeric_limits<int32_t>::max(), "lengths add up to ", total,
          " tokens; offsets are int32 (at most 2147483647). Split the stream");
  return total;
}

}  // namespace

MicroSequence canonical_cu_seqlens_k(const std::vector<int32_t>& lengths, int begin, int end) {
  const int64_t total = stream_length(lengths);
  require(0 <= begin && begin <= end && end <= total, "the window [", begin, ", ", end,
          ") does not lie in the stream; expected 0 <= begin <= end <= ", total,
          ", the sum of lengths. Crop the last micro-sequence to the stream");
  MicroSequence micro;
  micro.first_document_begin = begin;
  int document = 0;  // where it begins
  for (const int32_t length : lengths) {
    const int from = std::max(document, begin), to = std::min(document + length, end);
    if (from < to) {
      if (micro.cu_seqlens_q.size() == 1) micro.first_document_begin = document;
      micro.cu_seqlens_q.push_back(to - begin);
      micro.cu_seqlens_k.push_back(to - micro.first_document_begin);
    }
    document += length;
  }
  return micro;
}

void check_canonical_cu_seqlens_k(const Offsets& cu_seqlens_k) {
  check_offsets("cu_seqlens_k", cu_seqlens_k, std::numeric_limits<int32_t>::max());
  const int first = cu_seqlens_k.front();
  require(first == 0, "cu_seqlens_k[0]=", first,
          "; expected canonical offsets, which start at 0. Pass cu_seqlens_k - ", first, " with k[",
          first, ":] and v[", first, ":], or take them from canonical_cu_seqlens_k");
}

}  // namespace ringside::thd
