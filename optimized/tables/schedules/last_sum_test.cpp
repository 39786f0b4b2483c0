// A rank's backward pass, played on the host twice: with all sums where they stand, and with the
// last one left until the end.
#include "optimized/tables/schedules/last_sum.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "optimized/tables/move_tables.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

// What lies in each area, a number a cell; what tiles and peers bring is drawn.
class PlayedSums {
 public:
  PlayedSums(const Schedule& schedule, int left_out) : s_(schedule) {
    for (int i = 0; i < static_cast<int>(s_.operations.size()); ++i)
      if (i != left_out) run(s_.operations[i], static_cast<unsigned>(i));
  }

  std::vector<double> home_sums() { return cells(s_.home_key_sums); }
  std::vector<double> with(const LastSum& last) {
    std::vector<double> sums = home_sums();
    const Operation& op = s_.operations[last.operation];
    const std::vector<double> from = cells(op.from.buffer);
    const int heads = s_.buffers[s_.home_key_sums].heads.size();
    for (size_t row = 0; row < last.from_of.size(); ++row)
      for (int head = 0; head < heads && last.from_of[row] != kNobody; ++head)
        sums[row * heads + head] += from[int64_t{last.from_of[row]} * heads + head];
    return sums;
  }

 private:
  double& cell(int buffer, int row, int head) {
    const ScheduledBuffer& b = s_.buffers[buffer];
    const int64_t place = b.cell + int64_t{row} * b.heads.size() + head - b.heads.begin;
    return memory_[{b.area, static_cast<int>(b.payload)}][place];
  }
  template <typename Visit>
  void for_each(const Block& block, Visit visit) {
    for (int row = block.row; row < block.row + block.rows; ++row)
      for (int head = block.heads.begin; head < block.heads.end; ++head)
        visit(cell(block.buffer, row, head));
  }
  Block whole(int buffer) const {
    return {buffer, 0, s_.buffers[buffer].rows, s_.buffers[buffer].heads};
  }
  std::vector<double> cells(int buffer) {
    std::vector<double> found;
    for_each(whole(buffer), [&](double x) { found.push_back(x); });
    return found;
  }

  void run(const Operation& op, unsigned seed) {
    Random drawn(seed);
    for (const ScheduledMessage& message : op.receives)
      for_each(message.block, [&](double& x) { x = drawn.integer(1, 1000); });
    if (op.kind == OperationKind::clear) for_each(op.to, [](double& x) { x = 0; });
    if (op.kind == OperationKind::compute)
      for (const int sums : {op.query_sums, op.key_sums})
        for_each(whole(sums), [&](double& x) { x += drawn.integer(1, 1000); });
    if (op.kind != OperationKind::copy && op.kind != OperationKind::combine) return;
    for (const RowRun& run : op.row_runs())
      for (int i = 0; i < run.rows; ++i)
        for (int head = 0; head < op.from.heads.size(); ++head) {
          double& to = cell(op.to.buffer, run.to + i * run.to_step, op.to.heads.begin + head);
          const double x =
              cell(op.from.buffer, run.from + i * run.from_step, op.from.heads.begin + head);
          to = op.kind == OperationKind::copy ? x : to + x;
        }
  }

  const Schedule& s_;
  std::map<std::pair<int, int>, std::map<int64_t, double>> memory_;  // by area and payload
};

TEST(LastSum, CanWaitUntilTheEnd) {
  Random random(31);
  std::map<std::string, int> found;  // by transport
  for (int number = 0; number < testing::cases(400); ++number) {
    const Problem problem = testing::random_problem(random);
    const Plan plan = testing::random_plan(random, problem);
    const KeepKv keep = random.coin() ? KeepKv::yes : KeepKv::no;
    for (const Schedule& schedule : make_schedules(plan, Pass::backward, keep)) {
      const LastSum last = last_sum(schedule);
      if (last.operation < 0) continue;
      ASSERT_EQ(PlayedSums(schedule, last.operation).with(last),
                PlayedSums(schedule, -1).home_sums())
          << "case " << number << ": " << plan.partition << " over " << plan.comm << ", rank "
          << schedule.rank << " of " << plan.cp_size();
      ++found[plan.comm];
    }
  }
  for (const char* comm : {"p2p", "all_gather", "fetch"}) EXPECT_GT(found[comm], 0) << comm;
}

// Sums at home of four rows and two heads, what a peer sends, and that added to rows 1 and 2.
Schedule two_rows_added() {
  Schedule s;
  s.pass = Pass::backward;
  s.buffers = {{Payload::key_gradients, 4, {0, 2}, 0, 0},
               {Payload::key_gradients, 2, {0, 2}, 1, 0}};
  s.areas = {{Payload::key_gradients, 8}, {Payload::key_gradients, 4}};
  s.home_key_sums = 0;
  s.operations.resize(2);
  s.operations[0].kind = OperationKind::exchange;
  s.operations[0].receives = {{1, {1, 0, 2, {0, 2}}}};
  s.operations[1].kind = OperationKind::combine;
  s.operations[1].from = {1, 0, 2, {0, 2}}, s.operations[1].to = {0, 1, 2, {0, 2}};
  return s;
}

TEST(LastSum, IsOfTheRowsThatArrive) {
  const LastSum last = last_sum(two_rows_added());
  EXPECT_EQ(last.operation, 1);
  EXPECT_EQ(last.from_of, (std::vector<int32_t>{kNobody, 0, 1, kNobody}));
}

TEST(LastSum, IsNoneWhereSomethingBehindItTouchesEitherBuffer) {
  Schedule s = two_rows_added();
  s.operations.push_back(s.operations[0]);  // other rows come where these lie
  EXPECT_EQ(last_sum(s).operation, -1);
  s.operations[2].receives.clear();
  EXPECT_EQ(last_sum(s).operation, 1);
  s.operations[2].sends = {{1, {0, 0, 4, {0, 2}}}};  // sums are asked for
  EXPECT_EQ(last_sum(s).operation, -1);
  s.operations[2].sends.clear();
  s.operations[2].kind = OperationKind::clear, s.operations[2].to = {0, 0, 4, {0, 2}};
  EXPECT_EQ(last_sum(s).operation, -1);
}

TEST(LastSum, IsNoneOfSomeHeads) {
  Schedule s = two_rows_added();
  s.buffers[1].heads = s.operations[0].receives[0].block.heads = {0, 1};
  s.operations[1].from.heads = s.operations[1].to.heads = {0, 1};
  EXPECT_EQ(last_sum(s).operation, -1);
}

TEST(LastSum, IsNoneWhereNothingComesBack) {
  const Problem problem{{{0, 8}, {0, 8}}, {{0, 8}, {0, 8}}, Mask::causal()};
  const Plan plan = build_plan(problem, place(problem, "contiguous", 1), {"p2p"});
  EXPECT_EQ(last_sum(make_schedule(plan, 0, Pass::backward)).operation, -1);
}

}  // namespace
}  // namespace ringside
