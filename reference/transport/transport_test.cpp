// Small plans worked out by hand: who sends what to whom, and who computes what.
#include "reference/transport/transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "reference/rows/row_places.h"
#include "reference/test_support/test_errors.h"
#include "reference/test_support/test_random_case.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

using Messages = std::vector<Message>;
using Ranks = std::vector<int>;

Problem one_sequence(int tokens, const Mask& mask, int heads = 1, int kv_heads = 1) {
  const PackedLayout layout({0, tokens});
  return {layout, layout, mask, heads, kv_heads};
}

Plan make_plan(const Problem& problem, int cp_size, const Transport& comm,
               const std::string& partition = "contiguous") {
  return build_plan(problem, place(problem, partition, cp_size), comm);
}

Message kv(int peer, int row, int rows, Range heads = {0, 1}) {
  return {peer, Operand::kv, row, rows, heads};
}
Message q(int peer, int row, int rows, Range heads) { return {peer, Operand::q, row, rows, heads}; }

const Exchange& exchange(const Plan& plan, int rank, int step) {
  return plan.steps_of_rank[rank][step].before;
}

bool no_messages(const Plan& plan) {
  for (const auto& steps : plan.steps_of_rank)
    for (const Step& step : steps)
      if (!step.before.empty() || step.before.kind != ExchangeKind::none) return false;
  return true;
}

Ranks ranks_with_tiles(const Plan& plan, int step) {
  Ranks ranks;
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    if (!plan.tiles(plan.steps_of_rank[rank][step]).empty()) ranks.push_back(rank);
  return ranks;
}

Ranks senders(const Plan& plan, int step) {
  Ranks ranks;
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    if (!exchange(plan, rank, step).sends.empty()) ranks.push_back(rank);
  return ranks;
}

// The same but for the name.
void expect_same_plan(Plan a, const Plan& b) {
  a.comm = b.comm;
  EXPECT_TRUE(a == b);
}

TEST(Ring, FullAttentionPassesEverythingOnEveryHop) {
  const Plan plan = make_plan(one_sequence(6, Mask::full()), 3, {"p2p"});
  ASSERT_EQ(plan.num_steps(), 3);
  for (int rank = 0; rank < 3; ++rank) {
    const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
    EXPECT_TRUE(exchange(plan, rank, 0).empty());
    for (const int step : {1, 2}) {
      EXPECT_EQ(exchange(plan, rank, step),
                (Exchange{ExchangeKind::ring_shift, {kv(next, 0, 2)}, {kv(previous, 0, 2)}}));
      EXPECT_EQ(plan.steps_of_rank[rank][step].kv, plan.home_kv[(rank - step + 3) % 3]);
      EXPECT_EQ(plan.steps_of_rank[rank][step].q, plan.home_q[rank]);
    }
  }
}

TEST(Ring, CausalContiguousDropsHopsThatNobodyNeeds) {
  const Plan plan = make_plan(one_sequence(6, Mask::causal()), 3, {"p2p"});
  ASSERT_EQ(plan.num_steps(), 3);
  // Step 1: keys of rank 0 and 1 move on; nobody after rank 2 sees its keys.
  EXPECT_EQ(exchange(plan, 0, 1), (Exchange{ExchangeKind::ring_shift, {kv(1, 0, 2)}, {}}));
  EXPECT_EQ(exchange(plan, 1, 1),
            (Exchange{ExchangeKind::ring_shift, {kv(2, 0, 2)}, {kv(0, 0, 2)}}));
  EXPECT_EQ(exchange(plan, 2, 1), (Exchange{ExchangeKind::ring_shift, {}, {kv(1, 0, 2)}}));
  // Step 2: only rank 0's keys go on, from rank 1 to rank 2.
  EXPECT_EQ(exchange(plan, 0, 2), Exchange{});
  EXPECT_EQ(exchange(plan, 1, 2), (Exchange{ExchangeKind::ring_shift, {kv(2, 0, 2)}, {}}));
  EXPECT_EQ(exchange(plan, 2, 2), (Exchange{ExchangeKind::ring_shift, {}, {kv(1, 0, 2)}}));
  EXPECT_EQ(ranks_with_tiles(plan, 0), (Ranks{0, 1, 2}));
  EXPECT_EQ(ranks_with_tiles(plan, 1), (Ranks{1, 2}));
  EXPECT_EQ(ranks_with_tiles(plan, 2), (Ranks{2}));
  EXPECT_EQ(plan.steps_of_rank[0][1].kv, Buffer{}) << "keys that are gone are not resident";
  const Segment queries{0, 4, 1, 0, 2}, keys{0, 0, 1, 0, 2};
  EXPECT_EQ(plan.tiles(plan.steps_of_rank[2][2]), (std::vector<Tile>{{queries, keys}}));
}

