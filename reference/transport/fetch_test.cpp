// Fetch: only the keys that a rank's tiles see, stage by stage, worked out by hand and counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "reference/plan/tiles.h"
#include "reference/test_support/test_random_case.h"
#include "reference/transport/transport.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

using Messages = std::vector<Message>;
constexpr ExchangeKind kKind = ExchangeKind::all_to_all;

Problem sequence_of(int tokens, const Mask& mask) {
  const PackedLayout layout({0, tokens});
  return {layout, layout, mask, 1, 1};
}

Plan fetch_plan(const Problem& problem, int cp_size, std::optional<int> stages = {},
                const std::string& partition = "contiguous") {
  return build_plan(problem, place(problem, partition, cp_size), {"fetch", 0, stages});
}

Message keys(int peer, int row, int rows) { return {peer, Operand::kv, row, rows, {0, 1}}; }

const Exchange& before(const Plan& plan, int rank, int step) {
  return plan.steps_of_rank[rank][step].before;
}

TEST(Fetch, BringsTheKeysThatAreSeenStageByStage) {  // rank 1 sees rank 0's, rank 2 both's
  const Plan plan = fetch_plan(sequence_of(6, Mask::causal()), 3);
  ASSERT_EQ(plan.num_steps(), 3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(before(plan, rank, 0).empty());
    EXPECT_EQ(plan.steps_of_rank[rank][0].kv, plan.home_kv[rank]);
  }
  // Home stays for the second exchange by a message to oneself.
  EXPECT_EQ(before(plan, 0, 1), (Exchange{kKind, {keys(0, 0, 2), keys(2, 0, 2)}, {keys(0, 0, 2)}}));
  EXPECT_EQ(before(plan, 1, 1), (Exchange{kKind, {keys(1, 0, 2)}, {keys(1, 0, 2)}}));
  EXPECT_EQ(before(plan, 2, 1), (Exchange{kKind, {keys(2, 0, 2)}, {keys(2, 0, 2), keys(0, 2, 2)}}));
  EXPECT_EQ(before(plan, 0, 2), (Exchange{kKind, {keys(1, 0, 2)}, {}}));
  EXPECT_EQ(before(plan, 1, 2), (Exchange{kKind, {keys(2, 0, 2)}, {keys(0, 0, 2)}}));
  EXPECT_EQ(before(plan, 2, 2), (Exchange{kKind, {}, {keys(1, 0, 2)}}));
  EXPECT_EQ(plan.shard(plan.steps_of_rank[2][1].kv), (Shard{{0, 4, 1, 0, 2}, {0, 0, 1, 2, 2}}));
  EXPECT_EQ(plan.steps_of_rank[0][2].kv, Buffer{}) << "keys that are gone are not resident";
  EXPECT_TRUE(plan.tiles(plan.steps_of_rank[1][1]).empty());
  EXPECT_EQ(plan.tiles(plan.steps_of_rank[1][2]).size(), 1u);
  const Segment queries{0, 4, 1, 0, 2}, keys{0, 0, 1, 2, 2};
  EXPECT_EQ(plan.tiles(plan.steps_of_rank[2][1]), (std::vector<Tile>{{queries, keys}}));
}

TEST(Fetch, OneStageKeepsNoHome) {
  const Plan plan = fetch_plan(sequence_of(6, Mask::full()), 3, 1);
  ASSERT_EQ(plan.num_steps(), 2);
  EXPECT_EQ(before(plan, 1, 1),
            (Exchange{kKind, {keys(0, 0, 2), keys(2, 0, 2)}, {keys(2, 0, 2), keys(0, 2, 2)}}));
}

TEST(Fetch, AWindowBringsTheRowsInIt) {
  const Plan plan = fetch_plan(sequence_of(12, Mask::sliding_window(2, 0)), 3);
  ASSERT_EQ(plan.num_steps(), 2) << "each rank asks one other: one exchange";
  EXPECT_EQ(before(plan, 1, 1).receives, (Messages{keys(0, 0, 2)}));
  EXPECT_EQ(before(plan, 0, 1).sends, (Messages{keys(1, 2, 2)}));
  EXPECT_EQ(plan.shard(plan.steps_of_rank[1][1].kv), (Shard{{0, 2, 1, 0, 2}}));
}

