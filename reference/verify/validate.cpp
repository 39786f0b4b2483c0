#include "reference/verify/validate.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "reference/support/errors.h"
#include "reference/support/interrupt.h"

namespace ringside {
namespace {

struct Where {  // put into words where something is wrong, and nowhere else: there may be millions
  const std::string& what;
  const Segment& s;
};

std::ostream& operator<<(std::ostream& out, const Where& where) {
  const Segment& s = where.s;
  return out << where.what << " segment (seq=" << s.seq << ", pos=" << s.pos
             << ", stride=" << s.stride << ", row=" << s.row << ", len=" << s.len << ")";
}

constexpr int64_t kFewRows = 8;  // a segment: of so few, to mark them is quicker than to sort

// Whether every row is owned once, told by the ends of segments, however many rows those have: the
// segments of a sequence, all of one stride, follow upon each other in each residue of positions.
// False is no answer: strides may differ.
bool own_all_by_ends(const PackedLayout& layout, const std::vector<Shard>& shards) {
  int64_t count = 0;
  for (const Shard& shard : shards) count += std::ssize(shard);
  if (count * kFewRows > layout.num_rows()) return false;
  Shard all;
  all.reserve(count);
  for (const Shard& shard : shards) all.insert(all.end(), shard.begin(), shard.end());
  check_interrupt(32 * count + 1);
  std::ranges::sort(all, {},
                    [](const Segment& s) { return std::tuple(s.seq, s.pos % s.stride, s.pos); });
  auto s = all.begin();
  for (int seq = 0; seq < layout.batch(); ++seq) {
    const int rows = layout.padded_len(seq);
    if (rows == 0) continue;
    if (s == all.end() || s->seq != seq) return false;
    const int stride = s->stride;
    for (int first = 0; first < std::min(stride, rows); ++first) {
      int64_t next = first;
      for (; s != all.end() && s->seq == seq && s->stride == stride && s->pos == next; ++s)
        next += int64_t{s->len} * stride;
      if (next < rows) return false;
    }
  }
  return s == all.end();  // else one is of rows that others own, too
}

}  // namespace

void check_problem(const Problem& p) {
  check_mask(p.mask);
  require(p.layout_q.batch() == p.layout_k.batch(), "layout_q holds ", p.layout_q.batch(),
          " sequences and layout_k ", p.layout_k.batch(),
          "; a sequence attends to its own keys, so both need the same number. Add zero-length "
          "sequences where one side has none");
  require(p.num_heads >= 1, "num_heads=", p.num_heads, "; expected at least 1");
  require(p.num_kv_heads >= 1 && p.num_heads % p.num_kv_heads == 0, "num_heads=", p.num_heads,
          " and num_kv_heads=", p.num_kv_heads,
          "; query heads must be a multiple of kv heads. Query head h uses kv head "
          "h / (num_heads / num_kv_heads)");
}

void check_segments(const std::string& what, const PackedLayout& layout, const Shard& shard) {
  int next_row = 0;
  for (const Segment& s : shard) {
    check_interrupt(8);
    const Where where{what, s};
    require(0 <= s.seq && s.seq < layout.batch(), where, " names a sequence that is not among the ",
            layout.batch(), " of the layout. Count sequences from 0");
    require(s.stride >= 1 && s.len >= 1 && s.pos >= 0, where,
            "; expected stride >= 1, len >= 1 and pos >= 0. Leave empty segments out");
    require(s.row == next_row, where, " starts at row ", s.row, " but the rows before it end at ",
            next_row, "; segments lie back to back in row order");
    const int64_t last = s.pos + int64_t{s.len - 1} * s.stride;
    require(last < layout.padded_len(s.seq), where, " reaches position ", last, " of sequence ",
            s.seq, ", which has ", layout.padded_len(s.seq), " rows");
    const int64_t behind = last + s.stride;  // where the next row would be
    require(behind <= std::numeric_limits<int>::max(), where, " goes on at position ", behind,
            "; expected at most 2147483647. Of one row any stride will do, such as 1");
    require(s.gap == 0, where, " has a gap of ", s.gap, " positions inside; expected none. ",
            "Make it two segments");
    const int64_t end = int64_t{s.row} + s.len;
    require(end <= std::numeric_limits<int>::max(), where, " ends at row ", end,
            "; expected at most 2147483647. Own every row once, or split the pack");
    next_row = static_cast<int>(end);
  }
}

void check_shards(Operand operand, const PackedLayout& layout, const std::vector<Shard>& shards) {
  const char* what = operand == Operand::q ? "query" : "key";
  for (size_t rank = 0; rank < shards.size(); ++rank)
    check_segments(concat("rank ", rank, " ", what), layout, shards[rank]);
}

void check_ownership(Operand operand, const PackedLayout& layout,
                     const std::vector<Shard>& shards) {
  const bool is_q = operand == Operand::q;
  const char* what = is_q ? "query" : "key";
  const auto at = [&](int rank, int row) {
    return Unsaid{is_q ? At{.rank = rank, .row = row} : At{.rank = rank, .key = row}};
  };
  check_shards(operand, layout, shards);
  if (own_all_by_ends(layout, shards)) return;
  std::vector<int> owner(layout.num_rows(), -1);
  for (int rank = 0; rank < static_cast<int>(shards.size()); ++rank) {
    for (const Segment& s : shards[rank]) {
      check_interrupt(s.len);
      for (int i = 0; i < s.len; ++i) {
        const int row = layout.row_begin(s.seq) + s.position(i);
        int& previous = owner[row];
        require(previous < 0, at(rank, row), what, " position ", s.position(i), " of sequence ",
                s.seq, " is owned by rank ", previous, " and by rank ", rank,
                "; every row must be owned exactly once");
        previous = rank;
      }
    }
  }
  for (int s = 0; s < layout.batch(); ++s) {
    check_interrupt(layout.padded_len(s));
    for (int pos = 0; pos < layout.padded_len(s); ++pos)
      require(owner[layout.row_begin(s) + pos] >= 0, at(-1, layout.row_begin(s) + pos), what,
              " position ", pos, " of sequence ", s,
              " is owned by no rank; every row, padding too, must be owned exactly once");
  }
}

}  // namespace ringside
