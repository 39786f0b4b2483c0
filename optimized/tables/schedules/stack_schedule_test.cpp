// Schedules of stacks played on the host, cell by cell: what each rank's tiles find, and what comes
// home of what they leave.
#include "optimized/tables/schedules/stack_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

using StackedToken = std::pair<int, int>;  // global row, head

class PlayedStacks {
 public:
  PlayedStacks(const Plan& plan, Pass pass, int gap)
      : plan_(plan),
        stacks_(plan, gap),
        made_(stack_schedule(stacks_, pass, AccumulatorLayout::rows)) {
    for (const Area& area : made_.schedule.areas) cells_.emplace_back(area.cells, NAN);
    bring_home(Operand::q, made_.schedule.home_queries);
    bring_home(Operand::kv, made_.schedule.home_keys);
  }

  void play() {
    for (size_t i = 0; i < made_.operations.size(); ++i) {
      const Operation& op = made_.schedule.operations[i];
      const StackedOperation& stacked = made_.operations[i];
      if (op.kind == OperationKind::clear)
        for (int cell = 0; cell < op.to.rows; ++cell) at(op.to.buffer, cell) = 0;
      if (op.kind == OperationKind::copy || op.kind == OperationKind::combine) move(op, stacked);
      for (const StackedRank& rank : stacked.ranks) compute(op, rank, stacked.starts);
    }
  }

  void expect_all_computed() const {
    for (int rank = 0; rank < plan_.cp_size(); ++rank)
      for (int step = 0; step < plan_.num_steps(); ++step)
        ASSERT_EQ(computed_.count({rank, step}),
                  plan_.tiles(plan_.steps_of_rank[rank][step]).empty() ? 0u : 1u);
  }

  // Every token's sums at home hold what the ranks left that met it.
  void expect_sums(Operand operand) {
    const Schedule& s = made_.schedule;
    const int buffer = operand == Operand::q ? s.home_query_sums : s.home_key_sums;
    const RankStack& home = stacks_.home(operand);
    const auto& homes = operand == Operand::q ? plan_.home_q : plan_.home_kv;
    auto& left = left_[operand == Operand::q ? 0 : 1];
    for (int rank = 0; rank < plan_.cp_size(); ++rank)
      for_each_token(operand, homes[rank], home.of_rank[rank].row,
                     [&](int row, StackedToken token) {
                       ASSERT_EQ(cell(buffer, row, token.second), left[token]);
                     });
  }

 private:
  double& at(int buffer, int64_t cell) {
    const ScheduledBuffer& b = made_.schedule.buffers[buffer];
    return cells_.at(b.area).at(b.cell + cell);
  }
  double& cell(int buffer, int row, int head) {
    const Range heads = made_.schedule.buffers[buffer].heads;
    return at(buffer, int64_t{row} * heads.size() + head - heads.begin);
  }
  static double code(StackedToken token) { return 1000.0 * (token.first + 1) + token.second; }

  // visit(row of the matrix, token)
  template <typename Visit>
  void for_each_token(Operand operand, const Buffer& buffer, int first_row, Visit visit) const {
    const bool is_q = operand == Operand::q;
    const PackedLayout& layout = is_q ? plan_.problem.layout_q : plan_.problem.layout_k;
    for (const Segment& s : plan_.shard(buffer))
      for (int i = 0; i < s.len; ++i)
        for (int head = buffer.heads.begin; head < buffer.heads.end; ++head)
          visit(first_row + s.row + i, StackedToken{layout.row_begin(s.seq) + s.position(i), head});
  }

  void bring_home(Operand operand, int buffer) {
    const RankStack& home = stacks_.home(operand);
    const auto& homes = operand == Operand::q ? plan_.home_q : plan_.home_kv;
    for (int rank = 0; rank < plan_.cp_size(); ++rank)
      for_each_token(
          operand, homes[rank], home.of_rank[rank].row,
          [&](int row, StackedToken token) { cell(buffer, row, token.second) = code(token); });
  }

