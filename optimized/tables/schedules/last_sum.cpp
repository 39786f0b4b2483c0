#include "optimized/tables/schedules/last_sum.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "optimized/tables/move_tables.h"

namespace ringside {
namespace {

class LastSums {
 public:
  explicit LastSums(const Schedule& schedule) : s_(schedule), operations_(schedule.operations) {}

  LastSum find() {
    const int home = s_.home_key_sums;
    for (int i = size(); i-- > 0 && room() > 0;) {
      const Operation& op = operations_[i];
      if (!touches(op, home)) continue;
      if (!adds_to(op, home) || !is_of_all_heads(op) || !stays(op.from, i)) break;
      add_sum(i);
    }
    std::ranges::reverse(last_.terms);
    return std::move(last_);
  }

 private:
  using Terms = std::vector<LastSum::Term>;
  int size() const { return static_cast<int>(operations_.size()); }
  size_t room() const { return kMostTermsAtEnd - last_.terms.size(); }

  // From the last term to the first.
  void add_sum(int index) {
    const Operation& op = operations_[index];
    std::vector<int32_t> row_of = rows_of(op, rows(op.to.buffer));
    int cleared = -1;
    Terms terms;
    if (!is_read_on(op.from, index)) terms = terms_of(op.from, index, row_of, cleared);
    if (cleared >= 0)
      last_.without.insert(last_.without.end(), {index, cleared});
    else
      terms.push_back({index, true, std::move(row_of)});
    terms.back().begins = true;
    std::ranges::move(terms, std::back_inserter(last_.terms));
  }

  // What is added to a sum, as far as nothing else touches that, and from where it is 0.
  Terms terms_of(const Block& sum, int index, const std::vector<int32_t>& row_of,
                 int& cleared) const {
    Terms terms;
    for (int i = index; i-- > 0;) {
      const Operation& op = operations_[i];
      if (!touches(op, sum.buffer)) continue;
      if (op.kind == OperationKind::clear && op.to.buffer == sum.buffer && is_whole(op.to) &&
          !terms.empty())
        cleared = i;
      const bool is_term = adds_to(op, sum.buffer) && is_of_all_heads(op) && stays(op.from, i) &&
                           !overlap(op.from.buffer, sum.buffer) && terms.size() + 1 < room();
      if (!is_term) break;
      terms.push_back({i, false, by_home(row_of, rows_of(op, rows(sum.buffer)))});
    }
    return terms;
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
  LastSum last_;
};

}  // namespace

LastSum last_sum(const Schedule& schedule) { return LastSums(schedule).find(); }

}  // namespace ringside
