// Who writes a row of the home sums, by hand for plans whose steps are known.
#include "optimized/tables/schedules/final_items.h"

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

// The rows of each rank, as their last item leaves them: "x" final, and nobody else writes them;
// "+" final, and others are before it; "." not final.
std::vector<std::string> final_rows(const std::vector<int>& cu_seqlens,
                                    const std::string& partition, const std::string& comm,
                                    Pass pass) {
  const PackedLayout layout{cu_seqlens};
  const Problem problem{layout, layout, Mask::causal(), 1, 1};
  const Plan plan = build_plan(problem, place(problem, partition, 2), {comm});
  std::vector<std::string> ranks;
  for (const Schedule& schedule : make_schedules(plan, pass)) {
    std::vector<HostWorkList> lists = lists_of(plan, schedule);
    const FinalItems found = tell_final_items(schedule, lists);
    std::string rows(found.row_is_final.size(), '.');
    bool alone = true;
    for (const HostWorkList& list : lists)
      for (const WorkItem& item : list.items) {
        const bool begins = item.alone & kAloneBefore, ends = item.alone & kAloneBehind;
        alone = alone && begins && ends;
        for (int row = item.begin; ends && row < item.end; ++row) {
          char& of_row = rows[item.own.row + row];
          EXPECT_EQ(of_row, '.') << "two are the last";
          of_row = begins ? 'x' : '+';
        }
      }
    EXPECT_EQ(found.sums_unused, alone);
    EXPECT_EQ(found.rows, std::ranges::count_if(rows, [](char c) { return c != '.'; }));
    for (size_t row = 0; row < rows.size(); ++row)
      EXPECT_EQ(found.row_is_final[row], rows[row] != '.') << row;
    ranks.push_back(rows);
  }
  return ranks;
}

using Ranks = std::vector<std::string>;

// Of 32 tokens, zigzag gives rank 0 the first and the last eighth, rank 1 those between.
TEST(FinalItems, EachRowHasOneStepWhereKeysAreGathered) {
  EXPECT_EQ(final_rows({0, 32}, "zigzag", "all_gather", Pass::forward),
            (Ranks{"xxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxx"}));
}

TEST(FinalItems, ARingGoesOnInRowsThatSeeOthersKeys) {
  EXPECT_EQ(final_rows({0, 32}, "zigzag", "p2p", Pass::forward),
            (Ranks{"xxxxxxxx++++++++", "++++++++++++++++"}));
}

TEST(FinalItems, WhatQueriesElsewhereAddToKeysIsAMessage) {
  for (const std::string comm : {"p2p", "all_gather"})
    EXPECT_EQ(final_rows({0, 32}, "zigzag", comm, Pass::backward),
              (Ranks{"................", "................"}));
}

// Two documents of 16, one on each rank: nothing is fetched, and nobody sends gradients back.
TEST(FinalItems, DocumentsThatLieOnOneRankAreTheirsAlone) {
  for (const Pass pass : {Pass::forward, Pass::backward})
    EXPECT_EQ(final_rows({0, 16, 32}, "whole_pack", "fetch", pass),
              (Ranks{"xxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxx"}));
}

// The second document lies on both ranks: an item of four rows, of which queries elsewhere see one
// or all, is not its own rank's alone, but those of the first document are.
TEST(FinalItems, OnlyItemsWithARowThatIsSentAreShared) {
  EXPECT_EQ(final_rows({0, 8, 32}, "whole_pack", "fetch", Pass::forward),
            (Ranks{"xxxxxxxxxxxxxxxx", "++++++++++++++++"}));
  EXPECT_EQ(final_rows({0, 8, 32}, "whole_pack", "fetch", Pass::backward),
            (Ranks{"xxxxxxxx........", "xxxxxxxxxxxxxxxx"}));
}

WorkItem item_of(int row, int begin, int end) {
  WorkItem item;
  item.own.row = row, item.begin = begin, item.end = end;
  return item;
}

// By hand, in both passes: items at the second of four operations, and what is before and behind.
class WrittenByOthers : public ::testing::TestWithParam<Pass> {
 protected:
  static constexpr int kHome = 1, kElsewhere = 2;
  static Block rows(int buffer, int row, int num) { return {buffer, row, num, {0, 1}}; }

  Schedule schedule;
  std::vector<HostWorkList> lists{4};

  WrittenByOthers() {
    schedule.pass = GetParam();
    schedule.home_query_sums = schedule.home_key_sums = kHome;
    schedule.buffers.resize(3);
    schedule.buffers[kHome].rows = 14;
    schedule.operations.resize(4);
    lists[1].items = {item_of(4, 0, 3), item_of(4, 3, 5), item_of(12, 0, 2), item_of(9, 0, 3)};
  }
  bool is_forward() const { return schedule.pass == Pass::forward; }
  std::vector<int> alone() {
    const FinalItems found = tell_final_items(schedule, lists);
    std::vector<int> of_items;
    for (const WorkItem& item : lists[1].items) of_items.push_back(item.alone);
    EXPECT_EQ(found.sums_unused, std::ranges::count(of_items, kAloneBefore | kAloneBehind) == 4);
    return of_items;
  }
  int one_of(int alone) const { return is_forward() ? alone : 0; }
  static constexpr int kAlone = kAloneBefore | kAloneBehind;
};

TEST_P(WrittenByOthers, NobodyIs) { EXPECT_EQ(alone(), std::vector<int>(4, kAlone)); }

TEST_P(WrittenByOthers, OneRowOfAMessageIsEnough) {
  Operation& before = schedule.operations[0];
  before.kind = OperationKind::exchange;
  before.receives = {{0, rows(kHome, 8, 1)},  // the last row of the second
                     {0, rows(kHome, 3, 1)},  // before the first
                     {0, rows(kElsewhere, 0, 14)}};
  EXPECT_EQ(alone(), (std::vector<int>{kAlone, one_of(kAloneBehind), kAlone, kAlone}));
  std::swap(schedule.operations[0], schedule.operations[3]);
  EXPECT_EQ(alone(), (std::vector<int>{kAlone, one_of(kAloneBefore), kAlone, kAlone}));
}

TEST_P(WrittenByOthers, OneRowOfASumIsEnough) {
  Operation& behind = schedule.operations[2];
  behind.kind = OperationKind::combine;
  behind.from = rows(kElsewhere, 0, 1), behind.to = rows(kHome, 13, 1);  // the last of the third
  EXPECT_EQ(alone(), (std::vector<int>{kAlone, kAlone, one_of(kAloneBefore), kAlone}));
}

TEST_P(WrittenByOthers, SoIsOneOfAnItem) {
  lists[0].items = {item_of(0, 2, 5)};   // the first of the first
  lists[3].items = {item_of(11, 0, 1)};  // the last of the fourth
  EXPECT_EQ(alone(),
            (std::vector<int>{one_of(kAloneBehind), kAlone, kAlone, one_of(kAloneBefore)}));
  lists[3].items[0].own.row = 4, lists[3].items[0].end = 10;
  EXPECT_EQ(alone(), (std::vector<int>{0, one_of(kAloneBefore), one_of(kAloneBefore),
                                       one_of(kAloneBefore)}));
}

TEST_P(WrittenByOthers, ZerosAreNoResult) {
  schedule.operations[0].kind = OperationKind::clear;
  schedule.operations[0].to = rows(kHome, 0, 14);
  EXPECT_EQ(alone(), std::vector<int>(4, kAlone));
}

INSTANTIATE_TEST_SUITE_P(FinalItems, WrittenByOthers,
                         ::testing::Values(Pass::forward, Pass::backward));

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
