// A proved plan with ONE thing made wrong must be refused, and the message must name it: indices,
// ownership and tiles. Messages are in verify_exchanges_test.cpp, coverage in
// verify_coverage_test.cpp.
#include "reference/verify/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "reference/test_support/test_errors.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::expect_error;

// Sequences of 5 and 3 tokens in 8 and 4 rows, two ranks, 4 query heads, 2 kv heads.
Plan good_plan(const std::string& comm, const std::string& partition = "contiguous") {
  const PackedLayout layout({0, 5, 8}, {0, 8, 12});
  const Problem problem{layout, layout, Mask::causal(), 4, 2};
  return build_plan(problem, place(problem, partition, 2), {comm});
}

struct Corruption {
  const char* name;
  const char* comm;
  void (*apply)(Plan&);
  std::vector<const char*> parts;  // of the message
};
void PrintTo(const Corruption& corruption, std::ostream* text) { *text << corruption.name; }

class CorruptPlan : public ::testing::TestWithParam<Corruption> {};

TEST_P(CorruptPlan, IsRefusedByName) {
  const auto& [name, comm, apply, parts] = GetParam();
  Plan plan = good_plan(comm);
  ASSERT_NO_THROW(verify(plan));
  apply(plan);
  for (const char* part : parts) expect_error<PlanError>([&] { verify(plan); }, {part});
}

Step& step(Plan& plan, int rank, int i) { return plan.steps_of_rank[rank][i]; }
std::vector<Tile>& tiles(Plan& plan, int rank, int i) {
  return plan.tile_lists[step(plan, rank, i).tiles];
}

// What rank 1 receives of an operand now lies in other rows of its buffer: its sequences in turned
// order. Messages and buffer agree with each other, and the tiles are those of rank 0.
void turn_buffer_of_rank_1(Plan& plan, Operand operand) {
  Step& turned = step(plan, 1, 0);
  Buffer& buffer = operand == Operand::q ? turned.q : turned.kv;
  Shard shard, before = plan.shard(buffer);
  std::ranges::reverse(before);
  for (const Segment& s : before) append(shard, s.seq, s.pos, s.stride, s.len);
  for (Message& m : turned.before.receives)
    if (m.operand == operand) m.row = kByPosition;
  buffer.shard = static_cast<int>(plan.shards.size());
  plan.shards.push_back(shard);
}