TEST(Ring, AShortWindowNeedsOneHop) {
  const Plan plan = make_plan(one_sequence(8, Mask::sliding_window(1, 0)), 4, {"p2p"});
  ASSERT_EQ(plan.num_steps(), 2);
  EXPECT_EQ(senders(plan, 1), (Ranks{0, 1, 2}));
  EXPECT_EQ(ranks_with_tiles(plan, 1), (Ranks{1, 2, 3}));
}

TEST(Ring, AWindowAheadGoesAllTheWayRound) {  // the keys that follow lie with the previous rank
  const Plan plan = make_plan(one_sequence(8, Mask::sliding_window(0, 1)), 4, {"p2p"});
  ASSERT_EQ(plan.num_steps(), 4);
  EXPECT_EQ(ranks_with_tiles(plan, 3), (Ranks{0, 1, 2}));
  for (const int step : {1, 2}) {
    EXPECT_EQ(ranks_with_tiles(plan, step), Ranks{}) << "these hops only pass on";
    EXPECT_EQ(senders(plan, step).size(), 3u) << "nobody asks for rank 0's keys";
  }
}

TEST(Ring, OneselfOnlyNeedsNoHop) {
  const Plan plan = make_plan(one_sequence(8, Mask::sliding_window(0, 0)), 4, {"p2p"});
  EXPECT_EQ(plan.num_steps(), 1);
  EXPECT_TRUE(no_messages(plan));
}

TEST(Ring, ChunksOfTwoRanksAreNotLeft) {
  const Plan plan = make_plan(one_sequence(8, Mask::chunked(4)), 4, {"p2p"});
  ASSERT_EQ(plan.num_steps(), 2);
  EXPECT_EQ(senders(plan, 1), (Ranks{0, 2}));
  EXPECT_EQ(ranks_with_tiles(plan, 1), (Ranks{1, 3}));
}

TEST(Ring, ARankThatOwnsNothingNeitherSendsNorComputes) {
  const Plan plan = make_plan(one_sequence(2, Mask::full()), 3, {"p2p"});  // rank 0 owns nothing
  for (int step = 0; step < plan.num_steps(); ++step)
    EXPECT_EQ(ranks_with_tiles(plan, step).empty(), false);
  for (int rank = 0; rank < 3; ++rank)
    for (int step = 0; step < plan.num_steps(); ++step)
      for (const Message& m : exchange(plan, rank, step).sends) EXPECT_GT(m.rows, 0);
  EXPECT_TRUE(plan.tiles(plan.steps_of_rank[0][0]).empty());
}

TEST(Ring, KeysTravelOnlyAsLongAsSomebodyStillNeedsThem) {
  testing::Random random(31);
  for (int i = 0; i < 200; ++i) {
    const Problem problem = testing::random_problem(random);
    const int n = random.integer(1, 5);
    const auto& partition = testing::random_partition(random);
    const Plan plan = make_plan(problem, n, {"p2p"}, partition.name);
    for (int owner = 0; owner < n; ++owner) {
      int last_user = 0;
      for (int hop = 0; hop < plan.num_steps(); ++hop)
        if (!plan.tiles(plan.steps_of_rank[(owner + hop) % n][hop]).empty()) last_user = hop;
      const bool anything = plan.rows(plan.home_kv[owner]) > 0;
      for (int hop = 1; hop < plan.num_steps(); ++hop)
        ASSERT_EQ(!exchange(plan, (owner + hop) % n, hop).receives.empty(),
                  anything && hop <= last_user);
    }
  }
}

