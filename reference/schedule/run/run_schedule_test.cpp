// Each rank by its own schedule, in memory of its own, against the executor that walks all ranks in
// step: forward to the bit, backward but for the order in which gradients of one key are summed.
#include "reference/schedule/run/run_schedule.h"

#include <gtest/gtest.h>

#include <thread>

#include "reference/execute/carry.h"
#include "reference/schedule/run/test_any_order.h"
#include "reference/schedule/run/virtual_ranks.h"
#include "reference/support/errors.h"

namespace ringside {
namespace {

using testing::Random;

struct Local {  // home rows of every rank
  PerRank q, k, v, dout, out, lse;

  Local(const Plan& plan, const testing::RandomCase& c, const AttentionOutput& saved) {
    const auto q_shards = home_shards(plan, Operand::q), k_shards = home_shards(plan, Operand::kv);
    const PackedLayout &layout_q = plan.problem.layout_q, &layout_k = plan.problem.layout_k;
    q = shard(layout_q, q_shards, c.q);
    k = shard(layout_k, k_shards, c.k);
    v = shard(layout_k, k_shards, c.v);
    dout = shard(layout_q, q_shards, c.dout);
    out = shard(layout_q, q_shards, saved.out);
    lse = shard(layout_q, q_shards, saved.lse);
  }
  RankInputs inputs(int rank, const AttentionOptions& options) const {
    return {q[rank], k[rank], v[rank], options};
  }
};

template <typename Run>  // run(rank) on a thread each
void on_threads(int cp_size, Run run) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < cp_size; ++rank) threads.emplace_back([&run, rank] { run(rank); });
  for (std::thread& thread : threads) thread.join();
}

void expect_equal(const Tensor& want, const Tensor& got, double tolerance, const char* what) {
  ASSERT_EQ(want.data.size(), got.data.size()) << what;
  for (size_t i = 0; i < want.data.size(); ++i) {
    if (want.data[i] == got.data[i] || (want.data[i] != want.data[i] && got.data[i] != got.data[i]))
      continue;
    ASSERT_LE(std::abs(want.data[i] - got.data[i]), tolerance) << what << " " << i;
  }
}

Tensor home(const Plan& plan, Operand operand, const PerRank& x) {
  const bool is_q = operand == Operand::q;
  return unshard(is_q ? plan.problem.layout_q : plan.problem.layout_k, home_shards(plan, operand),
                 x);
}

double largest(const Tensor& x) {
  double most = 0;
  for (const double value : x.data) most = std::max(most, std::abs(value));
  return most;
}

void expect_gradients(const Plan& plan, const AttentionGradients& want, const PerRank& dq,
                      const PerRank& dk, const PerRank& dv) {
  const auto near = [](const Tensor& x) { return 1e-14 * 64 * std::max(1.0, largest(x)); };
  expect_equal(want.dq, home(plan, Operand::q, dq), near(want.dq), "dq");
  expect_equal(want.dk, home(plan, Operand::kv, dk), near(want.dk), "dk");
  expect_equal(want.dv, home(plan, Operand::kv, dv), near(want.dv), "dv");
}

TEST(RunSchedule, OnThreadsEqualsAllRanksInStep) {
  Random random(53);
  for (int i = 0; i < testing::cases(60); ++i) {
    const testing::RandomCase c(random, testing::random_problem(random));
    const Plan plan = testing::random_plan(random, c.problem);
    const AttentionOutput want = attention(plan, c.inputs());
    const Local local(plan, c, want);
    const auto forward = make_schedules(plan, Pass::forward);
    const auto backward = make_schedules(plan, Pass::backward);
    VirtualRanks ranks(plan.cp_size());
    std::vector<RankOutput> outputs(plan.cp_size());
    std::vector<RankGradients> gradients(plan.cp_size());
    on_threads(plan.cp_size(), [&](int rank) {
      const RankInputs inputs = local.inputs(rank, c.options);
      outputs[rank] = attention_of_rank(plan, forward[rank], inputs, ranks.of_rank(rank));
      gradients[rank] = attention_backward_of_rank(plan, backward[rank], inputs, local.dout[rank],
                                                   outputs[rank], ranks.of_rank(rank));
    });
    PerRank out, lse, dq, dk, dv;
    std::vector<double> dsink(c.options.sinks.size(), 0.0), max_logit = outputs[0].max_logit;
    for (int rank = 0; rank < plan.cp_size(); ++rank) {
      out.push_back(outputs[rank].out), lse.push_back(outputs[rank].lse);
      dq.push_back(gradients[rank].dq);
      dk.push_back(gradients[rank].dk), dv.push_back(gradients[rank].dv);
      for (size_t h = 0; h < dsink.size(); ++h) dsink[h] += gradients[rank].dsink[h];
      for (size_t h = 0; h < max_logit.size(); ++h)
        max_logit[h] = std::max(max_logit[h], outputs[rank].max_logit[h]);
    }
    expect_equal(want.out, home(plan, Operand::q, out), 0, "out");
    expect_equal(want.lse, home(plan, Operand::q, lse), 0, "lse");
    ASSERT_EQ(want.max_logit, max_logit);
    const AttentionGradients expected = attention_backward(plan, c.inputs(), c.dout, want);
    expect_gradients(plan, expected, dq, dk, dv);
    for (size_t h = 0; h < dsink.size(); ++h)
      ASSERT_NEAR(expected.dsink[h], dsink[h], 1e-12 * std::max(1.0, std::abs(dsink[h])));
  }
}

