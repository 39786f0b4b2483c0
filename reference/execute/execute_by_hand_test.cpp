// The executor interprets any plan, not only those that transports make: queries that travel, rows
// in any order, results that come home over many hops. And what did not arrive is poison.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference/execute/execute.h"
#include "reference/plan/tiles.h"
#include "reference/test_support/test_random_case.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

using testing::Random;
using testing::RandomCase;

void expect_equal(const std::vector<double>& want, const Tensor& got, const char* what) {
  ASSERT_EQ(want.size(), got.data.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_LE(std::abs(want[i] - got.data[i]), 1e-12 * std::max(1.0, std::abs(want[i])))
        << what << "[" << i << "]";
}

void expect_definition(const Plan& plan, const RandomCase& c) {
  ASSERT_NO_THROW(verify(plan));
  const auto want = oracle::forward(c.definition(), c.arrays());
  const auto got = attention(plan, c.inputs());
  expect_equal(want.out, got.out, "out");
  const auto want_grads = oracle::backward(c.definition(), c.arrays(), c.dout.data.data(), want);
  const auto got_grads = attention_backward(plan, c.inputs(), c.dout, got);
  expect_equal(want_grads.dq, got_grads.dq, "dq");
  expect_equal(want_grads.dk, got_grads.dk, "dk");
  expect_equal(want_grads.dv, got_grads.dv, "dv");
}

// Keys stay and queries travel: after `step` hops rank r holds the queries of rank r-step.
Plan ring_of_queries(const Problem& problem, const Placement& placement) {
  Plan plan = build_plan(problem, placement, {"all_gather"});
  const int n = plan.cp_size();
  for (int rank = 0; rank < n; ++rank) plan.steps_of_rank[rank].clear();
  plan.tile_lists.resize(1);
  const auto rows = [&](int owner) { return num_rows(placement.q[owner]); };
  const Range heads{0, problem.num_heads};
  for (int step = 0; step < n; ++step)
    for (int rank = 0; rank < n; ++rank) {
      const int owner = (rank - step + n) % n;
      Step made;
      made.q = plan.home_q[owner];
      made.kv = plan.home_kv[rank];
      made.tiles = add_tiles(plan, made.q.shard, made.kv.shard);
      if (step > 0) {
        const int sent = (owner + 1) % n;
        add_message(made.before.sends, {(rank + 1) % n, Operand::q, 0, rows(sent), heads});
        add_message(made.before.receives, {(rank + n - 1) % n, Operand::q, 0, rows(owner), heads});
        if (!made.before.empty()) made.before.kind = ExchangeKind::ring_shift;
      }
      plan.steps_of_rank[rank].push_back(made);
    }
  return plan;
}

TEST(Executor, LetsQueriesTravelInsteadOfKeys) {
  Random random(107);
  for (int i = 0; i < 60; ++i) {
    const Problem problem = testing::random_problem(random);
    const auto& partition = testing::random_partition(random);
    const Placement placement = place(problem, partition.name, random.integer(1, 5));
    expect_definition(ring_of_queries(problem, placement), RandomCase(random, problem));
    if (HasFatalFailure()) return;
  }
}

TEST(Executor, TakesRowsInAnyOrderFromAnyOwner) {  // single rows dealt at random
  Random random(109);
  for (int i = 0; i < 60; ++i) {
    const Problem problem = testing::random_problem(random);
    const int n = random.integer(1, 4);
    const auto deal = [&](const PackedLayout& layout) {
      std::vector<std::pair<int, int>> rows;
      for (int s = 0; s < layout.batch(); ++s)
        for (int pos = 0; pos < layout.padded_len(s); ++pos)
          rows.insert(rows.begin() + random.integer(0, static_cast<int>(rows.size())), {s, pos});
      std::vector<Shard> shards(n);
      for (const auto& [s, pos] : rows) append(shards[random.integer(0, n - 1)], s, pos, 1, 1);
      return shards;
    };
    const Placement placement{deal(problem.layout_q), deal(problem.layout_k)};
    const Transport comm{random.choice<std::string>({"p2p", "all_gather", "a2a"})};
    expect_definition(build_plan(problem, placement, comm), RandomCase(random, problem));
    if (HasFatalFailure()) return;
  }
}

// Two ranks, one sequence of 8 tokens, everybody sees all.
Plan small_ring() {
  const PackedLayout layout({0, 8});
  const Problem problem{layout, layout, Mask::full(), 2, 1};
  return build_plan(problem, place(problem, "contiguous", 2), {"p2p"});
}

TEST(Executor, ShowsPoisonWhereAMessageIsMissing) {
  Random random(113);
  Plan plan = small_ring();
  const RandomCase c(random, plan.problem);
  plan.steps_of_rank[0][1].before.sends.clear();
  plan.steps_of_rank[1][1].before.receives.clear();
  const auto got = attention(plan, c.inputs());
  for (int row = 0; row < 8; ++row)
    for (int head = 0; head < 2; ++head) {
      EXPECT_EQ(std::isnan(got.out.at(row, head)[0]), row >= 4) << row;
      EXPECT_EQ(std::isnan(*got.lse.at(row, head)), row >= 4) << row;
    }
}

TEST(Executor, BackwardUsesTheMergedResult) {  // another out and lse give other gradients
  Random random(127);
  const Plan plan = small_ring();
  const RandomCase c(random, plan.problem);
  auto saved = attention(plan, c.inputs());
  const auto g = attention_backward(plan, c.inputs(), c.dout, saved);
  for (double& lse : saved.lse.data) lse += std::log(2.0);  // as if there were as many keys again
  const auto half = attention_backward(plan, c.inputs(), c.dout, saved);
  for (size_t i = 0; i < g.dv.data.size(); ++i)
    EXPECT_NEAR(half.dv.data[i], g.dv.data[i] / 2, 1e-13);
}

TEST(Executor, PaddingStaysExactlyZeroWhateverLiesThere) {
  Random random(131);
  for (int i = 0; i < 60; ++i) {
    const Problem problem = testing::random_problem(random);
    const Plan plan = testing::random_plan(random, problem);
    const RandomCase c(random, problem);  // NaN in all padding
    const auto got = attention(plan, c.inputs());
    const auto g = attention_backward(plan, c.inputs(), c.dout, got);
    const auto expect_zero = [](const PackedLayout& layout, const Tensor& x, double zero) {
      for (int s = 0; s < layout.batch(); ++s)
        for (int row = layout.row_begin(s) + layout.len(s); row < layout.row_begin(s + 1); ++row)
          for (int j = 0; j < x.heads * x.dim; ++j) ASSERT_EQ(x.at(row, 0)[j], zero);
    };
    expect_zero(problem.layout_q, got.out, 0);
    expect_zero(problem.layout_q, got.lse, kNegInf);
    expect_zero(problem.layout_q, g.dq, 0);
    expect_zero(problem.layout_k, g.dk, 0);
    expect_zero(problem.layout_k, g.dv, 0);
    if (HasFatalFailure()) return;
  }
}

// Enough work for threads, and more query rows than one of them takes at a time.
TEST(Executor, LargeStepsRunOnAllCores) {
  Random random(137);
  const PackedLayout layout({0, 700, 720}, {0, 705, 730});
  const Problem problem{layout, layout, Mask::causal(), 2, 1};
  for (const Transport& comm : {Transport{"p2p"}, Transport{"a2a"}})
    expect_definition(build_plan(problem, place(problem, "zigzag", 2), comm),
                      RandomCase(random, problem));
}

}  // namespace
}  // namespace ringside
