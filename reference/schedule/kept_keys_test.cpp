// Keys and values that a forward pass keeps: proved, the same bits, no bytes twice.
#include "reference/schedule/kept_keys.h"

#include <gtest/gtest.h>

#include "reference/schedule/schedule_cost.h"
#include "reference/schedule/verify/verify_schedule.h"
#include "reference/test_support/test_errors.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::expect_error;
using testing::Random;

Plan ring(int cp_size, Mask mask = Mask::full(), const std::string& comm = "p2p") {
  const PackedLayout layout({0, 2 * cp_size});
  const Problem problem{layout, layout, mask, 2, 2};
  return build_plan(problem, place(problem, "contiguous", cp_size), {comm});
}

int64_t messages_of_keys(const std::vector<Schedule>& schedules) {
  int64_t count = 0;
  for (const Schedule& s : schedules)
    for (const Operation& op : s.operations)
      for (const ScheduledMessage& m : op.sends)
        count += s.buffers[m.block.buffer].payload == Payload::keys;
  return count;
}

TEST(KeptKeys, AreProvedAndNotSentAgain) {
  Random random(83);
  int64_t saved = 0;
  for (int i = 0; i < testing::cases(200); ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    const auto forward = make_schedules(plan, Pass::forward, KeepKv::yes);
    const auto backward = make_schedules(plan, Pass::backward, KeepKv::yes);
    verify_schedules(plan, forward);
    verify_schedules(plan, backward);
    verify_kept(forward, backward);
    ASSERT_EQ(messages_of_keys(backward), 0);
    ASSERT_EQ(messages_of_keys(forward), messages_of_keys(make_schedules(plan, Pass::forward)));
    saved += messages_of_keys(make_schedules(plan, Pass::backward));
  }
  EXPECT_GT(saved, testing::cases(1000));
}

TEST(KeptKeys, AreThoseThatCameAndThatSomeTileReads) {
  const Plan full = ring(4), causal = ring(4, Mask::causal());
  for (int rank = 0; rank < 4; ++rank)
    for (int step = 0; step < 4; ++step) {
      const auto& steps = full.steps_of_rank[rank];
      EXPECT_EQ(keeps_keys(full, rank, steps, step), step > 0);
      const auto& of_causal = causal.steps_of_rank[rank];
      EXPECT_EQ(keeps_keys(causal, rank, of_causal, step), step > 0 && step <= rank);
    }
}

// Six chunks of four rows: rank 0 has the first and the last, and sees none of rank 2's keys, which
// pass through it.
TEST(KeptKeys, AreNotThoseThatPassThrough) {
  const PackedLayout layout({0, 24});
  const Problem problem{layout, layout, Mask::sliding_window(1, 0), 1, 1};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 3), {"p2p"});
  const auto& steps = plan.steps_of_rank[0];
  ASSERT_EQ(plan.rows(steps[1].kv), 8);
  ASSERT_TRUE(plan.tiles(steps[1]).empty());
  EXPECT_FALSE(keeps_keys(plan, 0, steps, 1));
  EXPECT_TRUE(keeps_keys(plan, 0, steps, 2));
}