std::vector<RankRun> runs_of(const Plan& plan, const std::vector<Schedule>& schedules,
                             const testing::RandomCase& c, const Local& local,
                             const PerRank& delta) {
  std::vector<RankRun> runs;
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    std::vector<TensorView> queries{local.q[rank]};
    if (schedules[0].pass == Pass::backward)
      queries.insert(queries.end(), {local.dout[rank], local.lse[rank], delta[rank]});
    runs.emplace_back(plan, schedules[rank], c.options, queries,
                      std::vector<TensorView>{local.k[rank], local.v[rank]});
  }
  return runs;
}

std::vector<std::vector<Tensor>> results(const std::vector<Schedule>& schedules,
                                         const std::vector<RankRun>& runs) {
  std::vector<std::vector<Tensor>> all;
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    all.push_back(runs[rank].arrays(schedules[rank].home_query_sums));
    if (schedules[rank].home_key_sums >= 0)
      for (Tensor& x : runs[rank].arrays(schedules[rank].home_key_sums))
        all.back().push_back(std::move(x));
  }
  return all;
}

TEST(RunSchedule, AnyOrderThatStreamsAndWaitsAllowGivesTheSameBits) {
  Random random(59);
  for (int i = 0; i < testing::cases(40); ++i) {
    const testing::RandomCase c(random, testing::random_problem(random));
    const Plan plan = testing::random_plan(random, c.problem);
    const Local local(plan, c, attention(plan, c.inputs()));
    PerRank delta;  // any numbers: what is compared is the order
    for (const Tensor& lse : local.lse) {
      Tensor& d = delta.emplace_back(lse.rows, lse.heads, 1, 0.0);
      for (double& value : d.data) value = random.normal();
    }
    for (const auto& [pass, keep] :
         {std::pair(Pass::forward, KeepKv::no), std::pair(Pass::backward, KeepKv::no),
          std::pair(Pass::forward, KeepKv::yes)}) {
      const auto schedules = make_schedules(plan, pass, keep);
      std::vector<std::vector<Tensor>> first;
      for (int order = 0; order < 3; ++order) {
        auto runs = runs_of(plan, schedules, c, local, delta);
        ASSERT_TRUE(testing::AnyOrder(schedules, runs, random).run());
        auto got = results(schedules, runs);
        for (size_t rank = 0; rank < runs.size(); ++rank) {
          const std::vector<double> kept = runs[rank].kept();
          Tensor& all = got[rank].emplace_back(static_cast<int>(kept.size()), 1, 1, 0.0);
          std::ranges::copy(kept, all.data.begin());
        }
        if (order == 0) first = got;
        for (size_t rank = 0; rank < got.size(); ++rank)
          for (size_t x = 0; x < got[rank].size(); ++x)
            expect_equal(first[rank][x], got[rank][x], 0, "another order");
      }
    }
  }
}

struct Passes {  // of all ranks
  std::vector<RankOutput> outputs;
  std::vector<RankGradients> gradients;
};

