// Turns at blocks of queries against a count of the items that meet them, over random documents and
// masks.
#include "optimized/tables/sums/item_turns.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "optimized/tables/build_work_list.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

constexpr int kQueries = 64;

HostWorkList list_of(const Problem& problem, int rows) {
  const Plan plan = build_plan(problem, place(problem, "contiguous", 1), {"p2p"});
  return key_items(problem, {{&plan.tiles(plan.steps_of_rank[0][0]), 0, 0}}, rows);
}

// Blocks of the segment's rows that an item meets, as kernels walk over them.
Interval blocks_met(const Mask& mask, const HostWorkList& list, const WorkItem& item) {
  const SequenceMask of_sequence{mask, item.len_q, item.len_k};
  const Interval some =
      SeeingQueries(of_sequence, list.partners[item.partner_begin], item.own, item.begin, item.end)
          .some;
  if (some.size() <= 0) return {};
  return {some.begin / kQueries, (some.end + kQueries - 1) / kQueries};
}

// Who waits for its turn waits for items of the list before it, of which each lets one pass.
void expect_turns(const Problem& problem, int rows) {
  const HostWorkList list = list_of(problem, rows);
  const auto items = items_in_turn(list, problem.mask, rows);
  ASSERT_EQ(items.size(), list.items.size());
  std::map<std::tuple<int, int>, int> passed;  // at a block of a document
  for (const WorkItem& item : items) {
    const SequenceMask mask{problem.mask, item.len_q, item.len_k};
    const Segment queries = list.partners[item.partner_begin];
    const Interval blocks = blocks_met(problem.mask, list, item);
    for (int block = blocks.begin; block < blocks.end; ++block)
      ASSERT_EQ(turn_of_item(mask, item.own, item.begin, rows, queries, block * kQueries),
                (passed[{item.own.seq, block}]++))
          << "document " << item.own.seq << ", keys from " << item.begin << ", block " << block;
  }
}

TEST(ItemTurns, AreNoneWhereQueriesHaveAGap) {
  const PackedLayout layout({0, 1600});
  const Problem problem{layout, layout, Mask::causal()};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 2), {"all_gather"});
  const std::vector<RankTiles> ranks{{&plan.tiles(plan.steps_of_rank[0].back())}};
  const HostWorkList joined =
      key_items(problem, ranks, 128, ItemOrder::longest_first, Neighbours::joined);
  ASSERT_EQ(joined.partners.size(), 1);
  EXPECT_EQ(joined.partners[0].gap, 800);
  EXPECT_TRUE(items_in_turn(joined, problem.mask, 128).empty());
}

TEST(ItemTurns, CountTheItemsBeforeInTheList) {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    random.begin_case();
    std::vector<int32_t> q{0}, k{0};
    const bool same = random.coin();
    for (int s = random.integer(1, 4); s > 0; --s) {
      const int len_q = random.integer(0, 700), len_k = same ? len_q : random.integer(0, 700);
      q.push_back(q.back() + len_q), k.push_back(k.back() + len_k);
    }
    Mask mask;
    if (random.integer(0, 2) > 0) mask.left = random.integer(0, 300);
    if (random.integer(0, 2) > 0) mask.right = random.coin() ? 0 : random.integer(0, 300);
    if (random.one_in(3)) mask.chunk = random.integer(1, 400);
    mask.align = random.coin() ? Align::top_left : Align::bottom_right;
    const Problem problem{PackedLayout(q), PackedLayout(k), mask};
    SCOPED_TRACE(i);
    expect_turns(problem, random.coin() ? 128 : 64);
    if (HasFailure()) return;
  }
}

TEST(ItemTurns, LongItemsComeFirst) {
  const PackedLayout layout(std::vector<int32_t>{0, 100, 1100, 1400});
  const Problem problem{layout, layout, Mask::causal()};
  const auto items = items_in_turn(list_of(problem, 128), problem.mask, 128);
  int64_t longest = 1 << 30;
  for (const WorkItem& item : items) {
    const int64_t length = int64_t{item.len_q - item.begin} * (item.end - item.begin);
    EXPECT_LE(length, longest);
    longest = length;
  }
}

TEST(ItemTurns, AreNotForQueriesThatMeetSeveralSegments) {
  const PackedLayout layout(std::vector<int32_t>{0, 600});
  const Problem problem{layout, layout, Mask::full()};
  const HostWorkList whole = list_of(problem, 128);
  EXPECT_EQ(items_in_turn(whole, problem.mask, 128).size(), whole.items.size());
  HostWorkList list = whole;
  for (WorkItem& item : list.items) ++item.partner_end;
  list.partners.push_back({0, 600, 1, 600, 8});
  EXPECT_TRUE(items_in_turn(list, problem.mask, 128).empty());
  list = whole;
  list.partners[0].stride = 2;
  EXPECT_TRUE(items_in_turn(list, problem.mask, 128).empty());
  list = whole;
  list.items.erase(list.items.begin() + 2);
  EXPECT_TRUE(items_in_turn(list, problem.mask, 128).empty());
  list = whole;
  list.items.back().own.row += 600;  // another segment, which the same queries see
  EXPECT_TRUE(items_in_turn(list, problem.mask, 128).empty());
}

}  // namespace
}  // namespace ringside