TEST(KeptKeys, OfARingCostTheirMemoryAndNoBytes) {
  const Plan plan = ring(2);
  const ElementSizes sizes{3, 5, 2};
  const int64_t cells = 2 * 2, keys = cells * (3 + 5) * 2, gradients = cells * (3 + 5) * 4;
  const PassCost forward = pass_cost(plan, Pass::forward, sizes, KeepKv::yes);
  const PassCost fetches = pass_cost(plan, Pass::backward, sizes);
  const PassCost backward = pass_cost(plan, Pass::backward, sizes, KeepKv::yes);
  EXPECT_EQ(forward.kept_bytes, (std::vector<int64_t>{keys, keys}));
  EXPECT_EQ(backward.kept_bytes, forward.kept_bytes);
  EXPECT_EQ(fetches.kept_bytes, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(forward.workspace_bytes, pass_cost(plan, Pass::forward, sizes).workspace_bytes);
  EXPECT_EQ(backward.bytes_sent(0, 1), gradients);
  EXPECT_EQ(backward.workspace_bytes[0], fetches.workspace_bytes[0] - keys);
}

// So the last keys of a ring of four land while tiles read the second ones, whose place they take.
TEST(KeptKeys, FreeTheirPlaceBeforeTilesReadThem) {
  const Plan plan = ring(4);
  for (const KeepKv keep : {KeepKv::no, KeepKv::yes}) {
    const Schedule forward = make_schedule(plan, 0, Pass::forward, keep);
    const auto& operations = forward.operations;
    const auto last = std::ranges::find_if(operations, [](const Operation& op) {
      return op.kind == OperationKind::exchange && op.step == 3;
    });
    ASSERT_EQ(last->after.size(), 1u);
    const Operation& before = operations[last->after[0]];
    EXPECT_EQ(before.step, 1);
    EXPECT_EQ(before.kind, keep == KeepKv::yes ? OperationKind::copy : OperationKind::compute);
  }
}

// What changes one of the schedules of rank 1 of a ring of four is refused: the keys of its last
// step come where those of its second lay.
template <typename Change>
void expect_refused(Change change, std::initializer_list<const char*> words) {
  const Plan plan = ring(4);
  auto forward = make_schedules(plan, Pass::forward, KeepKv::yes);
  auto backward = make_schedules(plan, Pass::backward, KeepKv::yes);
  change(forward[1].operations, backward[1].operations);
  expect_error<PlanError>([&] { verify_kept(forward, backward); }, words);
}

using Operations = std::vector<Operation>;

std::vector<size_t> copies(const Operations& operations) {
  std::vector<size_t> found;
  for (size_t i = 0; i < operations.size(); ++i)
    if (operations[i].kind == OperationKind::copy) found.push_back(i);
  return found;
}

std::vector<size_t> computes(const Operations& operations) {
  std::vector<size_t> found;
  for (size_t i = 0; i < operations.size(); ++i)
    if (operations[i].kind == OperationKind::compute) found.push_back(i);
  return found;
}

TEST(VerifyKept, WhatIsNotKeptAsItIsReadIsNamed) {
  expect_refused([](Operations& f, Operations&) { f.erase(f.begin() + copies(f)[0]); },
                 {"rank 1", "step 1", "written 0 times"});
  expect_refused([](Operations& f, Operations&) { f.push_back(f[copies(f)[1]]); },
                 {"rank 1", "step 2", "written 2 times"});
  expect_refused(
      [](Operations& f, Operations&) { std::swap(f[copies(f)[0]].to, f[copies(f)[1]].to); },
      {"rank 1", "keeps other keys than its tiles read"});
  expect_refused(
      [](Operations& f, Operations&) { f[copies(f)[2]].from.buffer = f[copies(f)[1]].from.buffer; },
      {"rank 1", "step 3", "keeps the keys of another step than its tiles read"});
  expect_refused([](Operations& f, Operations&) { f[copies(f)[0]].from.rows -= 1; },
                 {"rank 1", "keeps other keys than its tiles read"});
  expect_refused(
      [](Operations&, Operations& b) { std::swap(b[computes(b)[0]].keys, b[computes(b)[1]].keys); },
      {"rank 1", "keeps other keys than its tiles read"});
  expect_refused(
      [](Operations& f, Operations&) {
        std::rotate(f.begin(), f.begin() + copies(f)[0], f.begin() + copies(f)[0] + 1);
      },
      {"rank 1", "before they have come"});
  expect_refused(
      [](Operations& f, Operations&) {
        const auto copy = f.begin() + copies(f)[0];
        std::rotate(copy, copy + 1, f.end());
      },
      {"rank 1", "step 1", "or after others came"});
}

TEST(VerifyKept, ABackwardPassThatWritesThereIsNamed) {
  expect_refused(
      [](Operations&, Operations& b) { b[computes(b)[0]].key_sums = b[computes(b)[0]].keys; },
      {"rank 1", "writes to what the forward pass kept"});
}

TEST(VerifyKept, OtherAreasAreNamed) {
  const Plan plan = ring(3);
  const auto forward = make_schedules(plan, Pass::forward);
  const auto backward = make_schedules(plan, Pass::backward, KeepKv::yes);
  expect_error<PlanError>([&] { verify_kept(forward, backward); },
                          {"rank 0 keeps 0 areas and reads 2"});
}

}  // namespace
}  // namespace ringside
