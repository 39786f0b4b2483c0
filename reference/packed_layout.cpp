#include "reference/packed_layout.h"

#include <limits>
#include <utility>

#include "reference/errors.h"

namespace ringside {
namespace {

constexpr const char* kFix = "Pass cumulative sums: np.concatenate([[0], np.cumsum(lengths)])";

void check_cumulative(const char* name, const std::vector<int32_t>& sums) {
  require(!sums.empty(), name, " is empty; expected [batch+1] entries starting at 0. ", kFix);
  require(sums[0] == 0, name, "[0]=", sums[0], "; it must start at 0. ", kFix);
  for (size_t i = 1; i < sums.size(); ++i)
    require(sums[i - 1] <= sums[i], name, "[", i, "]=", sums[i], " is less than ", name, "[", i - 1,
            "]=", sums[i - 1], "; it must never decrease. ", kFix);
}

}  // namespace

PackedLayout::PackedLayout(std::vector<int32_t> cu_seqlens)
    : PackedLayout(cu_seqlens, cu_seqlens) {}

PackedLayout::PackedLayout(std::vector<int32_t> cu_seqlens, std::vector<int32_t> cu_seqlens_padded)
    : cu_seqlens_(std::move(cu_seqlens)), cu_seqlens_padded_(std::move(cu_seqlens_padded)) {
  check_cumulative("cu_seqlens", cu_seqlens_);
  check_cumulative("cu_seqlens_padded", cu_seqlens_padded_);
  require(cu_seqlens_.size() == cu_seqlens_padded_.size(), "cu_seqlens has ", cu_seqlens_.size(),
          " entries and cu_seqlens_padded has ", cu_seqlens_padded_.size(),
          "; both must have [batch+1]. Pass one entry a sequence in each, plus the leading 0");
  for (int s = 0; s < batch(); ++s)
    require(len(s) <= padded_len(s), "sequence ", s, " has ", len(s), " tokens but only ",
            padded_len(s), " rows (cu_seqlens_padded[", s, "]=", cu_seqlens_padded_[s],
            ", cu_seqlens_padded[", s + 1, "]=", cu_seqlens_padded_[s + 1],
            "); padded lengths must be at least the lengths. Did you swap the two arguments?");
}

PackedLayout PackedLayout::from_lengths(const std::vector<int32_t>& lengths,
                                        int pad_to_multiple_of) {
  require(pad_to_multiple_of >= 1, "pad_to_multiple_of=", pad_to_multiple_of,
          "; expected at least 1 (no padding). A common choice is 2*cp_size");
  std::vector<int32_t> valid{0}, padded{0};
  for (size_t s = 0; s < lengths.size(); ++s) {
    const int64_t n = lengths[s], m = pad_to_multiple_of;
    require(n >= 0, "lengths[", s, "]=", n, "; a length cannot be negative. Drop it or pass 0");
    const int64_t rows = padded.back() + (n + m - 1) / m * m;
    require(rows <= std::numeric_limits<int32_t>::max(), "lengths[0..", s, "] need ", rows,
            " rows; row numbers are int32 (at most 2147483647). Split the pack");
    valid.push_back(static_cast<int32_t>(valid.back() + n));
    padded.push_back(static_cast<int32_t>(rows));
  }
  return PackedLayout(std::move(valid), std::move(padded));
}

}  // namespace ringside
