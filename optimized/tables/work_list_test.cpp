// Work lists against the tiles they come from.
#include "optimized/tables/work_list.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "optimized/tables/build_work_list.h"
#include "reference/rows/seen_rows.h"
#include "reference/support/errors.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

// A list made on the host has a block an item; one with room, few turns of the processors.
TEST(WorkList, RoomForItemsIsNotLaunched) {
  WorkList work;
  work.max_items = 135'000 / 16;
  EXPECT_EQ(blocks_of_list(work, 16, 132), work.max_items);
  work.is_full = false;
  const int blocks = blocks_of_list(work, 16, 132) * 16;
  EXPECT_GE(blocks, 2 * 132);
  EXPECT_LE(blocks, 16 * 132 + 16);
  EXPECT_EQ(blocks_of_list(work, 1'000'000, 132), 1);
  work.max_items = 3;
  EXPECT_EQ(blocks_of_list(work, 16, 132), 3);
  work.max_items = 0;
  EXPECT_EQ(blocks_of_list(work, 16, 132), 0);
}

TEST(WorkList, KnowsWhetherEachQueryMeetsOneItemOfKeys) {
  for (const auto& [length, alone] : {std::pair{128, true}, {129, false}}) {
    const PackedLayout layout(std::vector<int32_t>{0, 5, 5, 5 + length, 6 + length});
    const Problem problem{layout, layout, Mask::causal()};
    const Plan plan = build_plan(problem, place(problem, "contiguous", 1), {"p2p"});
    const std::vector<RankTiles> tiles{{&plan.tiles(plan.steps_of_rank[0][0]), 0, 0}};
    EXPECT_EQ(one_item_a_sequence(key_items(problem, tiles, 128)), alone) << length;
  }
}

TEST(WorkList, KnowsHowManyRowsTheItemInTheMiddleOfAllWorkMeets) {
  const PackedLayout layout(std::vector<int32_t>{0, 48, 1008});
  const Problem problem{layout, layout, Mask::causal()};
  const Plan plan = build_plan(problem, place(problem, "contiguous", 1), {"p2p"});
  const std::vector<RankTiles> tiles{{&plan.tiles(plan.steps_of_rank[0][0]), 0, 0}};
  const HostWorkList list = key_items(problem, tiles, 64);
  int64_t work = 0, before = 0, met = 0;
  for (int begin = 0; begin < 960; begin += 64) work += 64 * (960 - begin);
  work += 48 * 48;
  for (int begin = 0; begin < 960 && 2 * before < work; begin += 64)
    met = 960 - begin, before += 64 * met;
  EXPECT_EQ(list.rows_met, met);
  EXPECT_EQ(list.most_rows_met, 960);
  EXPECT_TRUE(list.in_part);
  EXPECT_FALSE(list.is_even);
  const HostWorkList none = key_items(problem, {}, 64);
  EXPECT_EQ(none.rows_met, 0);
  EXPECT_EQ(none.most_rows_met, 0);
  EXPECT_FALSE(none.in_part);
}

TEST(WorkList, KnowsWhetherItsItemsMeetTheSameRows) {
  const PackedLayout layout(std::vector<int32_t>{0, 64, 2112});
  const auto list_of = [&](const Mask& mask, int ranks, const Transport& transport, int step) {
    const Problem problem{layout, layout, mask};
    const Plan plan = build_plan(problem, place(problem, "zigzag", ranks), transport);
    return key_items(problem, {{&plan.tiles(plan.steps_of_rank[0][step]), 0, 0}}, 64);
  };
  for (const Mask& mask : {Mask::full(), Mask::sliding_window(300, 300)})
    EXPECT_FALSE(list_of(mask, 1, {"p2p"}, 0).in_part);
  EXPECT_TRUE(list_of(Mask::full(), 1, {"p2p"}, 0).is_even);
  EXPECT_TRUE(list_of(Mask::causal(), 1, {"p2p"}, 0).in_part);
  EXPECT_TRUE(list_of(Mask::causal(), 2, {"p2p"}, 0).in_part) << "a rank's own keys";
  EXPECT_FALSE(list_of(Mask::causal(), 2, {"p2p"}, 1).in_part) << "the other one's";
  EXPECT_FALSE(list_of(Mask::causal(), 8, {"all_gather"}, 0).in_part) << "most, in two numbers";
}

