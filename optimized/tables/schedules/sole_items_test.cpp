// Who writes a row of the home sums, by hand for plans whose steps are known.
#include "optimized/tables/schedules/sole_items.h"

#include <gtest/gtest.h>

#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

constexpr int kRows = 4;  // of an item

std::vector<HostWorkList> lists_of(const Plan& plan, const Schedule& schedule) {
  std::vector<HostWorkList> lists;
  for (const Operation& op : schedule.operations) {
    HostWorkList& list = lists.emplace_back();
    if (op.kind != OperationKind::compute || schedule.item_sums(op) != schedule.home_item_sums())
      continue;
    const std::vector<RankTiles> tiles{{&plan.tile_lists[op.tiles], 0, 0}};
    list = schedule.pass == Pass::forward ? query_items(plan.problem, tiles, kRows)
                                          : key_items(plan.problem, tiles, kRows);
  }
  return lists;
}

// The sole rows of each rank: "x" is one, "." is not.
std::vector<std::string> sole_rows(const std::vector<int>& cu_seqlens, const std::string& partition,
                                   const std::string& comm, Pass pass) {
  const PackedLayout layout{cu_seqlens};
  const Problem problem{layout, layout, Mask::causal(), 1, 1};
  const Plan plan = build_plan(problem, place(problem, partition, 2), {comm});
  std::vector<std::string> ranks;
  for (const Schedule& schedule : make_schedules(plan, pass)) {
    const SoleItems found = sole_items(schedule, lists_of(plan, schedule));
    std::string rows;
    for (const bool sole : found.row_is_sole) rows += sole ? 'x' : '.';
    EXPECT_EQ(found.rows, std::ranges::count(rows, 'x'));
    ranks.push_back(rows);
  }
  return ranks;
}

using Ranks = std::vector<std::string>;

// Of 32 tokens, zigzag gives rank 0 the first and the last eighth, rank 1 those between.
TEST(SoleItems, EachRowHasOneStepWhereKeysAreGathered) {
  EXPECT_EQ(sole_rows({0, 32}, "zigzag", "all_gather", Pass::forward),
            (Ranks{"xxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxx"}));
}

TEST(SoleItems, ARingComesBackToRowsThatSeeOthersKeys) {
  EXPECT_EQ(sole_rows({0, 32}, "zigzag", "p2p", Pass::forward),
            (Ranks{"xxxxxxxx........", "................"}));
}

TEST(SoleItems, WhatQueriesElsewhereAddToKeysIsAMessage) {
  for (const std::string comm : {"p2p", "all_gather"})
    EXPECT_EQ(sole_rows({0, 32}, "zigzag", comm, Pass::backward),
              (Ranks{"................", "................"}));
}

// Two documents of 16, one on each rank: nothing is fetched, and nobody sends gradients back.
TEST(SoleItems, DocumentsThatLieOnOneRankAreTheirsAlone) {
  for (const Pass pass : {Pass::forward, Pass::backward})
    EXPECT_EQ(sole_rows({0, 16, 32}, "whole_pack", "fetch", pass),
              (Ranks{"xxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxx"}));
}

// The second document lies on both ranks: an item of four rows, of which queries elsewhere see one
// or all, is not its own rank's alone, but those of the first document are.
TEST(SoleItems, OnlyItemsWithARowThatIsSentAreShared) {
  EXPECT_EQ(sole_rows({0, 8, 32}, "whole_pack", "fetch", Pass::forward),
            (Ranks{"xxxxxxxxxxxxxxxx", "................"}));
  EXPECT_EQ(sole_rows({0, 8, 32}, "whole_pack", "fetch", Pass::backward),
            (Ranks{"xxxxxxxx........", "xxxxxxxxxxxxxxxx"}));
}

