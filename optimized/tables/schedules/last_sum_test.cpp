// A rank's backward pass, played on the host twice: with all sums where they stand, and with the
// last ones left until the end.
#include "optimized/tables/schedules/last_sum.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "optimized/tables/move_tables.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

// What lies in each area, a number a cell; what tiles and peers bring is drawn.
class PlayedSums {
 public:
  PlayedSums(const Schedule& schedule, const std::set<int>& left_out) : s_(schedule) {
    for (int i = 0; i < static_cast<int>(s_.operations.size()); ++i)
      if (!left_out.contains(i)) run(s_.operations[i], static_cast<unsigned>(i));
  }

  std::vector<double> home_sums() { return cells(s_.home_key_sums); }
  std::vector<double> with(const LastSum& last) {
    std::vector<double> sums = home_sums(), sum(sums.size(), 0.0);
    const auto add_up = [&] {
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += std::exchange(sum[i], 0.0);
    };
    for (const LastSum::Term& term : last.terms) {
      if (term.begins) add_up();
      add(term.operation, term.row_of, sum);
    }
    add_up();
    return sums;
  }

 private:
  static double a_number(Random& drawn) {  // sums of such depend on their order
    return drawn.integer(1, 1000) / 7.0;
  }
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
  void add(int operation, const std::vector<int32_t>& row_of, std::vector<double>& sums) {
    const std::vector<double> from = cells(s_.operations[operation].from.buffer);
    const int heads = s_.buffers[s_.home_key_sums].heads.size();
    for (size_t row = 0; row < row_of.size(); ++row)
      for (int head = 0; head < heads && row_of[row] != kNobody; ++head)
        sums[row * heads + head] += from[int64_t{row_of[row]} * heads + head];
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
      for_each(message.block, [&](double& x) { x = a_number(drawn); });
    if (op.kind == OperationKind::clear) for_each(op.to, [](double& x) { x = 0; });
    if (op.kind == OperationKind::compute)
      for (const int sums : {op.query_sums, op.key_sums})
        for_each(whole(sums), [&](double& x) { x += a_number(drawn); });
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

std::set<int> operations_of(const LastSum& last) {
  std::set<int> all(last.without.begin(), last.without.end());
  for (const LastSum::Term& term : last.terms) all.insert(term.operation);
  return all;
}

TEST(LastSum, CanWaitUntilTheEnd) {
  Random random(31);
  std::map<std::string, int> found;  // by transport
  for (int number = 0; number < testing::cases(400); ++number) {
    const Problem problem = testing::random_problem(random);
    const Plan plan = testing::random_plan(random, problem);
    const KeepKv keep = random.coin() ? KeepKv::yes : KeepKv::no;
    for (const Schedule& schedule : make_schedules(plan, Pass::backward, keep)) {
      const LastSum last = last_sum(schedule);
      if (last.terms.empty()) continue;
      ASSERT_EQ(PlayedSums(schedule, operations_of(last)).with(last),
                PlayedSums(schedule, {}).home_sums())
          << "case " << number << ": " << plan.partition << " over " << plan.comm << ", rank "
          << schedule.rank << " of " << plan.cp_size();
      ++found[plan.comm];
      ASSERT_TRUE(last.terms[0].begins);
    }
  }
  for (const char* comm : {"p2p", "all_gather", "fetch"}) EXPECT_GT(found[comm], 0) << comm;
}

std::vector<int> operations_in_order(const LastSum& last) {
  std::vector<int> all;
  for (const LastSum::Term& term : last.terms) all.push_back(term.operation);
  return all;
}

std::vector<int> sums_in_order(const LastSum& last) {  // their first terms
  std::vector<int> all;
  for (const LastSum::Term& term : last.terms)
    if (term.begins) all.push_back(term.operation);
  return all;
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
  ASSERT_EQ(operations_in_order(last), std::vector{1});
  EXPECT_EQ(last.terms[0].row_of, (std::vector<int32_t>{kNobody, 0, 1, kNobody}));
}

TEST(LastSum, IsNoneWhereSomethingBehindItTouchesEitherBuffer) {
  Schedule s = two_rows_added();
  s.operations.push_back(s.operations[0]);  // other rows come where these lie
  EXPECT_TRUE(last_sum(s).terms.empty());
  s.operations[2].receives.clear();
  EXPECT_EQ(operations_in_order(last_sum(s)), std::vector{1});
  s.operations[2].sends = {{1, {0, 0, 4, {0, 2}}}};  // sums are asked for
  EXPECT_TRUE(last_sum(s).terms.empty());
  s.operations[2].sends.clear();
  s.operations[2].kind = OperationKind::clear, s.operations[2].to = {0, 0, 4, {0, 2}};
  EXPECT_TRUE(last_sum(s).terms.empty());
}

// The same, where rows of three peers arrive, are added up elsewhere, and that is added at home.
Schedule a_sum_of_three() {
  Schedule s = two_rows_added();
  s.buffers[1].area = 1;
  for (int peer = 1; peer <= 3; ++peer) {
    s.buffers.push_back({Payload::key_gradients, 2, {0, 2}, 1 + peer, 0});
    s.areas.push_back({Payload::key_gradients, 4});
  }
  const Operation home = s.operations[1];
  s.operations.assign(2, s.operations[0]);
  s.operations[0] = {.kind = OperationKind::clear, .to = {1, 0, 2, {0, 2}}};
  s.operations[1].receives.clear();
  for (int peer = 1; peer <= 3; ++peer) {
    const Block landing{1 + peer, 0, 2, {0, 2}};
    s.operations[1].receives.push_back({peer, landing});
    s.operations.push_back({.kind = OperationKind::combine, .from = landing});
    s.operations.back().to = {1, 0, 2, {0, 2}};
  }
  s.operations[3].runs = {{0, 1, 1}};  // row 0 of the second peer's to row 1 of the sum
  s.operations.push_back(home);
  return s;
}

TEST(LastSum, IsOfTermsThatAreReadWhereTheyLie) {
  const LastSum last = last_sum(a_sum_of_three());
  EXPECT_EQ(last.without, (std::vector{5, 0}));
  EXPECT_EQ(operations_in_order(last), (std::vector{2, 3, 4}));
  EXPECT_EQ(sums_in_order(last), (std::vector{2}));
  EXPECT_EQ(last.terms[0].row_of, (std::vector<int32_t>{kNobody, 0, 1, kNobody}));
  EXPECT_EQ(last.terms[1].row_of, (std::vector<int32_t>{kNobody, kNobody, 0, kNobody}));
}

// Every rank's keys are seen by those behind it: in one exchange their gradients are added at home,
// in two those of the second are added up first.
TEST(LastSum, OfAFetchIsOfSumsOrOfTerms) {
  const Problem problem{PackedLayout({0, 64}), PackedLayout({0, 64}), Mask::causal(), 2, 2};
  for (const int stages : {1, 2}) {
    int sums = 0, terms = 0;  // ranks that have several
    const Plan plan = build_plan(problem, place(problem, "contiguous", 4), {"fetch", 0, stages});
    for (const Schedule& schedule : make_schedules(plan, Pass::backward)) {
      const LastSum last = last_sum(schedule);
      EXPECT_EQ(PlayedSums(schedule, operations_of(last)).with(last),
                PlayedSums(schedule, {}).home_sums());
      const auto begin = std::ranges::count_if(last.terms, &LastSum::Term::begins);
      sums += begin > 1, terms += begin < std::ssize(last.terms);
    }
    EXPECT_GT(sums, 0) << stages;
    EXPECT_EQ(terms > 0, stages > 1);
  }
}

// Two peers' rows are added at home one after the other, and between them those of a sum.
TEST(LastSum, IsOfSeveralOneAfterTheOther) {
  Schedule s = a_sum_of_three();
  Operation direct = s.operations[2];
  direct.to = {0, 0, 2, {0, 2}};
  s.operations[2] = direct;
  direct.from = s.operations[4].from;
  s.operations[4] = s.operations[5];
  s.operations[5] = direct;
  const LastSum last = last_sum(s);
  EXPECT_EQ(operations_in_order(last), (std::vector{2, 3, 5}));
  EXPECT_EQ(sums_in_order(last), (std::vector{2, 3, 5}));
  EXPECT_EQ(last.without, (std::vector{4, 0}));
  EXPECT_EQ(last.terms[0].row_of, (std::vector<int32_t>{0, 1, kNobody, kNobody}));
  s.operations.insert(s.operations.begin() + 4, {.kind = OperationKind::exchange});
  s.operations[4].sends = {{1, {0, 0, 4, {0, 2}}}};  // sums are asked for between them
  EXPECT_EQ(operations_in_order(last_sum(s)), (std::vector{3, 6}));
}

TEST(LastSum, HasNoTermsThatSomethingElseTouches) {
  Schedule s = a_sum_of_three();
  s.operations[0].to.rows = 1;  // some of it was there before
  EXPECT_TRUE(last_sum(s).without.empty());
  EXPECT_EQ(operations_in_order(last_sum(s)), (std::vector{5, 2, 3, 4}));
  EXPECT_EQ(sums_in_order(last_sum(s)), std::vector{5});

  s = a_sum_of_three();  // the sum is asked for behind it
  s.operations.push_back({.kind = OperationKind::exchange, .sends = {{1, {1, 0, 2, {0, 2}}}}});
  EXPECT_EQ(operations_in_order(last_sum(s)), std::vector{5});
  EXPECT_TRUE(last_sum(s).without.empty());

  s = a_sum_of_three();  // other rows come where those of the second peer lie
  s.operations.insert(s.operations.begin() + 5, s.operations[1]);
  s.operations[5].receives = {{2, {3, 0, 2, {0, 2}}}};
  EXPECT_EQ(operations_in_order(last_sum(s)), (std::vector{6, 4}));
  EXPECT_TRUE(last_sum(s).without.empty());
}

TEST(LastSum, HasSoManyTermsAtMost) {
  Schedule s = a_sum_of_three();
  const Operation first = s.operations[2];
  s.operations.insert(s.operations.begin() + 2, kMostTermsAtEnd, first);
  const LastSum last = last_sum(s);
  EXPECT_EQ(last.terms.size(), kMostTermsAtEnd);
  EXPECT_EQ(last.terms[0].operation, std::ssize(s.operations) - 1);
  EXPECT_EQ(last.terms.back().operation, std::ssize(s.operations) - 2);
  EXPECT_TRUE(last.without.empty());
}

TEST(LastSum, IsNoneOfSomeHeads) {
  Schedule s = two_rows_added();
  s.buffers[1].heads = s.operations[0].receives[0].block.heads = {0, 1};
  s.operations[1].from.heads = s.operations[1].to.heads = {0, 1};
  EXPECT_TRUE(last_sum(s).terms.empty());
}

TEST(LastSum, IsNoneWhereNothingComesBack) {
  const Problem problem{{{0, 8}, {0, 8}}, {{0, 8}, {0, 8}}, Mask::causal()};
  const Plan plan = build_plan(problem, place(problem, "contiguous", 1), {"p2p"});
  EXPECT_TRUE(last_sum(make_schedule(plan, 0, Pass::backward)).terms.empty());
}

}  // namespace
}  // namespace ringside
