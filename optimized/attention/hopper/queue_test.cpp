// The queue of the Hopper kernels, on the host: that it has each entry once, keeps all processors
// busy to its end, and lets the cache serve what items share.
#include "optimized/attention/hopper/queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "optimized/tables/build_work_list.h"
#include "optimized/tables/heads_at_a_time.h"
#include "reference/transport/transport.h"

namespace ringside::hopper {
namespace {

TEST(Queue, HasEachItemOfEachHeadOnceAndShortOnesBehindSectionsOfLongOnes) {
  for (const int heads : {1, 2, 5, 16})
    for (const int of_section : {1, 2, 3, 16})
      for (const int items : {1, 2, 7, 40}) {
        if (of_section > heads) continue;
        const QueueOrder order{heads, of_section};
        std::set<std::pair<int, int>> seen;
        std::tuple<bool, int, int> before{false, -1, -1};  // whether short, section, item
        for (unsigned i = 0; i < order.size(items); ++i) {
          const QueueEntry entry = order.ending_together(i, items);
          ASSERT_TRUE(entry.item >= 0 && entry.item < items);
          ASSERT_TRUE(entry.head >= 0 && entry.head < heads);
          seen.insert({entry.item, entry.head});
          const bool is_short = entry.item >= items / 2;
          const std::tuple<bool, int, int> here{is_short, is_short ? 0 : entry.head / of_section,
                                                entry.item};
          ASSERT_LE(before, here);
          before = here;
        }
        ASSERT_EQ(seen.size(), static_cast<size_t>(items) * heads);
      }
}

TEST(Queue, HasEachItemOfEachHeadOnceInSections) {
  for (const auto& [heads, of_section] : {std::pair{1, 1}, {5, 2}, {16, 2}, {16, 16}}) {
    const QueueOrder order{heads, of_section};
    std::tuple<int, int, int> before{0, -1, -1};  // section, item, head
    for (unsigned i = 0; i < order.size(40); ++i) {
      const auto [item, head] = order.in_sections(i, 40);
      ASSERT_TRUE(item >= 0 && item < 40 && head >= 0 && head < heads);
      const std::tuple<int, int, int> here{head / of_section, item, head};
      ASSERT_LT(before, here);
      before = here;
    }
  }
}

// Microseconds that a launch takes longer than if its blocks of threads shared its work evenly, as
// a fraction: items take `cost` each, and each block of threads has `ahead` more of them in hand.
using EntryOf = QueueEntry (QueueOrder::*)(unsigned, int) const;
double idle_share(const QueueOrder& order, const std::vector<double>& cost, int blocks, int ahead,
                  EntryOf entry_of = &QueueOrder::ending_together) {
  const int items = static_cast<int>(cost.size());
  const auto cost_of = [&](unsigned i) {
    return cost[static_cast<size_t>((order.*entry_of)(i, items).item)];
  };
  using Idle = std::pair<double, int>;  // when, and which block
  std::priority_queue<Idle, std::vector<Idle>, std::greater<>> idle;
  std::vector<std::deque<unsigned>> hands(static_cast<size_t>(blocks));
  for (int block = 0; block < blocks; ++block) idle.push({0, block});
  double end = 0, sum = 0;
  for (unsigned next = 0; !idle.empty();) {
    const auto [now, block] = idle.top();
    idle.pop();
    auto& hand = hands[static_cast<size_t>(block)];
    while (hand.size() <= static_cast<size_t>(ahead) && next < order.size(items))
      hand.push_back(next++);
    if (hand.empty()) continue;
    const double until = now + cost_of(hand.front());
    sum += cost_of(hand.front());
    hand.pop_front();
    end = std::max(end, until);
    idle.push({until, block});
  }
  return end * blocks / sum - 1;
}

// Causal documents of so many blocks of rows each, the longest first, as lists have them by
// document or by item; 3 microseconds an item and 1.57 a block of keys.
std::vector<double> causal_costs(const std::vector<int>& documents, bool by_document) {
  std::vector<double> cost;
  for (const int blocks : documents)
    for (int block = blocks; block > 0; --block) cost.push_back(3 + 1.57 * block);
  if (!by_document) std::ranges::sort(cost, std::greater());
  return cost;
}

TEST(Queue, KeepsABlockOfThreadsBusyToTheEnd) {
  const std::vector<int> long_tail{63, 46, 28, 25, 19, 15, 11, 9, 8, 7, 6, 5, 4, 4, 3, 2, 2, 1, 1};
  const QueueOrder order{16, 2};
  for (const bool by_document : {false, true}) {
    const auto idle = [&](const std::vector<int>& documents) {
      return idle_share(order, causal_costs(documents, by_document), 132, 2);
    };
    EXPECT_LT(idle(long_tail), 0.03) << by_document;
    EXPECT_LT(idle({128, 128}), 0.01) << by_document;
    EXPECT_LT(idle({256}), 0.01) << by_document;
    EXPECT_LT(idle(std::vector<int>(16, 16)), by_document ? 0.04 : 0.02);
  }
}

// Backward, 16 heads, causal: 5 microseconds an item and 2.2 a block of 64 queries.
TEST(Queue, HasHeadsSideBySideWhereTheLastSectionWouldEndLate) {
  int side_by_side = 0, gain = 0;
  for (const auto& [documents, tokens] : {std::pair{1, 2048},
                                          {1, 4096},
                                          {1, 8192},
                                          {2, 4096},
                                          {2, 8192},
                                          {1, 16384},
                                          {2, 16384},
                                          {1, 32768},
                                          {1, 65536},
                                          {16, 2048}}) {
    std::vector<double> cost;
    double all = 0;  // blocks
    for (int block = tokens / 128; block > 0; --block)
      for (int document = 0; document < documents; ++document)
        cost.push_back(5 + 2.2 * 2 * block), all += block;
    const auto idle = [&](int of_section) {
      return idle_share({16, of_section}, cost, 132, 1, &QueueOrder::in_sections);
    };
    const std::string name = std::to_string(documents) + " x " + std::to_string(tokens);
    if (ends_late_by_sections(tokens / 128 / all, 16, 132)) {
      ++side_by_side;
      EXPECT_LE(idle(16), idle(2) + 1e-9) << name;  // of 2k all items are taken at once
      gain += idle(16) < idle(2) - 0.04;
      EXPECT_GT(idle(2), 0.04) << name;
    } else {
      EXPECT_LT(idle(2), 0.07) << name;
    }
  }
  EXPECT_EQ(side_by_side, 6);
  EXPECT_EQ(gain, 5);
}

TEST(Queue, CountsUpToItsBound) {
  const QueueOrder order{16, 2};
  const int items = static_cast<int>(kMostEntries / 16 - 1);
  const QueueEntry last = order.ending_together(order.size(items) - 1, items);
  EXPECT_EQ(last.item, items - 1);
  EXPECT_EQ(last.head, 15);
}

TEST(Queue, HasSectionsOfTwoKeyHeadsAtLeastAndOfMoreWhereTheyFit) {
  EXPECT_EQ(heads_of_section(16, 1, int64_t{16} << 20), 2);
  EXPECT_EQ(heads_of_section(16, 1, int64_t{1} << 30), 2);
  EXPECT_EQ(heads_of_section(16, 1, int64_t{8} << 20), 4);
  EXPECT_EQ(heads_of_section(64, 8, int64_t{16} << 20), 16);
  EXPECT_EQ(heads_of_section(16, 1, 0), 16);
  EXPECT_EQ(heads_of_section(1, 1, int64_t{1} << 30), 1);
}

// What memory has to bring to forward items of 128 rows, and how long that takes. A model: each
// processor has three items in hand, and a block of keys of each follows the one before when it has
// been weighed and the next one is there; a cache forgets what was used longest ago; memory brings
// one block after the other. It says within a tenth what calls on an H100 and an H200 take.
struct Machine {
  double bytes_of_microsecond;
  static constexpr double kBlock = 1.42, kItem = 1.6;  // microseconds
  static constexpr int kProcessors = 132, kInHand = 3;
};
constexpr Machine kH100{2.9e6}, kH200{4.2e6};
constexpr int64_t kTile = 128 * 128 * 2, kCached = 30'000'000 / kTile;

class Cache {
 public:
  bool has(std::array<int, 3> tile) {  // from now on it does
    const auto found = place_.find(tile);
    if (found != place_.end()) {
      tiles_.splice(tiles_.begin(), tiles_, found->second);
      return true;
    }
    tiles_.push_front(tile);
    place_[tile] = tiles_.begin();
    if (static_cast<int64_t>(tiles_.size()) > kCached)
      place_.erase(tiles_.back()), tiles_.pop_back();
    return false;
  }

