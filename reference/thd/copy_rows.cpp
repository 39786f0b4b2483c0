#include "reference/thd/copy_rows.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "reference/support/parallel.h"

namespace ringside::thd {
namespace {

// Pieces that the C library still copies through the cache: it bypasses it for larger ones, which
// is slower where the rows were in the cache or will be read next.
constexpr int64_t kBlockBytes = int64_t{1} << 18;

// One core nearly exhausts its memory channel, and on a busy machine a helper is waited for:
// another thread pays only from about here on, above all for the pages of a new array.
constexpr int64_t kBytesPerThread = int64_t{1} << 25;

// Rows [begin, end), counted along the concatenated copies; end may lie beyond them. first[i]:
// where copy i begins there.
void copy_range(const RowCopies& copies, const std::vector<int64_t>& first,
                const RowBuffers& buffers, int64_t begin, int64_t end) {
  auto i =
      static_cast<size_t>(std::upper_bound(first.begin(), first.end(), begin) - first.begin() - 1);
  for (; i < copies.size() && first[i] < end; ++i) {
    const int64_t skip = std::max(begin - first[i], int64_t{0});
    const int64_t rows = std::min(end - first[i], copies[i].rows) - skip;
    std::memcpy(buffers.target + (copies[i].to + skip) * buffers.row_bytes,
                buffers.source + (copies[i].from + skip) * buffers.row_bytes,
                static_cast<size_t>(rows * buffers.row_bytes));
  }
}

}  // namespace

void append(RowCopies& copies, const RowCopy& next) {
  if (next.rows <= 0) return;
  if (!copies.empty()) {
    RowCopy& last = copies.back();
    if (last.from + last.rows == next.from && last.to + last.rows == next.to) {
      last.rows += next.rows;
      return;
    }
  }
  copies.push_back(next);
}

RowCopies inverse(RowCopies copies) {
  for (RowCopy& copy : copies) std::swap(copy.from, copy.to);
  return copies;
}

void copy_rows(const RowCopies& copies, const RowBuffers& buffers) {
  std::vector<int64_t> first{0};
  for (const RowCopy& copy : copies) first.push_back(first.back() + copy.rows);
  const int64_t rows = first.back();
  if (rows == 0 || buffers.row_bytes == 0) return;
  first.pop_back();
  const int64_t block = std::max(kBlockBytes / buffers.row_bytes, int64_t{1});
  const int64_t threads = (rows * buffers.row_bytes - 1) / kBytesPerThread + 1;
  std::atomic<int64_t> next{0};
  parallel_for(static_cast<int>(std::min(threads, int64_t{1024})), [&](int) {
    for (int64_t begin; (begin = next.fetch_add(block)) < rows;)
      copy_range(copies, first, buffers, begin, begin + block);
  });
}

}  // namespace ringside::thd