TEST(WorkList, KnowsWhatItsLongestItemHasOfTheWork) {
  const PackedLayout layout(std::vector<int32_t>{0, 64, 320});
  const Problem problem{layout, layout, Mask::causal()};
  const Plan plan = build_plan(problem, place(problem, "contiguous", 1), {"p2p"});
  const std::vector<RankTiles> tiles{{&plan.tiles(plan.steps_of_rank[0][0]), 0, 0}};
  EXPECT_DOUBLE_EQ(key_items(problem, tiles, 64).longest_share, 4.0 / (4 + 3 + 2 + 1 + 1));
  EXPECT_EQ(key_items(problem, {}, 64).longest_share, 0);
}

using Pairs = std::multiset<std::pair<int, int>>;  // (query row, key row) of the buffers

void add_pairs(const Problem& problem, const Segment& q, Interval q_rows, const Segment& k,
               Interval k_rows, Pairs& pairs) {
  const int len_q = problem.layout_q.len(q.seq), len_k = problem.layout_k.len(q.seq);
  for (int i = q_rows.begin; i < q_rows.end; ++i)
    for (int j = k_rows.begin; j < k_rows.end; ++j)
      if (problem.mask.allows(q.position(i), k.position(j), len_q, len_k))
        pairs.insert({q.row + i, k.row + j});
}

Pairs pairs_of_tiles(const Problem& problem, const std::vector<RankTiles>& ranks) {
  Pairs pairs;
  for (const RankTiles& rank : ranks)
    for (Tile tile : *rank.tiles) {
      tile.q.row += rank.q_row;
      tile.k.row += rank.k_row;
      add_pairs(problem, tile.q, {0, tile.q.len}, tile.k, {0, tile.k.len}, pairs);
    }
  return pairs;
}

// What a kernel would compute; every own row belongs to one item.
Pairs pairs_of_items(const Problem& problem, const HostWorkList& list, bool items_are_queries) {
  Pairs pairs;
  std::set<int> owned;
  for (const WorkItem& item : list.items) {
    const Segment& own = item.own;
    const SequenceMask mask{problem.mask, problem.layout_q.len(own.seq),
                            problem.layout_k.len(own.seq)};
    EXPECT_TRUE(is_sound(item));
    for (int i = item.begin; i < item.end; ++i) EXPECT_TRUE(owned.insert(own.row + i).second);
    for (int p = item.partner_begin; p < item.partner_end; ++p) {
      const Segment& partner = list.partners[p];
      const Interval own_rows{item.begin, item.end};
      if (items_are_queries)
        add_pairs(problem, own, own_rows, partner,
                  keys_seen(mask, partner, own, item.begin, item.end), pairs);
      else
        add_pairs(problem, partner, queries_seeing(mask, partner, own, item.begin, item.end), own,
                  own_rows, pairs);
    }
  }
  return pairs;
}

// Cuts tiles at random rows, as a user's own plan may.
std::vector<Tile> cut_at_random(Random& random, const std::vector<Tile>& tiles) {
  std::vector<Tile> cut;
  const auto part = [](const Segment& s, int begin, int end) {
    return Segment{s.seq, s.position(begin), s.stride, s.row + begin, end - begin};
  };
  for (const Tile& tile : tiles) {
    const int q = random.integer(0, tile.q.len), k = random.integer(0, tile.k.len);
    for (const Interval rows : {Interval{0, q}, Interval{q, tile.q.len}})
      for (const Interval keys : {Interval{0, k}, Interval{k, tile.k.len}})
        if (rows.size() > 0 && keys.size() > 0)
          cut.push_back({part(tile.q, rows.begin, rows.end), part(tile.k, keys.begin, keys.end)});
  }
  return cut;
}

int rows_of_items(const HostWorkList& list) {
  int rows = 0;
  for (const WorkItem& item : list.items) rows += item.end - item.begin;
  return rows;
}