TEST(Fetch, OneselfOnlyNeedsNoExchange) {
  const Plan plan = fetch_plan(sequence_of(8, Mask::sliding_window(0, 0)), 4);
  EXPECT_EQ(plan.num_steps(), 1);
  for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(before(plan, rank, 0).empty());
}

TEST(Fetch, DealsOwnersToStagesEvenly) {
  for (const int stages : {1, 2, 3, 7, 9}) {
    const Plan plan = fetch_plan(sequence_of(8 * 5, Mask::full()), 8, stages);
    ASSERT_EQ(plan.num_steps(), 1 + std::min(stages, 7));
    for (int rank = 0; rank < 8; ++rank)
      for (int step = 1; step < plan.num_steps(); ++step) {
        int owners = 0;
        for (const Message& m : before(plan, rank, step).receives) owners += m.peer != rank;
        EXPECT_GE(owners, 7 / stages);
        EXPECT_LE(owners, 7 / stages + (7 % stages != 0));
      }
  }
}

TEST(Fetch, MovesWhatIsSeenOnceAndNothingElse) {
  testing::Random random(41);
  for (int i = 0; i < 200; ++i) {
    const Problem problem = testing::random_problem(random);
    const int n = random.integer(1, 6);
    const Plan plan =
        fetch_plan(problem, n, random.integer(1, 4), testing::random_partition(random).name);
    for (int rank = 0; rank < n; ++rank)
      for (int owner = 0; owner < n; ++owner) {
        std::vector<Interval> sent;
        for (int step = 0; step < plan.num_steps(); ++step)
          for (const Message& m : before(plan, owner, step).sends)
            if (m.peer == rank && rank != owner) sent.push_back({m.row, m.row + m.rows});
        if (rank == owner) continue;
        ASSERT_EQ(sent, rows_seen(problem, plan.shard(plan.home_q[rank]),
                                  plan.shard(plan.home_kv[owner])));
      }
  }
}

TEST(Fetch, SendsFewMessagesWhereRunsAreShort) {  // every second chunk of 5 rows is seen
  const std::vector<int32_t> lengths(400, 40);
  const PackedLayout layout = PackedLayout::from_lengths(lengths);
  const Problem problem{layout, layout, Mask::causal(), 1, 1};
  const Plan plan = fetch_plan(problem, 4, 1, "zigzag");
  const Messages& receives = before(plan, 3, 1).receives;
  ASSERT_EQ(receives.size(), 3u) << "400 runs from each of the three, and few rows between them";
  for (const Message& m : receives) EXPECT_EQ(m.rows, 400 * 10 - 5) << "the last chunk is not seen";
  verify(plan);
  const Plan windows = fetch_plan(problem, 4, 1, "contiguous");
  EXPECT_EQ(before(windows, 3, 1).receives.size(), 3u);
}

TEST(Fetch, LeavesLongGapsOut) {  // 2 documents of 8 chunks of 128 rows: 4 runs in 512 rows
  const PackedLayout layout({0, 1024, 2048});
  const Plan plan = fetch_plan({layout, layout, Mask::causal(), 1, 1}, 4, 1, "zigzag");
  EXPECT_EQ(before(plan, 3, 1).receives,
            (Messages{keys(0, 0, 128), keys(0, 384, 128), keys(1, 128, 128), keys(1, 512, 128),
                      keys(2, 256, 128), keys(2, 640, 128)}))
      << "and chunks that meet lie together";
  EXPECT_EQ(plan.shard(plan.steps_of_rank[3][1].kv),
            (Shard{{0, 0, 1, 0, 384}, {1, 0, 1, 384, 384}}));
}

}  // namespace
}  // namespace ringside
