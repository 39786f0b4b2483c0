// What is estimated is what the built plan costs, in every number.
#include "reference/estimate/estimate.h"

#include <gtest/gtest.h>

#include <numeric>

#include "reference/estimate/plan_size.h"
#include "reference/support/errors.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

void expect_equal(const PassCost& got, const PassCost& want) {
  EXPECT_EQ(got.bytes_sent, want.bytes_sent);
  EXPECT_EQ(got.bytes_received, want.bytes_received);
  EXPECT_EQ(got.result_bytes_sent, want.result_bytes_sent);
  EXPECT_EQ(got.result_bytes_received, want.result_bytes_received);
  EXPECT_EQ(got.workspace_bytes, want.workspace_bytes);
}

void expect_equal(const CostOfPasses& got, const CostOfPasses& want) {
  for (const auto field :
       {&PlanCost::pairs, &PlanCost::blocks, &PlanCost::partial_blocks, &PlanCost::visits,
        &PlanCost::tiles, &PlanCost::rows_needed, &PlanCost::bytes_received, &PlanCost::bytes_sent,
        &PlanCost::messages, &PlanCost::rows_q, &PlanCost::rows_kv})
    EXPECT_EQ(got.*field, want.*field);
  EXPECT_EQ(got.result_bytes_received, want.result_bytes_received);
  EXPECT_EQ(got.result_bytes_sent, want.result_bytes_sent);
  expect_equal(got.forward_pass, want.forward_pass);
  expect_equal(got.backward_pass, want.backward_pass);
}

TEST(Estimate, IsTheCostOfThePlan) {
  Random random(101);
  for (int i = 0; i < testing::cases(600) && !::testing::Test::HasFailure(); ++i) {
    const Problem problem = testing::random_problem(random);
    const int cp_size = random.integer(1, 9);
    const Transport comm = testing::random_comm(random, cp_size);
    const Placement placement = place(problem, testing::random_partition(random).name, cp_size);
    const ElementSizes sizes{random.integer(1, 9), random.integer(1, 9), random.integer(1, 4)};
    const BlockSize block{random.integer(1, 9), random.integer(1, 9)};
    const Plan plan = build_plan(problem, placement, comm);
    expect_equal(estimate(problem, placement, comm, sizes, block),
                 cost_of_passes(plan, sizes, block));
    if (comm.name == "fetch") continue;  // about as many as a ring
    int64_t tiles = 0;
    for (const auto& list : plan.tile_lists) tiles += static_cast<int64_t>(list.size());
    EXPECT_EQ(num_tiles(problem, placement, comm), tiles) << comm.name;
  }
}

PackedLayout long_documents(Random& random, int batch) {
  std::vector<int32_t> lengths(batch);
  for (int32_t& length : lengths) length = random.integer(0, random.one_in(4) ? 600 : 40);
  return PackedLayout::from_lengths(lengths, random.coin() ? 1 : random.integer(1, 40));
}

Mask narrow_mask(Random& random) {
  switch (random.integer(0, 3)) {
    case 0:
      return Mask::causal(random.coin() ? Align::top_left : Align::bottom_right);
    case 1:
      return Mask::sliding_window(random.integer(0, 100), random.integer(0, 20));
    case 2:
      return Mask::chunked(random.integer(1, 90));
    default:
      return {random.integer(0, 50), random.integer(0, 9), random.integer(20, 80),
              random.coin() ? Align::top_left : Align::bottom_right};
  }
}

// Runs of rows, each at home with the next rank or with any.
std::vector<Shard> dealt_at_random(Random& random, const PackedLayout& layout, int cp_size) {
  std::vector<Shard> homes(cp_size);
  const int longest = random.coin() ? 5 : 90;
  int owner = 0;
  for (int seq = 0; seq < layout.batch(); ++seq)
    for (int pos = 0; pos < layout.padded_len(seq);) {
      const int rows = std::min(layout.padded_len(seq) - pos, random.integer(1, longest));
      append(homes[owner], seq, pos, 1, rows);
      pos += rows;
      owner = random.coin() ? (owner + 1) % cp_size : random.integer(0, cp_size - 1);
    }
  return homes;
}

// Of what arrives there are pieces that nobody sees between pieces that somebody does, and blocks
// that reach from one into the other.
TEST(Estimate, OfWhatIsFetchedIsTheCostOfThePlan) {
  Random random(102);
  for (int i = 0; i < testing::cases(1500) && !::testing::Test::HasFailure(); ++i) {
    random.begin_case();
    const PackedLayout layout = long_documents(random, random.integer(1, 25));
    const Problem problem{layout, layout, narrow_mask(random), 2, 1};
    const int cp_size = random.integer(2, 20);
    const Placement placement =
        random.coin() ? place(problem, random.coin() ? "zigzag" : "contiguous", cp_size)
                      : Placement{dealt_at_random(random, layout, cp_size),
                                  dealt_at_random(random, layout, cp_size)};
    const Transport comm{"fetch", 0, random.integer(1, 5)};
    const BlockSize block{random.integer(1, 40), random.integer(1, 128)};
    expect_equal(estimate(problem, placement, comm, {}, block),
                 cost_of_passes(build_plan(problem, placement, comm), {}, block));
  }
}