Passes both_passes(const Plan& plan, const testing::RandomCase& c, const Local& local,
                   KeepKv keep) {
  const auto forward = make_schedules(plan, Pass::forward, keep);
  const auto backward = make_schedules(plan, Pass::backward, keep);
  VirtualRanks ranks(plan.cp_size());
  Passes all{std::vector<RankOutput>(plan.cp_size()), std::vector<RankGradients>(plan.cp_size())};
  on_threads(plan.cp_size(), [&](int rank) {
    const RankInputs inputs = local.inputs(rank, c.options);
    RankOutput& saved = all.outputs[rank];
    saved = attention_of_rank(plan, forward[rank], inputs, ranks.of_rank(rank));
    all.gradients[rank] = attention_backward_of_rank(plan, backward[rank], inputs, local.dout[rank],
                                                     saved, ranks.of_rank(rank));
  });
  return all;
}

TEST(RunSchedule, KeptKeysGiveTheSameBitsAsThoseFetchedAnew) {
  Random random(67);
  size_t kept = 0;
  for (int i = 0; i < testing::cases(60); ++i) {
    const testing::RandomCase c(random, testing::random_problem(random));
    const Plan plan = testing::random_plan(random, c.problem);
    const Local local(plan, c, attention(plan, c.inputs()));
    const Passes want = both_passes(plan, c, local, KeepKv::no);
    const Passes got = both_passes(plan, c, local, KeepKv::yes);
    for (int rank = 0; rank < plan.cp_size(); ++rank) {
      expect_equal(want.outputs[rank].out, got.outputs[rank].out, 0, "out");
      expect_equal(want.outputs[rank].lse, got.outputs[rank].lse, 0, "lse");
      expect_equal(want.gradients[rank].dq, got.gradients[rank].dq, 0, "dq");
      expect_equal(want.gradients[rank].dk, got.gradients[rank].dk, 0, "dk");
      expect_equal(want.gradients[rank].dv, got.gradients[rank].dv, 0, "dv");
      ASSERT_TRUE(want.outputs[rank].kept.empty());
      size_t cells = 0;
      for (const Area& area : make_schedule(plan, rank, Pass::backward, KeepKv::yes).areas)
        cells += area.kept ? static_cast<size_t>(area.cells) : 0;
      ASSERT_EQ(got.outputs[rank].kept.size(), cells * (c.k.dim + c.v.dim));
      kept += got.outputs[rank].kept.size();
    }
  }
  EXPECT_GT(kept, size_t{1} * testing::cases(1000));
}

TEST(RunSchedule, KeptKeysOfAnotherSizeAreRefused) {
  const PackedLayout layout({0, 4});
  const Problem problem{layout, layout, Mask::full(), 1, 1};
  const Plan plan = build_plan(problem, place(problem, "contiguous", 2), {"p2p"});
  const Schedule backward = make_schedule(plan, 0, Pass::backward, KeepKv::yes);
  const Tensor q(2, 1, 1, 0.0), of_row(2, 1, 1, 0.0);
  const AttentionOptions options;
  RankRun run(plan, backward, options, {q, q, of_row, of_row}, {q, q});
  const std::vector<double> kept(4, 0.0), less(3, 0.0), more(5, 0.0);
  EXPECT_NO_THROW(run.set_kept(kept));
  EXPECT_THROW(run.set_kept(less), InvalidArgument);
  EXPECT_THROW(run.set_kept(more), InvalidArgument);
}

TEST(VirtualRanks, AnErrorOfOneRankEndsTheOthersWithItsReason) {
  VirtualRanks ranks(2);
  std::string heard;
  on_threads(2, [&](int rank) {
    Communicator& mine = ranks.of_rank(rank);
    if (rank == 0) return mine.abort("rank 0 has had enough");
    double x = 0;
    mine.begin(0);
    mine.receive(0, std::as_writable_bytes(std::span(&x, 1)));
    try {
      mine.end();
    } catch (const Aborted& error) {
      heard = error.what();
    }
  });
  EXPECT_EQ(heard, "rank 0 has had enough");
}

TEST(VirtualRanks, TheNthSendMeetsTheNthReceive) {
  VirtualRanks ranks(2);
  double got[2] = {0, 0};
  on_threads(2, [&](int rank) {
    const double sent[2] = {1, 2};
    Communicator& mine = ranks.of_rank(rank);
    mine.begin(0);
    for (int i : {0, 1})
      if (rank == 0)
        mine.send(1, std::as_bytes(std::span(&sent[i], 1)));
      else
        mine.receive(0, std::as_writable_bytes(std::span(&got[i], 1)));
    mine.end();
  });
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[1], 2);
}

}  // namespace
}  // namespace ringside