  void move(const Operation& op, const StackedOperation& stacked) {
    std::set<int64_t> written;  // by one launch: once each
    for (const CellBlock& block : stacked.blocks)
      for (int row = 0; row < block.rows; ++row)
        for (int head = 0; head < block.heads; ++head) {
          const int64_t from = block.from + int64_t{row} * block.from_pitch + head;
          const int64_t to = block.to + int64_t{row} * block.to_pitch + head;
          const double value = at(op.from.buffer, from);
          double& target = at(op.to.buffer, to);
          target = op.kind == OperationKind::combine ? target + value : value;
          ASSERT_TRUE(written.insert(to).second);
        }
  }

  void compute(const Operation& op, const StackedRank& of, bool starts) {
    ASSERT_TRUE(computed_.insert({of.rank, op.step}).second);
    const Step& step = plan_.steps_of_rank[of.rank][op.step];
    const auto meet = [&](Operand operand, const Buffer& resident, int buffer, int sums, int row) {
      ASSERT_EQ(made_.schedule.buffers[buffer].heads, resident.heads);
      for_each_token(operand, resident, row, [&](int r, StackedToken token) {
        ASSERT_EQ(cell(buffer, r, token.second), code(token));
        if (sums < 0) return;
        double& sum = cell(sums, r, token.second);
        ASSERT_FALSE(std::isnan(sum));
        if (starts && is_of_items(operand)) {
          ASSERT_EQ(sum, 0);
        }
        sum += ++value_;
        left_[operand == Operand::q ? 0 : 1][token] += value_;
      });
    };
    meet(Operand::q, step.q, op.queries, op.query_sums, of.q_row);
    meet(Operand::kv, step.kv, op.keys, op.key_sums, of.k_row);
  }
  bool is_of_items(Operand operand) const {
    return (made_.schedule.pass == Pass::forward) == (operand == Operand::q);
  }

  const Plan& plan_;
  Stacks stacks_;
  StackSchedule made_;
  std::vector<std::vector<double>> cells_;  // by area
  std::set<std::pair<int, int>> computed_;
  std::map<StackedToken, double> left_[2];
  double value_ = 0;
};

TEST(StackSchedule, BringsWhatTilesReadAndTakesHomeWhatTheyLeave) {
  Random random(81);
  for (int i = 0; i < 120; ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    SCOPED_TRACE("case " + std::to_string(i) + ": " + plan.partition + " over " + plan.comm);
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      PlayedStacks played(plan, pass, random.integer(0, 3));
      played.play();
      played.expect_all_computed();
      played.expect_sums(Operand::q);
      if (pass == Pass::backward) played.expect_sums(Operand::kv);
      if (HasFatalFailure()) return;
    }
  }
}

// However many ranks there are: one operation where each of them has one.
TEST(StackSchedule, HasAsManyOperationsAsARankHasSteps) {
  const PackedLayout layout({0, 64});
  const Problem problem{layout, layout, Mask::causal()};
  for (const int cp : {1, 2, 8}) {
    const Plan plan = build_plan(problem, place(problem, "zigzag", cp), {"p2p"});
    const Stacks stacks(plan, 0);
    std::map<OperationKind, int> forward, backward;
    for (const Operation& op :
         stack_schedule(stacks, Pass::forward, AccumulatorLayout::rows).schedule.operations)
      ++forward[op.kind];
    for (const Operation& op :
         stack_schedule(stacks, Pass::backward, AccumulatorLayout::rows).schedule.operations)
      ++backward[op.kind];
    EXPECT_EQ(forward[OperationKind::compute], cp);
    EXPECT_EQ(forward[OperationKind::copy], cp - 1);  // of keys and values
    EXPECT_EQ(forward[OperationKind::clear], 1);
    EXPECT_EQ(backward[OperationKind::compute], cp);
    EXPECT_EQ(backward[OperationKind::copy], cp - 1);
    EXPECT_EQ(backward[OperationKind::combine], cp - 1);
    EXPECT_EQ(backward[OperationKind::clear], cp + 1);
  }
}

}  // namespace
}  // namespace ringside