const Corruption kCorruptions[] = {
    {"KeysInOtherRowsThanWhoeverSharesTheTilesHasThem",
     "a2a",
     [](Plan& p) { turn_buffer_of_rank_1(p, Operand::kv); },
     {"rank 1 step 0 tile 0: key row 0 holds position 0 of sequence 1, not position 0"}},
    {"QueriesInOtherRowsThanWhoeverSharesTheTilesHasThem",
     "a2a",
     [](Plan& p) { turn_buffer_of_rank_1(p, Operand::q); },
     {"rank 1 step 0 tile 0: query row 0 holds position 0 of sequence 1, not position 0"}},
    // The problem.
    {"MaskBelowUnbounded",
     "p2p",
     [](Plan& p) { p.problem.mask.left = -2; },
     {"window_size=(-2, 0)"}},
    {"NoHeads", "p2p", [](Plan& p) { p.problem.num_heads = 0; }, {"num_heads=0"}},
    {"HeadsThatDoNotGroup", "p2p", [](Plan& p) { p.problem.num_kv_heads = 3; }, {"num_kv_heads=3"}},
    {"AnotherLayout",
     "p2p",
     [](Plan& p) {
       p.problem.layout_k = PackedLayout({0, 5, 8}, {0, 8, 11});
     },
     {"key segment", "reaches position 3 of sequence 1, which has 3 rows"}},
    // Pools and indices.
    {"HomeOutOfPool",
     "p2p",
     [](Plan& p) { p.home_q[1].shard = 99; },
     {"rank 1 home names shard 99"}},
    {"NegativeHome",
     "p2p",
     [](Plan& p) { p.home_kv[0].shard = -1; },
     {"rank 0 home names shard -1"}},
    {"ResidentOutOfPool",
     "p2p",
     [](Plan& p) { step(p, 1, 0).kv.shard = 99; },
     {"rank 1 step 0 names shard 99"}},
    {"TileListOutOfPool",
     "p2p",
     [](Plan& p) { step(p, 1, 1).tiles = 99; },
     {"rank 1 step 1 names tile list 99"}},
    {"NegativeTileList",
     "p2p",
     [](Plan& p) { step(p, 0, 0).tiles = -1; },
     {"rank 0 step 0 names tile list -1"}},
    {"HeadsBeyondTheLast",
     "a2a",
     [](Plan& p) { step(p, 1, 0).q.heads.end = 5; },
     {"rank 1 step 0 holds heads [2, 5) of 4"}},
    {"HeadsBelowTheFirst",
     "a2a",
     [](Plan& p) { step(p, 0, 0).kv.heads.begin = -1; },
     {"rank 0 step 0 holds heads [-1, 1) of 2"}},
    {"HeadsInsideOut",
     "a2a",
     [](Plan& p) { step(p, 1, 0).q.heads.end = 1; },
     {"rank 1 step 0 holds heads [2, 1)"}},
    {"HomeWithoutAllHeads",
     "p2p",
     [](Plan& p) { p.home_q[1].heads.end = 3; },
     {"rank 1 must own all heads"}},
    {"OneStepTooFew",
     "p2p",
     [](Plan& p) { p.steps_of_rank[1].pop_back(); },
     {"rank 1 has 1 steps, rank 0 has 2"}},
    {"OneStepTooMany",
     "p2p",
     [](Plan& p) { p.steps_of_rank[1].emplace_back(); },
     {"rank 1 has 3 steps, rank 0 has 2"}},
    {"ARankWithoutSteps",
     "p2p",
     [](Plan& p) { p.steps_of_rank.pop_back(); },
     {"2 query homes, 2 key homes and steps for 1 ranks"}},
    {"ARankWithoutKeys",
     "p2p",
     [](Plan& p) { p.home_kv.pop_back(); },
     {"2 query homes, 1 key homes"}},
    // Ownership.
    {"AQueryRowWithTwoOwners",
     "p2p",
     [](Plan& p) { p.shards[p.home_q[1].shard][0].pos = 3; },
     {"query position 3 of sequence 0", "rank 0 and by rank 1"}},
    {"AKeyRowWithTwoOwners",
     "p2p",
     [](Plan& p) { p.shards[p.home_kv[1].shard][0].pos = 3; },
     {"key position 3 of sequence 0"}},
    {"ARowWithoutOwner",
     "p2p",
     [](Plan& p) { p.shards[p.home_q[1].shard][1].len = 1; },
     {"query position 3 of sequence 1", "owned by no rank"}},
    {"AHomeThatIsEmpty",
     "all_gather",
     [](Plan& p) { p.home_q[1].shard = 0; },
     {"query position 4 of sequence 0", "owned by no rank"}},
    {"SegmentsWithAGap",
     "p2p",
     [](Plan& p) { p.shards[p.home_q[0].shard][1].row = 5; },
     {"query segment (seq=1", "row=5", "end at 4"}},
    {"ASegmentBeyondItsSequence",
     "p2p",
     [](Plan& p) { p.shards[p.home_q[1].shard][1].len = 3; },
     {"query segment (seq=1", "reaches position 4 of sequence 1"}},
    {"ASegmentOfNoSequence",
     "p2p",
     [](Plan& p) { p.shards[p.home_kv[0].shard][1].seq = 2; },
     {"key segment (seq=2", "not among the 2"}},
    {"ASegmentThatStandsStill",
     "p2p",
     [](Plan& p) { p.shards[p.home_kv[0].shard][0].stride = 0; },
     {"stride=0", "expected stride >= 1"}},
    // Tiles: a list holds (sequence 0), (sequence 1) of rank 1's own rows in step 0.
    {"ATileShiftedByARow",
     "p2p",
     [](Plan& p) { ++tiles(p, 1, 0)[1].q.row; },
     {"rank 1 step 0 tile 1", "query rows [5, 7) lie outside the resident buffer of 6 rows"}},
    {"ATileShiftedInsideItsBuffer",
     "p2p",
     [](Plan& p) { ++tiles(p, 1, 0)[0].q.row; },
     {"rank 1 step 0 tile 0", "query row 1 holds position"}},
    {"ATileThatClaimsAnotherPosition",
     "p2p",
     [](Plan& p) { ++tiles(p, 1, 0)[0].q.pos; },
     {"rank 1 step 0 tile 0",
      "query row 0 holds position 4 of sequence 0, not position 5 of sequence 0"}},
    {"ATileThatClaimsAnotherSequence",
     "p2p",
     [](Plan& p) { tiles(p, 1, 0)[1].k.seq = 0; },
     {"rank 1 step 0 tile 1", "key row 4 holds position 2 of sequence 1", "of sequence 0"}},
    {"ATileThatClaimsAnotherStride",
     "p2p",
     [](Plan& p) { tiles(p, 1, 0)[0].k.stride = 2; },
     {"rank 1 step 0 tile 0", "key row 1 holds position 5 of sequence 0, not position 6"}},
    {"ATileLongerThanItsSegment",
     "p2p",
     [](Plan& p) { tiles(p, 1, 0)[0].k.len = 5; },
     {"rank 1 step 0 tile 0", "key row 4 holds position 2 of sequence 1, not position 8"}},
    {"ATileLongerThanItsBuffer",
     "p2p",
     [](Plan& p) { tiles(p, 1, 0)[1].k.len = 3; },
     {"rank 1 step 0 tile 1", "key rows [4, 7) lie outside the resident buffer of 6 rows"}},
    {"ATileBeforeItsBuffer",
     "p2p",
     [](Plan& p) { tiles(p, 1, 0)[0].k.row = -1; },
     {"rank 1 step 0 tile 0", "key rows [-1, 3) lie outside"}},
    {"ATileWithoutRows",
     "p2p",
     [](Plan& p) { tiles(p, 1, 0)[0].q.len = 0; },
     {"rank 1 step 0 tile 0", "query segment has len=0"}},
    {"ATileListThatNobodyComputes",
     "p2p",
     [](Plan& p) { p.tile_lists.push_back(p.tile_lists[1]); },
     {"no step computes tile list"}},
    {"TilesInTheEmptyList",
     "p2p",
     [](Plan& p) { p.tile_lists[0] = p.tile_lists[1]; },
     {"entry 0 of the shards and of the tile lists must be there and empty"}},
    {"ATileThatStandsStill",
     "p2p",
     [](Plan& p) { tiles(p, 1, 0)[0].q.stride = 0; },
     {"rank 1 step 0 tile 0"}},
    {"ATileOfOneRowThatStandsStill",
     "p2p",
     [](Plan& p) { tiles(p, 1, 0)[0].q.stride = 0, tiles(p, 1, 0)[0].q.len = 1; },
     {"rank 1 step 0 tile 0"}},
    {"ATileOfTwoSequences",
     "p2p",
     [](Plan& p) { tiles(p, 1, 0)[0].k = tiles(p, 1, 0)[1].k; },
     {"rank 1 step 0 tile 0", "queries of sequence 0 meet keys of sequence 1"}},
    {"ATileThatSeesNothing",
     "all_gather",
     [](Plan& p) {
       const Segment first{0, 0, 1, 0, 4}, last{0, 4, 1, 4, 4};
       tiles(p, 0, 0).push_back({first, last});
     },
     {"rank 0 step 0 tile", "no query sees any key"}},
    {"ATileOfPaddingOnly",
     "p2p",
     [](Plan& p) {
       tiles(p, 1, 0).push_back({{0, 5, 1, 1, 3}, {0, 4, 1, 0, 4}});
     },
     {"rank 1 step 0 tile", "no query sees any key"}},
    {"TilesOfAnotherStep",
     "p2p",
     [](Plan& p) { step(p, 1, 0).tiles = step(p, 1, 1).tiles; },
     {"rank 1 step 0 tile 0", "key row 0 holds position 4 of sequence 0, not position 0"}},
    {"TilesOfAnotherRank",
     "p2p",
     [](Plan& p) { step(p, 1, 0).tiles = step(p, 0, 0).tiles; },
     {"rank 1 step 0 tile 0", "query row 0 holds position 4"}},
};