// Of tokens, in items or not.
int query_rows(const Problem& problem, const std::vector<RankTiles>& ranks) {
  std::set<int> rows;
  for (const RankTiles& rank : ranks)
    for (const Tile& tile : *rank.tiles)
      for (int i = 0; i < tile.q.rows_below(problem.layout_q.len(tile.q.seq)); ++i)
        rows.insert(rank.q_row + tile.q.row + i);
  return static_cast<int>(rows.size());
}

bool is_joined(const Segment& s) { return s.gap_at < s.len; }
bool has_gap(const WorkItem& item) { return is_joined(item.own); }

TEST(WorkList, ItemsComputeWhatTheTilesSay) {
  Random random(3);
  int gaps = 0, fewer = 0, compared = 0;
  for (int number = 0; number < 400; ++number) {
    const Problem problem = testing::random_problem(random);
    const Plan plan = testing::random_plan(random, problem);
    for (int step = 0; step < plan.num_steps(); ++step) {
      std::vector<std::vector<Tile>> tiles;
      std::vector<RankTiles> ranks;
      for (const auto& steps : plan.steps_of_rank)
        tiles.push_back(random.coin() ? plan.tiles(steps[step])
                                      : cut_at_random(random, plan.tiles(steps[step])));
      for (const auto& of_rank : tiles)
        ranks.push_back({&of_rank, 1000 * static_cast<int>(ranks.size()),
                         2000 * static_cast<int>(ranks.size())});
      const int rows = random.choice<int>({1, 4, 32, 64});
      const Pairs want = pairs_of_tiles(problem, ranks);
      ASSERT_EQ(want, pairs_of_items(problem, query_items(problem, ranks, rows), true))
          << "case " << number << " step " << step;
      ASSERT_EQ(want, pairs_of_items(problem, key_items(problem, ranks, rows), false))
          << "case " << number << " step " << step;
      for (const bool of_queries : {true, false}) {
        const auto made = of_queries ? query_items : key_items;
        const HostWorkList joined =
            made(problem, ranks, rows, ItemOrder::longest_first, Neighbours::joined);
        ASSERT_EQ(want, pairs_of_items(problem, joined, of_queries))
            << "case " << number << " step " << step;
        gaps += std::ranges::any_of(joined.items, has_gap) ||
                std::ranges::any_of(joined.partners, is_joined);
        const HostWorkList apart =
            made(problem, ranks, rows, ItemOrder::longest_first, Neighbours::apart);
        // A block of queries that sees nothing is no item; where chunks join, its rows may be in
        // one that sees something. So numbers tell nothing where apart there is one.
        if (!of_queries) {
          ASSERT_EQ(joined.items.size(), apart.items.size());
        } else if (rows_of_items(apart) == query_rows(problem, ranks)) {
          const bool any = std::ranges::any_of(joined.items, has_gap);
          fewer += any, ++compared;
          ASSERT_LT(joined.items.size(), apart.items.size() + (any ? 0 : 1))
              << "case " << number << " step " << step;
        }
      }
    }
  }
  EXPECT_GT(gaps, 40);
  EXPECT_GT(fewer, 5);
  EXPECT_GT(compared, 100);
}

// A rank's two chunks of a document, of 100 rows each in a zigzag over 8: in blocks of 128 two
// items, in blocks of 256 one, and its keys meet one segment of queries, whatever lies between.
TEST(WorkList, ChunksOfAZigzagGoAsOneWhereBlocksAreFewer) {
  const PackedLayout layout({0, 1600});
  const Problem problem{layout, layout, Mask::causal()};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 8), {"all_gather"});
  const std::vector<RankTiles> ranks{{&plan.tiles(plan.steps_of_rank[3].back())}};
  const auto queries = [&](int rows, Neighbours neighbours) {
    return query_items(problem, ranks, rows, ItemOrder::longest_first, neighbours);
  };
  EXPECT_EQ(queries(256, Neighbours::apart).items.size(), 2);
  EXPECT_EQ(queries(128, Neighbours::joined).items.size(), 2);
  EXPECT_FALSE(has_gap(queries(128, Neighbours::joined).items[0]));
  const HostWorkList one = queries(256, Neighbours::joined);
  ASSERT_EQ(one.items.size(), 1);
  EXPECT_EQ(one.items[0].own, (Segment{0, 300, 1, 0, 200, 100, 800}));
  const HostWorkList keys =
      key_items(problem, ranks, 128, ItemOrder::longest_first, Neighbours::joined);
  for (const WorkItem& item : keys.items) EXPECT_EQ(item.partner_end - item.partner_begin, 1);
}