// Keys of which half have no queries, below one document that makes gaps of several rows small.
Problem few_queries(Random& random) {
  std::vector<int32_t> of_q, of_k;
  for (int i = random.integer(1, 30); i > 0; --i) {
    of_k.push_back(random.integer(0, 25));
    of_q.push_back(random.coin() ? 0 : random.integer(0, 25));
  }
  of_q.push_back(random.integer(1, 60));
  of_k.push_back(random.integer(0, 4000));
  return {PackedLayout::from_lengths(of_q), PackedLayout::from_lengths(of_k), narrow_mask(random),
          2, 1};
}

// Gaps of a row and of hundreds between what a rank sees of another's stripes, at home with few
// rows, where none are bridged, and with thousands.
TEST(Estimate, OfWhatIsFetchedOfStripesIsTheCostOfThePlan) {
  Random random(103);
  for (int i = 0; i < testing::cases(1000) && !::testing::Test::HasFailure(); ++i) {
    random.begin_case();
    const PackedLayout layout = long_documents(random, random.integer(1, 25));
    Problem problem{layout, layout, narrow_mask(random), 2, 1};
    if (random.one_in(4)) problem.layout_k = long_documents(random, layout.batch());
    if (random.one_in(4)) problem = few_queries(random);
    const int cp_size = random.integer(2, random.coin() ? 8 : 30);
    Transport comm{"fetch", 0, random.integer(1, 5)};
    if (random.one_in(5)) comm.order = StackOrder::of_ranks;
    const Placement placement = place(problem, "striped", cp_size);
    const BlockSize block{random.integer(1, 9), random.integer(1, 40)};
    expect_equal(estimate(problem, placement, comm, {}, block),
                 cost_of_passes(build_plan(problem, placement, comm), {}, block));
  }
}

// Every rank has two cards, whichever.
std::vector<Shard> cards_at_random(Random& random, const PackedLayout& layout, int cp_size) {
  std::vector<int> cards(2 * cp_size);
  std::iota(cards.begin(), cards.end(), 0);
  for (size_t i = 1; i < cards.size(); ++i)
    std::swap(cards[i], cards[random.integer(0, static_cast<int>(i))]);
  std::vector<Shard> homes(cp_size);
  for (size_t i = 0; i < cards.size(); ++i)
    for (int seq = 0; seq < layout.batch(); ++seq) {
      const int rows = layout.padded_len(seq) - cards[i];
      append(homes[i / 2], seq, cards[i], 2 * cp_size, (rows + 2 * cp_size - 1) / (2 * cp_size));
    }
  return homes;
}

// Shards hold several stripes of a document, as queries and as keys: what one of them has seen or
// visited the next one does not count again.
TEST(Estimate, OfStripesInGroupsIsTheCostOfThePlan) {
  Random random(104);
  for (int i = 0; i < testing::cases(400) && !::testing::Test::HasFailure(); ++i) {
    random.begin_case();
    const PackedLayout layout = long_documents(random, random.integer(1, 12));
    const Problem problem{layout, layout, narrow_mask(random), 8, 4};
    const int a2a_size = random.integer(2, 4), cp_size = a2a_size * random.integer(2, 6);
    const Transport comm = random.coin() ? Transport{"p2p"} : Transport{"a2a+p2p", a2a_size};
    Placement placement = place(problem, "striped", cp_size);
    if (random.coin()) placement.q = placement.k = cards_at_random(random, layout, cp_size);
    const BlockSize block{random.integer(1, 9), random.integer(1, 9)};
    expect_equal(estimate(problem, placement, comm, {}, block),
                 cost_of_passes(build_plan(problem, placement, comm), {}, block));
  }
}

TEST(Estimate, OfTilesBeyondTheLimitIsARefusal) {
  const PackedLayout layout({0, 64});
  const Problem problem{layout, layout, Mask::causal(), 1, 1};
  const Placement placement = place(problem, "zigzag", 4);
  const int64_t tiles = num_tiles(problem, placement, {"p2p"});
  EXPECT_NO_THROW(check_tiles(problem, placement, {"p2p"}, tiles));
  EXPECT_THROW(check_tiles(problem, placement, {"p2p"}, tiles - 1), InvalidArgument);
}

}  // namespace
}  // namespace ringside