 private:
  std::list<std::array<int, 3>> tiles_;  // of what, of which head, where; the last one used first
  std::map<std::array<int, 3>, std::list<std::array<int, 3>>::iterator> place_;
};

struct Spent {
  double microseconds = 0, bytes = 0;
};

class Model {
 public:
  Model(const std::vector<int>& lengths, ItemOrder order, int heads) : order_{heads, 2} {
    std::vector<int32_t> offsets{0};
    for (const int length : lengths) offsets.push_back(offsets.back() + length);
    const PackedLayout layout(offsets);
    const Problem problem{layout, layout, Mask::causal()};
    const Plan plan = build_plan(problem, place(problem, "contiguous", 1), {"p2p"});
    items_ =
        query_items(problem, {{&plan.tiles(plan.steps_of_rank[0][0]), 0, 0}}, 128, order).items;
  }

  Spent run_on(const Machine& machine) const {
    Cache cache;
    double memory = 0;  // until when it is busy
    Spent spent;
    const auto bring = [&](double now) {
      spent.bytes += kTile;
      return memory = std::max(memory, now) + kTile / machine.bytes_of_microsecond;
    };
    const auto load = [&](int what, int head, int at, double now) {
      return cache.has({what, head, at}) ? now : bring(now);
    };
    struct Processor {
      std::deque<QueueEntry> hand;
      int blocks = -1;  // of keys that the first item has weighed; -1: it has not begun
    };
    std::vector<Processor> processors(Machine::kProcessors);
    using Event = std::pair<double, int>;  // when, and whose
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
    for (int i = 0; i < Machine::kProcessors; ++i) events.push({0, i});
    const int items = static_cast<int>(items_.size());
    for (unsigned next = 0; !events.empty();) {
      const auto [now, i] = events.top();
      events.pop();
      auto& [hand, blocks] = processors[static_cast<size_t>(i)];
      while (hand.size() < Machine::kInHand && next < order_.size(items))
        hand.push_back(order_.ending_together(next++, items));
      if (hand.empty()) {
        spent.microseconds = std::max(spent.microseconds, now);
        continue;
      }
      const WorkItem& item = items_[static_cast<size_t>(hand.front().item)];
      const int head = hand.front().head, first = item.own.row;
      if (blocks < 0) {  // its queries
        blocks = 0;
        const double there = load(0, head, first + item.begin, now);
        events.push({std::max(now + Machine::kItem, there), i});
      } else if (blocks * 128 < item.end) {  // keys and values
        const double keys = load(1, head, first + 128 * blocks, now);
        const double values = load(2, head, first + 128 * blocks, now);
        ++blocks;
        events.push({std::max({now + Machine::kBlock, keys, values}), i});
      } else {  // its results
        static_cast<void>(cache.has({3, head, first + item.begin}));
        bring(now);
        hand.pop_front(), blocks = -1;
        events.push({now, i});
      }
    }
    return spent;
  }