TEST(WorkList, ChunksGoAsOneWhereOneLiesBelowTheOtherAndNeitherHasAGap) {
  const Segment first{7, 10, 2, 100, 5}, second{7, 30, 2, 105, 4};
  ASSERT_TRUE(can_join(first, second));
  const Segment both = joined(first, second);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(both.position(i), first.position(i));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(both.position(5 + i), second.position(i));
  EXPECT_TRUE(can_join(joined(first, {7, 20, 2, 105, 4}), {7, 30, 2, 109, 3})) << "it goes on";
  EXPECT_FALSE(can_join(both, {7, 50, 2, 109, 3})) << "a second gap";
  EXPECT_FALSE(can_join({7, 2, 2, 97, 3}, both)) << "the second has one";
  EXPECT_FALSE(can_join(first, {7, 30, 2, 106, 4})) << "others lie between";
  EXPECT_FALSE(can_join(first, {8, 30, 2, 105, 4})) << "of another sequence";
  EXPECT_FALSE(can_join(first, {7, 30, 1, 105, 4})) << "another stride";
  EXPECT_FALSE(can_join(first, {7, 18, 2, 105, 4})) << "positions turn back";
  EXPECT_FALSE(can_join(first, {7, 30, 2, 105, 0})) << "nothing";
}

// Documents and items about the sizes that kernels use: a whole block, a row more, several.
TEST(WorkList, ItemsOfHundredsOfRowsComputeWhatTheTilesSay) {
  const PackedLayout layout_q({0, 256, 513, 1025}, {0, 256, 520, 1040});
  const PackedLayout layout_k({0, 512, 769, 1070});
  for (const Mask& mask : {Mask::sliding_window(60, 3), Mask::chunked(90, Align::bottom_right)}) {
    const Problem problem{layout_q, layout_k, mask};
    const Plan plan = build_plan(problem, place(problem, "contiguous", 1), {"p2p"});
    const std::vector<RankTiles> ranks{{&plan.tiles(plan.steps_of_rank[0][0]), 5, 7}};
    const Pairs want = pairs_of_tiles(problem, ranks);
    for (const int rows : {128, 192, 255, 256, 257, 511, 512, 513}) {
      EXPECT_EQ(want, pairs_of_items(problem, query_items(problem, ranks, rows), true)) << rows;
      EXPECT_EQ(want, pairs_of_items(problem, key_items(problem, ranks, rows), false)) << rows;
    }
  }
}

// Of a block, which is what a kernel computes.
int64_t pairs_of_block(const Problem& problem, const HostWorkList& list, const WorkItem& item,
                       bool of_queries) {
  const SequenceMask mask{problem.mask, item.len_q, item.len_k};
  int64_t met = 0;
  for (int p = item.partner_begin; p < item.partner_end; ++p) {
    const Segment& partner = list.partners[p];
    met += of_queries ? keys_seen(mask, partner, item.own, item.begin, item.end).size()
                      : queries_seeing(mask, partner, item.own, item.begin, item.end).size();
  }
  return met * (item.end - item.begin);
}

