#include "optimized/tables/schedules/last_sum.h"

#include <algorithm>

#include "optimized/tables/move_tables.h"

namespace ringside {
namespace {

class LastSums {
 public:
  explicit LastSums(const Schedule& schedule) : s_(schedule), operations_(schedule.operations) {}

  LastSum find() const {
    const int home = s_.home_key_sums;
    for (int i = size(); i-- > 0;) {
      const Operation& op = operations_[i];
      if (adds_to(op, home)) return is_of_all_heads(op) && stays(op.from, i) ? made(i) : LastSum{};
      if (touches(op, home)) return {};
    }
    return {};
  }

 private:
  int size() const { return static_cast<int>(operations_.size()); }

  LastSum made(int index) const {
    const Operation& op = operations_[index];
    LastSum last;
    last.operation = index;
    last.from_of = rows_of(op, rows(op.to.buffer));
    if (!is_read_on(op.from, index)) find_terms(last);
    return last;
  }

  // Sums of what is added, from the last to the first, as far as nothing else touches it.
  void find_terms(LastSum& last) const {
    const Block& sum = operations_[last.operation].from;
    for (int i = last.operation; i-- > 0;) {
      const Operation& op = operations_[i];
      if (!touches(op, sum.buffer)) continue;
      if (op.kind == OperationKind::clear && op.to.buffer == sum.buffer && is_whole(op.to))
        last.cleared = i;
      const bool is_term = adds_to(op, sum.buffer) && is_of_all_heads(op) && stays(op.from, i) &&
                           !overlap(op.from.buffer, sum.buffer) &&
                           last.terms.size() < kMostTermsAtEnd;
      if (!is_term) break;
      last.terms.push_back({i, by_home(last.from_of, rows_of(op, rows(sum.buffer)))});
    }
    std::ranges::reverse(last.terms);
    if (last.terms.empty()) last.cleared = -1;
  }

  static std::vector<int32_t> by_home(const std::vector<int32_t>& from_of,
                                      const std::vector<int32_t>& term_of) {
    std::vector<int32_t> found;
    for (const int32_t row : from_of) found.push_back(row == kNobody ? kNobody : term_of[row]);
    return found;
  }
  // Of each of so many rows, the one that the operation adds to it.
  static std::vector<int32_t> rows_of(const Operation& op, int rows) {
    std::vector<int32_t> found(static_cast<size_t>(rows), kNobody);
    for (const RowRun& run : op.row_runs())
      for (int row = 0; row < run.rows; ++row)
        found[run.to + row * run.to_step] = run.from + row * run.from_step;
    return found;
  }

  int rows(int buffer) const { return s_.buffers[buffer].rows; }
  bool is_whole(const Block& block) const {
    const ScheduledBuffer& b = s_.buffers[block.buffer];
    return block.row == 0 && block.rows == b.rows && block.heads == b.heads;
  }
  bool is_of_all_heads(const Operation& op) const {
    const Range& from = s_.buffers[op.from.buffer].heads;
    const Range& to = s_.buffers[op.to.buffer].heads;
    return from == to && op.from.heads == from && op.to.heads == to;
  }
  static bool adds_to(const Operation& op, int buffer) {
    return op.kind == OperationKind::combine && op.to.buffer == buffer;
  }

  // Whether an operation has to do with the memory of a buffer.
  bool overlap(int buffer, int other) const {
    if (buffer < 0) return false;
    const ScheduledBuffer &a = s_.buffers[buffer], &b = s_.buffers[other];
    return a.area == b.area && a.payload == b.payload;
  }
  bool writes(const Operation& op, int buffer) const {
    const auto lands = [&](const ScheduledMessage& m) { return overlap(m.block.buffer, buffer); };
    return std::ranges::any_of(op.receives, lands) || overlap(op.to.buffer, buffer) ||
           overlap(op.query_sums, buffer) || overlap(op.key_sums, buffer);
  }
  bool reads(const Operation& op, int buffer) const {
    const auto leaves = [&](const ScheduledMessage& m) { return overlap(m.block.buffer, buffer); };
    return std::ranges::any_of(op.sends, leaves) || overlap(op.from.buffer, buffer);
  }
  bool touches(const Operation& op, int buffer) const {
    return writes(op, buffer) || reads(op, buffer);
  }
  bool stays(const Block& block, int index) const {  // whether nobody behind it writes there
    return std::none_of(operations_.begin() + index + 1, operations_.end(),
                        [&](const Operation& op) { return writes(op, block.buffer); });
  }
  bool is_read_on(const Block& block, int index) const {
    return std::any_of(operations_.begin() + index + 1, operations_.end(),
                       [&](const Operation& op) { return reads(op, block.buffer); });
  }

  const Schedule& s_;
  const std::vector<Operation>& operations_;
};

}  // namespace

LastSum last_sum(const Schedule& schedule) { return LastSums(schedule).find(); }

}  // namespace ringside