TEST(AllGather, EveryRankReceivesAllKeys) {
  const Plan plan = make_plan(one_sequence(5, Mask::causal()), 2, {"all_gather"});
  ASSERT_EQ(plan.num_steps(), 1);
  const Messages receives{kv(0, 0, 2), kv(1, 2, 3)};
  EXPECT_EQ(exchange(plan, 0, 0),
            (Exchange{ExchangeKind::all_gather, {kv(0, 0, 2), kv(1, 0, 2)}, receives}));
  EXPECT_EQ(exchange(plan, 1, 0),
            (Exchange{ExchangeKind::all_gather, {kv(0, 0, 3), kv(1, 0, 3)}, receives}));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(plan.rows(plan.steps_of_rank[rank][0].kv), 5);
    EXPECT_EQ(plan.steps_of_rank[rank][0].q, plan.home_q[rank]);
  }
}

TEST(AllGather, KeysGoOnFromChunkToChunk) {  // rank 0 owns positions 0 and 3, rank 1 the others
  const Plan plan = make_plan(one_sequence(4, Mask::full()), 2, {"all_gather"}, "zigzag");
  EXPECT_EQ(plan.shard(plan.steps_of_rank[0][0].kv), (Shard{{0, 0, 1, 0, 4}}));
  EXPECT_EQ(exchange(plan, 1, 0).receives, (Messages{kv(0, kByPosition, 2), kv(1, 1, 2)}));
  EXPECT_EQ(plan.tiles(plan.steps_of_rank[1][0]).size(), 1u);
}

TEST(AllGather, KeysOfStripesGoOnFromTokenToToken) {
  const Plan plan = make_plan(one_sequence(7, Mask::full()), 3, {"all_gather"}, "striped");
  EXPECT_EQ(plan.shard(plan.steps_of_rank[0][0].kv), (Shard{{0, 0, 1, 0, 7}}));
}

TEST(A2a, QueriesAndKeysGoOnFromChunkToChunk) {
  const Plan plan = make_plan(one_sequence(8, Mask::full(), 2, 2), 2, {"a2a"}, "zigzag");
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(plan.shard(plan.steps_of_rank[rank][0].q), (Shard{{0, 0, 1, 0, 8}}));
    EXPECT_EQ(plan.shard(plan.steps_of_rank[rank][0].kv), (Shard{{0, 0, 1, 0, 8}}));
  }
  EXPECT_EQ(exchange(plan, 0, 0).receives[0], q(0, kByPosition, 4, {0, 1}));
}

TEST(A2aP2p, ChunksOfAGroupThatMeetAreOne) {  // ranks 0 and 1 own chunks 0, 7 and 1, 6 of 8
  const Plan plan = make_plan(one_sequence(16, Mask::full(), 2, 2), 4, {"a2a+p2p", 2}, "zigzag");
  EXPECT_EQ(plan.shard(plan.steps_of_rank[0][0].kv), (Shard{{0, 0, 1, 0, 4}, {0, 12, 1, 4, 4}}));
}

std::vector<int> rows_of(const PackedLayout& layout, const Shard& shard) {
  std::vector<int> rows = global_rows(layout, shard);
  std::ranges::sort(rows);
  return rows;
}

TEST(StackOrder, DoesNotChangeWhichRowsABufferHasAndMakesFewerSegments) {
  testing::Random random(43);
  for (int i = 0; i < 200; ++i) {
    const Problem problem = testing::random_problem(random);
    const int n = random.integer(1, 6);
    Transport comm = testing::random_comm(random, n);
    const std::string partition = testing::random_partition(random).name;
    const Plan plan = make_plan(problem, n, comm, partition);
    comm.order = StackOrder::of_ranks;
    const Plan of_ranks = make_plan(problem, n, comm, partition);
    verify(of_ranks);
    ASSERT_EQ(plan.num_steps(), of_ranks.num_steps());
    for (int rank = 0; rank < n; ++rank)
      for (int step = 0; step < plan.num_steps(); ++step) {
        const Step &a = plan.steps_of_rank[rank][step], &b = of_ranks.steps_of_rank[rank][step];
        ASSERT_EQ(rows_of(problem.layout_q, plan.shard(a.q)),
                  rows_of(problem.layout_q, of_ranks.shard(b.q)));
        ASSERT_EQ(rows_of(problem.layout_k, plan.shard(a.kv)),
                  rows_of(problem.layout_k, of_ranks.shard(b.kv)));
        ASSERT_LE(plan.shard(a.kv).size(), of_ranks.shard(b.kv).size());
        ASSERT_LE(plan.tiles(a).size(), of_ranks.tiles(b).size());
      }
  }
}