INSTANTIATE_TEST_SUITE_P(Each, CorruptPlan, ::testing::ValuesIn(kCorruptions),
                         [](const auto& corruption) { return corruption.param.name; });

TEST(Verify, KvHeadsOfTheQueryHeadsMustBeResident) {  // two heads owned, the second computed
  Plan plan = good_plan("p2p");
  // Rank 0 computes query heads 2 and 3 but keeps only kv head 0, which it sends to itself.
  Step& first = step(plan, 0, 0);
  first.kv.heads = {0, 1};
  first.before.kind = ExchangeKind::all_to_all;
  first.before.sends = first.before.receives = {{0, Operand::kv, 0, 6, {0, 1}}};
  expect_error<PlanError>([&] { verify_tiles(plan); },
                          {"rank 0 step 0 computes heads [0, 4) but holds only kv heads [0, 1)"});
}

TEST(VerifyIndices, RefusesHeadsThatNothingCanBeDividedBy) {
  Plan plan = good_plan("p2p");
  plan.problem.num_kv_heads = 0;
  expect_error<PlanError>([&] { verify_indices(plan); }, {"num_kv_heads=0"});
}

TEST(Verify, CountsWhatItProved) {  // 5 and 3 tokens, causal: 15 + 6 pairs; 12 rows of q and of k
  for (const char* comm : {"p2p", "all_gather", "a2a"}) {
    const PlanProof proof = verify(good_plan(comm));
    EXPECT_EQ(proof.pairs, 21) << comm;
    EXPECT_EQ(proof.rows, 24) << comm;
  }
  EXPECT_EQ(verify(good_plan("p2p")).messages, 1);         // rank 0 to rank 1
  EXPECT_EQ(verify(good_plan("all_gather")).messages, 4);  // also to oneself
  EXPECT_EQ(verify(good_plan("a2a")).messages, 8);         // q and kv
  EXPECT_EQ(verify(good_plan("p2p")).tiles, 6);
}

