// Whole passes of ranks in several processes against those of virtual ranks, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "reference/execute/carry.h"
#include "reference/schedule/run/run_schedule.h"
#include "reference/schedule/run/virtual_ranks.h"
#include "reference/sockets/test_processes.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Processes;
using testing::Random;

struct RankResult {
  RankOutput output;
  RankGradients gradients;

  std::vector<const std::vector<double>*> all() const {
    return {&output.out.data,   &output.lse.data,   &output.max_logit, &gradients.dq.data,
            &gradients.dk.data, &gradients.dv.data, &gradients.dsink};
  }
};

struct ShardedCase {
  testing::RandomCase c;
  Plan plan;
  PerRank q, k, v, dout;

  explicit ShardedCase(Random& random)
      : c(random, testing::random_problem(random)), plan(testing::random_plan(random, c.problem)) {
    const auto q_shards = home_shards(plan, Operand::q), k_shards = home_shards(plan, Operand::kv);
    q = shard(plan.problem.layout_q, q_shards, c.q);
    k = shard(plan.problem.layout_k, k_shards, c.k);
    v = shard(plan.problem.layout_k, k_shards, c.v);
    dout = shard(plan.problem.layout_q, q_shards, c.dout);
  }
  RankResult run(int rank, Communicator& communicator) const {
    const RankInputs inputs{q[rank], k[rank], v[rank], c.options};
    RankResult result;
    const Schedule forward = make_schedule(plan, rank, Pass::forward);
    const Schedule backward = make_schedule(plan, rank, Pass::backward);
    result.output = attention_of_rank(plan, forward, inputs, communicator);
    result.gradients =
        attention_backward_of_rank(plan, backward, inputs, dout[rank], result.output, communicator);
    return result;
  }
};

std::vector<std::vector<int>> random_hosts(Random& random, int cp_size) {
  std::vector<std::vector<int>> hosted(1);
  for (int rank = 0; rank < cp_size; ++rank) {
    if (!hosted.back().empty() && random.coin()) hosted.emplace_back();
    hosted.back().push_back(rank);
  }
  return hosted;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

TEST(SocketRanks, GiveTheBitsOfVirtualRanksHoweverTheyAreHosted) {
  Random random(67);
  for (int i = 0; i < 40; ++i) {
    const ShardedCase sharded(random);
    const int cp_size = sharded.plan.cp_size();
    std::vector<RankResult> want(cp_size), got(cp_size);
    VirtualRanks ranks(cp_size);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < cp_size; ++rank)
      threads.emplace_back([&, rank] { want[rank] = sharded.run(rank, ranks.of_rank(rank)); });
    for (std::thread& thread : threads) thread.join();
    Processes processes(random_hosts(random, cp_size));
    processes.run([&](int rank, Communicator& mine) { got[rank] = sharded.run(rank, mine); });
    for (int rank = 0; rank < cp_size; ++rank)
      for (size_t x = 0; x < want[rank].all().size(); ++x)
        ASSERT_TRUE(same_bits(*want[rank].all()[x], *got[rank].all()[x])) << rank << " " << x;
  }
}

}  // namespace
}  // namespace ringside