TEST(StackOrder, InHalvesNoRankHasRowsThatLandTogether) {
  const Problem problem = one_sequence(16, Mask::full(), 2, 2);
  Transport comm{"all_gather"};
  comm.order = StackOrder::in_halves;
  for (const char* partition : {"contiguous", "zigzag", "striped"}) {
    const Plan plan = make_plan(problem, 2, comm, partition);
    verify(plan);
    const Shard& gathered = plan.shard(plan.steps_of_rank[0][0].kv);
    EXPECT_EQ(rows_of(problem.layout_k, gathered).size(), 16u);
    const RowPlaces places(gathered);
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_LT(places.block_of(plan.shard(plan.home_kv[rank])), 0) << partition << rank;
    for (const Message& m : plan.steps_of_rank[0][0].before.receives)
      EXPECT_TRUE(m.lands_by_position());
  }
}

TEST(A2a, RanksTradeRowsForHeads) {  // 2 ranks of 1 and 2 rows; 3 query heads, 3 kv heads
  const Plan plan = make_plan(one_sequence(3, Mask::full(), 3, 3), 2, {"a2a"});
  ASSERT_EQ(plan.num_steps(), 1);
  const Range low{0, 1}, high{1, 3};  // uneven
  const Exchange want{ExchangeKind::all_to_all,
                      {q(0, 0, 2, low), kv(0, 0, 2, low), q(1, 0, 2, high), kv(1, 0, 2, high)},
                      {q(0, 0, 1, high), kv(0, 0, 1, high), q(1, 1, 2, high), kv(1, 1, 2, high)}};
  EXPECT_EQ(exchange(plan, 1, 0), want);
  EXPECT_EQ(plan.steps_of_rank[0][0].q.heads, low);
  EXPECT_EQ(plan.steps_of_rank[1][0].kv.heads, high);
  EXPECT_EQ(plan.steps_of_rank[0][0].tiles, plan.steps_of_rank[1][0].tiles) << "shared";
  EXPECT_EQ(plan.rows(plan.steps_of_rank[0][0].q), 3);
}

TEST(A2a, KvHeadsAreReplicatedWhenThereAreTooFew) {  // 6 query heads of 2 groups over 4 ranks
  const Plan plan = make_plan(one_sequence(4, Mask::full(), 6, 2), 4, {"a2a"});
  const Range q_heads[] = {{0, 1}, {1, 3}, {3, 4}, {4, 6}};
  const Range kv_heads[] = {{0, 1}, {0, 1}, {1, 2}, {1, 2}};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(plan.steps_of_rank[rank][0].q.heads, q_heads[rank]);
    EXPECT_EQ(plan.steps_of_rank[rank][0].kv.heads, kv_heads[rank]);
    for (const Message& m : exchange(plan, 2, 0).sends)
      if (m.peer == rank) {
        EXPECT_EQ(m.heads, m.operand == Operand::q ? q_heads[rank] : kv_heads[rank]);
      }
  }
}

TEST(A2a, ARangeOfHeadsMayStraddleKvHeads) {  // 6 query heads of 2 groups over 2: 0-2 and 3-5
  const Plan plan = make_plan(one_sequence(4, Mask::full(), 6, 3), 2, {"a2a"});
  EXPECT_EQ(plan.steps_of_rank[0][0].kv.heads, (Range{0, 2}));
  EXPECT_EQ(plan.steps_of_rank[1][0].kv.heads, (Range{1, 3}));
}

