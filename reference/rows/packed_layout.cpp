#include "reference/rows/packed_layout.h"

#include <limits>
#include <map>
#include <utility>

#include "reference/support/errors.h"

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

PackedLayout PackedLayout::from_flash(std::vector<int32_t> cu_seqlens,
                                      const std::vector<int32_t>& seqused) {
  require(seqused.size() + 1 == cu_seqlens.size(), "seqused has ", seqused.size(),
          " entries and cu_seqlens has ", cu_seqlens.size(),
          "; expected [batch] and [batch+1]. Pass one length a sequence");
  check_cumulative("cu_seqlens", cu_seqlens);
  std::vector<int32_t> valid{0};
  for (size_t s = 0; s < seqused.size(); ++s) {
    const int32_t begin = cu_seqlens[s], end = cu_seqlens[s + 1];
    require(seqused[s] >= 0, "seqused[", s, "]=", seqused[s],
            "; a length cannot be negative. Pass 0 for an empty sequence");
    require(seqused[s] <= end - begin, "seqused[", s, "]=", seqused[s], " but sequence ", s,
            " has only ", end - begin, " rows (cu_seqlens[", s, "]=", begin, ", cu_seqlens[", s + 1,
            "]=", end, "); expected at most as many. Pass in cu_seqlens where rows start, padding ",
            "too, and in seqused how many of each are valid");
    valid.push_back(valid.back() + seqused[s]);
  }
  return PackedLayout(std::move(valid), std::move(cu_seqlens));
}

PackedLayout PackedLayout::from_te(std::vector<int32_t> cu_seqlens,
                                   std::vector<int32_t> cu_seqlens_padded, int num_rows) {
  PackedLayout layout(std::move(cu_seqlens), std::move(cu_seqlens_padded));
  const bool pads = layout.cu_seqlens_ != layout.cu_seqlens_padded_;
  require(num_rows >= layout.num_rows(), "num_rows=", num_rows, " but ",
          pads ? "cu_seqlens_padded" : "cu_seqlens", " ends at ", layout.num_rows(),
          "; the offsets must end within the rows. Pass the rows of q");
  require(layout.batch() > 0 || num_rows == 0, "num_rows=", num_rows,
          " but there is no sequence to own the rows. Add one of length 0");
  layout.cu_seqlens_padded_.back() = num_rows;
  return layout;
}

PackedLayout PackedLayout::from_position_ids(const std::vector<int32_t>& position_ids) {
  std::vector<int32_t> ends{0};
  const int rows = static_cast<int>(position_ids.size());
  for (int row = 0; row < rows; ++row) {
    constexpr const char* kOtherwise = "For other orders pass cu_seqlens to PackedLayout";
    const int position = position_ids[row];
    require(row > 0 || position == 0, "position_ids[0]=", position,
            "; expected 0, where the first document begins. ", kOtherwise);
    const int64_t expected = row == 0 ? 0 : int64_t{position_ids[row - 1]} + 1;
    require(position == expected || position == 0, "position_ids[", row, "]=", position,
            "; expected ", expected, " (the document goes on) or 0 (a new one). ", kOtherwise);
    if (position_ids[row] == 0 && row > 0) ends.push_back(row);
  }
  if (rows > 0) ends.push_back(rows);
  return PackedLayout(std::move(ends));
}

PackedLayout PackedLayout::from_segment_ids(const std::vector<int32_t>& segment_ids) {
  std::vector<int32_t> lengths, starts;
  std::map<int32_t, int> first_row;
  const int rows = static_cast<int>(segment_ids.size());
  for (int row = 0; row < rows; ++row) {
    const int32_t id = segment_ids[row], before = row == 0 ? 0 : segment_ids[row - 1];
    if (id != 0 && id != before) {
      const auto [known, is_new] = first_row.try_emplace(id, row);
      require(is_new, "segment_ids[", row, "]=", id, " already appeared in row ", known->second,
              "; a document must be one run of rows. Sort the rows, or give each run its own id");
      starts.push_back(row);
      lengths.push_back(0);
    }
    if (id != 0) ++lengths.back();
    if (row == 0 && id == 0) {  // an empty document owns the padding before the first
      starts.push_back(0);
      lengths.push_back(0);
    }
  }
  starts.push_back(rows);
  if (lengths.empty()) return PackedLayout();
  return from_flash(std::move(starts), lengths);
}

}  // namespace ringside