// Two ranks may have a part of one each. Unless one has half of the work.
TEST(WorkList, ItemsOfADocumentGoWhereItsLongestWouldBe) {
  Random random(17);
  int by_document = 0;
  for (int number = 0; number < 200; ++number) {
    const Problem problem = testing::random_problem(random);
    const Plan plan = testing::random_plan(random, problem);
    std::vector<RankTiles> ranks;
    for (const auto& steps : plan.steps_of_rank)
      ranks.push_back({&plan.tiles(steps[0]), 1000 * static_cast<int>(ranks.size()),
                       2000 * static_cast<int>(ranks.size())});
    const int rows = random.choice<int>({1, 4, 32});
    const bool of_queries = number % 2 == 0;
    const auto made = of_queries ? query_items : key_items;
    const HostWorkList alone =
        made(problem, ranks, rows, ItemOrder::longest_first, Neighbours::apart);
    const HostWorkList together =
        made(problem, ranks, rows, ItemOrder::by_document, Neighbours::apart);
    ASSERT_EQ(alone.order, ItemOrder::longest_first);
    ASSERT_EQ(together.rows_met, alone.rows_met);
    ASSERT_EQ(together.partners, alone.partners);
    using Document = std::pair<int, int>;
    std::map<Document, std::vector<WorkItem>> of_document;
    std::vector<Document> documents;
    std::map<Document, int64_t> pairs;
    int64_t work = 0, most = 0;
    for (const WorkItem& item : alone.items) {
      const Document document{item.own.row / (of_queries ? 1000 : 2000), item.own.seq};
      const int64_t block = pairs_of_block(problem, alone, item, of_queries);
      work += block, most = std::max(most, pairs[document] += block);
      if (of_document[document].empty()) documents.push_back(document);
      of_document[document].push_back(item);
    }
    const bool goes = !alone.items.empty() && 2 * most < work;
    ASSERT_EQ(together.order, goes ? ItemOrder::by_document : ItemOrder::longest_first);
    by_document += goes;
    if (!goes) documents = {{}}, of_document[{}] = alone.items;
    size_t next = 0;
    for (const Document& document : documents)
      for (const WorkItem& item : of_document[document]) {
        const WorkItem& here = together.items.at(next++);
        ASSERT_EQ(std::tuple(here.own, here.begin, here.end, here.partner_begin, here.partner_end),
                  std::tuple(item.own, item.begin, item.end, item.partner_begin, item.partner_end));
      }
    ASSERT_EQ(next, together.items.size());
  }
  EXPECT_GT(by_document, 40);
  EXPECT_LT(by_document, 160);
}

TEST(WorkList, NoItemIsLongerThanAskedAndAllButTheLastAreAsLong) {
  const PackedLayout layout({0, 1100});
  const Problem problem{layout, layout, Mask::full()};
  const Segment all{.len = 1100};
  const std::vector<Tile> tiles{{all, all}};
  for (const int rows : {64, 256, 257, 512, 1100, 2000})
    for (const HostWorkList& list :
         {query_items(problem, {{&tiles}}, rows), key_items(problem, {{&tiles}}, rows)}) {
      EXPECT_EQ(list.items.size(), (1100 + rows - 1) / rows) << rows;
      for (const WorkItem& item : list.items) {
        EXPECT_EQ(item.begin % rows, 0) << rows;
        EXPECT_EQ(item.end, std::min(item.begin + rows, 1100)) << rows;
      }
    }
}

TEST(WorkList, RefusesTilesThatNoKernelWouldCompute) {
  const Problem problem{{{0, 3}, {0, 3}}, {{0, 3}, {0, 3}}, Mask::full()};
  const Segment sound{.pos = 0, .stride = 1, .row = 0, .len = 3};
  Segment before = sound, above = sound;
  before.pos = -1, above.row = -1;
  for (const Segment& own : {before, above, sound}) {
    const std::vector<Tile> of_queries{{own, sound}}, of_keys{{sound, own}};
    const auto items = [&](const std::vector<Tile>& tiles, auto build) {
      return build(problem, std::vector<RankTiles>{{&tiles}}, 64).items.size();
    };
    const auto query = [](auto&&... of) { return query_items(of...); };
    const auto key = [](auto&&... of) { return key_items(of...); };
    if (own == sound) {
      EXPECT_EQ(items(of_queries, query), 1);
      EXPECT_EQ(items(of_keys, key), 1);
    } else {
      EXPECT_THROW(items(of_queries, query), InvalidArgument);
      EXPECT_THROW(items(of_keys, key), InvalidArgument);
    }
  }
}

}  // namespace
}  // namespace ringside