TEST(A2a, ARankWithoutHeadsSendsItsRowsAndComputesNothing) {
  const Plan plan = make_plan(one_sequence(6, Mask::full(), 2, 1), 3, {"a2a"});
  const Exchange& first = exchange(plan, 0, 0);
  const Range one{0, 1}, two{1, 2};
  EXPECT_EQ(first.sends,
            (Messages{q(1, 0, 2, one), kv(1, 0, 2, one), q(2, 0, 2, two), kv(2, 0, 2, one)}));
  EXPECT_TRUE(first.receives.empty());
  EXPECT_EQ(plan.steps_of_rank[0][0].q, Buffer{});
  EXPECT_EQ(ranks_with_tiles(plan, 0), (Ranks{1, 2}));
}

TEST(A2aP2p, TheRingJoinsTheSameMemberOfEachGroup) {
  const Plan plan = make_plan(one_sequence(8, Mask::full(), 2, 2), 4, {"a2a+p2p", 2});
  ASSERT_EQ(plan.num_steps(), 2);
  for (int rank = 0; rank < 4; ++rank) {
    const Range heads{rank % 2, rank % 2 + 1};
    const int across = (rank + 2) % 4, neighbour = rank ^ 1;
    std::set<int> peers;
    for (const Message& m : exchange(plan, rank, 0).sends) peers.insert(m.peer);
    EXPECT_EQ(peers, (std::set<int>{rank, neighbour}));
    EXPECT_EQ(
        exchange(plan, rank, 1),
        (Exchange{ExchangeKind::ring_shift, {kv(across, 0, 4, heads)}, {kv(across, 0, 4, heads)}}));
  }
}

TEST(A2aP2p, ItsEndsAreTheRingAndTheAllToAll) {
  testing::Random random(37);
  for (int i = 0; i < 50; ++i) {
    const Problem problem = testing::random_problem(random);
    const int n = random.integer(1, 6);
    expect_same_plan(make_plan(problem, n, {"a2a+p2p", 1}), make_plan(problem, n, {"p2p"}));
    expect_same_plan(make_plan(problem, n, {"a2a+p2p", n}), make_plan(problem, n, {"a2a"}));
  }
}

class EveryTransport : public ::testing::TestWithParam<NamedTransport> {
 protected:
  Transport comm(int a2a_size) const {
    return {GetParam().name, std::string(GetParam().name) == "a2a+p2p" ? a2a_size : 0};
  }
};

TEST_P(EveryTransport, OfOneRankHasOneStepAndNoMessage) {
  const Plan plan = make_plan(one_sequence(5, Mask::causal(), 4, 2), 1, comm(1));
  EXPECT_EQ(plan.num_steps(), 1);
  EXPECT_TRUE(no_messages(plan));
  const Segment all{0, 0, 1, 0, 5};
  EXPECT_EQ(plan.tiles(plan.steps_of_rank[0][0]), (std::vector<Tile>{{all, all}}));
}

TEST_P(EveryTransport, OfNoSequenceComputesNothing) {
  for (const PackedLayout& layout : {PackedLayout(), PackedLayout({0, 0, 0})}) {
    const Plan plan = make_plan({layout, layout, Mask::full(), 2, 1}, 2, comm(2));
    for (int step = 0; step < plan.num_steps(); ++step)
      EXPECT_TRUE(ranks_with_tiles(plan, step).empty());
    for (const auto& steps : plan.steps_of_rank)
      for (const Step& step : steps) EXPECT_TRUE(step.before.empty());
  }
}

TEST_P(EveryTransport, RemembersItsNamesAndProblem) {
  const Problem problem = one_sequence(5, Mask::chunked(2), 4, 2);
  const Plan plan = make_plan(problem, 2, comm(2), "striped");
  EXPECT_EQ(plan.problem, problem);
  EXPECT_EQ(plan.partition, "striped");
  EXPECT_EQ(plan.comm, GetParam().name);
  EXPECT_TRUE(plan.shards[0].empty() && plan.tile_lists[0].empty());
}

INSTANTIATE_TEST_SUITE_P(Table, EveryTransport, ::testing::ValuesIn(transports()),
                         [](const auto& named) {
                           std::string name = named.param.name;
                           std::replace(name.begin(), name.end(), '+', '_');
                           return name;
                         });

}  // namespace
}  // namespace ringside