// The same rows in items of which another touches only the last, or none.
TEST(SoleItems, OneRowThatOthersWriteIsEnough) {
  const auto item = [](int row, int begin, int end) {
    return WorkItem{{0, 0, 1, row, end}, begin, end, 0, 1, end, end};
  };
  Schedule schedule;
  schedule.home_query_sums = 1;
  schedule.buffers.resize(3);
  schedule.buffers[1].rows = 14;
  const std::vector<HostWorkList> lists{
      {{item(4, 0, 3), item(4, 3, 5), item(12, 0, 2), item(9, 0, 3)}, {}}, {}};
  EXPECT_EQ(sole_items(schedule, lists).of_operation[0].sole.size(), 4);

  const auto rows = [](int buffer, int row, int num) { return Block{buffer, row, num, {0, 1}}; };
  Operation exchange{.kind = OperationKind::exchange};
  exchange.receives = {{0, rows(1, 8, 1)},    // the last row of the second
                       {0, rows(1, 3, 1)},    // before the first
                       {0, rows(2, 0, 14)}};  // elsewhere
  Operation combine{.kind = OperationKind::combine};
  combine.from = rows(2, 0, 1), combine.to = rows(1, 13, 1);  // the last of the third
  Operation clear{.kind = OperationKind::clear};
  clear.to = rows(1, 0, 14);  // that is no result
  schedule.operations = {{}, exchange, combine, clear};
  const SplitItems split = sole_items(schedule, lists).of_operation[0];
  ASSERT_EQ(split.sole.size(), 2);
  EXPECT_EQ(split.sole[0].end, 3);
  EXPECT_EQ(split.sole[1].own.row, 9);
  ASSERT_EQ(split.others.size(), 2);
  EXPECT_EQ(split.others[0].begin, 3);
  EXPECT_EQ(split.others[1].own.row, 12);
}

WorkItem item_of(int row, int begin, int end) {
  WorkItem item;
  item.own.row = row, item.begin = begin, item.end = end;
  return item;
}

TEST(RowsWritten, AreJoinedWhereItemsTouchOrOverlap) {
  const std::vector<WorkItem> items{item_of(8, 4, 8), item_of(0, 0, 4), item_of(2, 2, 5),
                                    item_of(8, 0, 4), item_of(20, 1, 2)};
  EXPECT_EQ(rows_written(items), (std::vector<Interval>{{0, 7}, {8, 16}, {21, 22}}));
  EXPECT_TRUE(rows_written({}).empty());
}

TEST(RowsLeft, AreThoseOfNoInterval) {
  using Rows = std::vector<Interval>;
  EXPECT_EQ(rows_left(4, {}), (Rows{{0, 4}}));
  EXPECT_EQ(rows_left(4, {{0, 4}}), Rows{});
  EXPECT_EQ(rows_left(9, {{5, 7}, {1, 6}, {2, 3}}), (Rows{{0, 1}, {7, 9}}));
  EXPECT_EQ(rows_left(0, {}), Rows{});
}

// Every row is left or written, and none is both.
TEST(RowsLeft, AndThoseWrittenAreAll) {
  testing::Random random(7);
  for (int i = 0; i < 200; ++i) {
    const int rows = random.integer(0, 20);
    std::vector<WorkItem> items;
    for (int n = random.integer(0, 6); n > 0; --n) {
      const int begin = random.integer(0, rows);
      items.push_back(item_of(0, begin, random.integer(begin, rows)));
    }
    std::vector<int> times(static_cast<size_t>(rows));
    std::vector<bool> by_items(times.size());
    for (const WorkItem& item : items)
      for (int row = item.begin; row < item.end; ++row) by_items[row] = true;
    const std::vector<Interval> written = rows_written(items);
    for (const auto& all : {written, rows_left(rows, written)})
      for (const auto& [begin, end] : all)
        for (int row = begin; row < end; ++row) ++times[row];
    EXPECT_EQ(times, std::vector<int>(times.size(), 1));
    for (const auto& [begin, end] : written)
      for (int row = begin; row < end; ++row) EXPECT_TRUE(by_items[row]);
  }
}

}  // namespace
}  // namespace ringside
