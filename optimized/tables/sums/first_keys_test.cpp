#include "optimized/tables/sums/first_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <vector>

#include "reference/transport/transport.h"

namespace ringside {
namespace {

PackedLayout layout_of(const std::vector<int>& lengths) {
  std::vector<int32_t> begins{0};
  for (const int length : lengths) begins.push_back(begins.back() + length);
  return PackedLayout(begins);
}

HostWorkList items_of(const Problem& problem, ItemOrder order = ItemOrder::by_document) {
  const Plan plan = build_plan(problem, place(problem, "contiguous", 1), {"p2p"});
  const std::vector<RankTiles> ranks{{&plan.tiles(plan.steps_of_rank[0][0])}};
  return key_items(problem, ranks, 128, order);
}

std::vector<std::tuple<int, int, int>> sorted(const HostWorkList& keys) {
  std::vector<std::tuple<int, int, int>> all;
  for (const WorkItem& item : keys.items) all.emplace_back(item.own.seq, item.begin, item.end);
  std::ranges::sort(all);
  return all;
}

constexpr int kHeads = 8, kProcessors = 16;  // three documents ahead, and one more

TEST(FirstKeys, BeginWellBeforeOthersOfTheirDocument) {
  for (const Mask& mask : {Mask::causal(), Mask::full(), Mask::causal(Align::bottom_right)}) {
    const PackedLayout layout = layout_of({1000, 900, 1024, 800, 1100, 700, 950, 1000, 129});
    const HostWorkList before = items_of({layout, layout, mask});
    HostWorkList keys = before;
    ASSERT_TRUE(put_first_keys_ahead(keys, mask, kHeads, kProcessors));
    EXPECT_EQ(sorted(keys), sorted(before));
    std::map<int, size_t> first;  // of a document, where its first item is
    size_t least = keys.items.size();
    for (size_t at = 0; at < keys.items.size(); ++at) {
      const WorkItem& item = keys.items[at];
      if (item.begin == 0) {
        first[item.own.seq] = at;
        continue;
      }
      ASSERT_TRUE(first.contains(item.own.seq)) << at;
      least = std::min(least, at - first[item.own.seq]);
    }
    EXPECT_GE(least * kHeads, 1.5 * kProcessors);
  }
}

TEST(FirstKeys, AreLeftWhereTheyAre) {
  const PackedLayout many = layout_of({1000, 900, 1024, 800, 1100});
  const Mask causal = Mask::causal(), window = Mask::sliding_window(256, 0);
  const auto stays = [](const Problem& problem, ItemOrder order = ItemOrder::by_document) {
    const HostWorkList before = items_of(problem, order);
    HostWorkList keys = before;
    const bool ahead = put_first_keys_ahead(keys, problem.mask, kHeads, kProcessors);
    const auto begins = [](const HostWorkList& list) {
      std::vector<int> all;
      for (const WorkItem& item : list.items) all.push_back(item.own.row + item.begin);
      return all;
    };
    return !ahead && begins(keys) == begins(before);
  };
  EXPECT_FALSE(stays({many, many, causal}));
  EXPECT_TRUE(stays({many, many, causal}, ItemOrder::longest_first));
  EXPECT_TRUE(stays({many, many, window}));  // queries that do not see the first keys
  EXPECT_TRUE(stays({many, many, Mask::chunked(512)}));
  const PackedLayout few = layout_of({1000, 900, 1024});
  EXPECT_TRUE(stays({few, few, causal}));
  const PackedLayout tail = layout_of({4000, 900, 1024, 800, 1100, 700, 950, 1000});
  EXPECT_TRUE(stays({tail, tail, causal}));  // whose others would wait for the longest
}

}  // namespace
}  // namespace ringside
