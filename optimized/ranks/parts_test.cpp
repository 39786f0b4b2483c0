// Which rows of sums are cleared before a pass adds to them: those that no launch stores first.
#include "optimized/ranks/parts.h"

#include <gtest/gtest.h>

#include "optimized/program/test_device_array.h"

namespace ringside {
namespace {

using Rows = std::vector<Interval>;

// Of 512 tokens over two ranks the first has the first and the last 128, the second those between.
std::vector<Rows> cleared_key_gradients(int rank, ElementType type) {
  const Problem problem{{{0, 512}, {0, 512}}, {{0, 512}, {0, 512}}, Mask::causal()};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 2), {"p2p"});
  const RankParts parts(plan, {{{0, 1}}, 0}, {128, 128, type}, KeepKv::no);
  const Schedule& schedule = parts.backward.pass.hosted()[rank];
  std::vector<Rows> found;
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    const Operation& op = schedule.operations[i];
    if (op.kind != OperationKind::clear) continue;
    const Rows& cleared = parts.backward.operations[rank][i].cleared;
    if (schedule.buffers[op.to.buffer].payload == Payload::key_gradients)
      found.push_back(cleared);
    else
      EXPECT_EQ(cleared, (Rows{{0, 256}})) << "every launch adds to dq";
  }
  return found;
}

TEST(Clears, AreOfRowsThatNobodyStoresFirst) {
  if (!testing::has_device()) GTEST_SKIP() << "no CUDA device";
  // The last queries see all keys of the other rank; its queries do not see the last keys.
  EXPECT_EQ(cleared_key_gradients(0, ElementType::bfloat16), (std::vector<Rows>{{}, {}}));
  EXPECT_EQ(cleared_key_gradients(1, ElementType::bfloat16), (std::vector<Rows>{{{128, 256}}, {}}));
}

TEST(Clears, AreOfAllRowsWhereAFamilyDoesNotStartAnew) {
  if (!testing::has_device()) GTEST_SKIP() << "no CUDA device";
  EXPECT_EQ(cleared_key_gradients(0, ElementType::float32),
            (std::vector<Rows>{{{0, 256}}, {{0, 256}}}));
}

}  // namespace
}  // namespace ringside