TEST(Verify, AcceptsAPlanOfNothing) {
  const Problem problem{PackedLayout(), PackedLayout(), Mask::full(), 2, 1};
  EXPECT_EQ(verify(build_plan(problem, place(problem, "zigzag", 3), {"a2a"})).pairs, 0);
}

TEST(Verify, AcceptsEveryRandomPlanAndCountsItsPairs) {
  testing::Random random(43);
  for (int i = 0; i < 200; ++i) {
    const Problem problem = testing::random_problem(random);
    int64_t pairs = 0;
    for (int s = 0; s < problem.layout_q.batch(); ++s)
      for (int q = 0; q < problem.layout_q.len(s); ++q)
        for (int k = 0; k < problem.layout_k.len(s); ++k)
          pairs += problem.mask.allows(q, k, problem.layout_q.len(s), problem.layout_k.len(s));
    ASSERT_EQ(verify(testing::random_plan(random, problem)).pairs, pairs);
  }
}

TEST(GlobalRows, AreWhereTheLayoutPutsEachPosition) {
  const PackedLayout layout({0, 5, 8}, {0, 8, 12});
  EXPECT_EQ(global_rows(layout, {{1, 1, 2, 0, 2}, {0, 6, 1, 2, 2}}),
            (std::vector<int>{9, 11, 6, 7}));
}

}  // namespace
}  // namespace ringside