  // What there is, once.
  double least_bytes() const {
    return 4.0 * kTile * static_cast<double>(items_.size()) * order_.heads;
  }

 private:
  QueueOrder order_;
  std::vector<WorkItem> items_;
};

TEST(Queue, BringsKeysOfShortDocumentsOnceWhereTheirItemsGoTogether) {
  const std::vector<int> tail{62,  1330, 761, 8000, 675,  555,  833, 704, 809, 112, 1764,
                              325, 1644, 631, 804,  2977, 8000, 497, 400, 819, 1066};
  const auto all = [](int length) { return std::vector<int>(size_t(32768 / length), length); };
  struct Pack {
    std::vector<int> lengths;
    double most_apart, most_together;  // of the least that memory can bring
  };
  for (const auto& [lengths, most_apart, most_together] :
       {Pack{all(256), 1.3, 1.02}, Pack{all(512), 1.8, 1.05}, Pack{all(1024), 2.3, 1.1},
        Pack{all(2048), 3.0, 1.3}, Pack{tail, 2.8, 1.9}, Pack{all(16384), 14, 14}}) {
    const Model apart(lengths, ItemOrder::longest_first, 16);
    const Model together(lengths, ItemOrder::by_document, 16);
    for (const Machine& machine : {kH100, kH200}) {
      const Spent before = apart.run_on(machine), now = together.run_on(machine);
      const auto told = [](const Spent& spent) {
        return std::to_string(spent.microseconds) + " us, " + std::to_string(spent.bytes) +
               " bytes";
      };
      RecordProperty("documents_up_to_" + std::to_string(std::ranges::max(lengths)) + "_at_" +
                         std::to_string(static_cast<int>(machine.bytes_of_microsecond)),
                     "apart " + told(before) + "; together " + told(now));
      EXPECT_LT(before.bytes, most_apart * apart.least_bytes()) << lengths.back();
      EXPECT_LT(now.bytes, most_together * together.least_bytes()) << lengths.back();
      EXPECT_LT(now.microseconds, 1.01 * before.microseconds) << lengths.back();
    }
  }
}

}  // namespace
}  // namespace ringside::hopper
