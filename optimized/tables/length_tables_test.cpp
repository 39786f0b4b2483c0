// Tables filled from lengths, in plain loops on the host: against the partitions and the definition
// of what is visible.
#include "optimized/tables/length_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "optimized/tables/build_work_list.h"
#include "optimized/tables/test_host_tables.h"

namespace ringside {
namespace {

using testing::HostTables;
using testing::kKeyRow;
using testing::kQueryRow;
using testing::Random;
using testing::random_capacity;

// The tokens in the rows of a buffer that begins in some row of a matrix: one in each.
struct RowsOfMatrix {
  int first_row;
  std::map<int, std::pair<int, int>> token_of_row;

  void hold(const Segment& s) {
    for (int i = 0; i < s.len; ++i) {
      const std::pair token(s.seq, s.position(i));
      EXPECT_GE(s.row + i, first_row);
      EXPECT_EQ(token_of_row.emplace(s.row + i, token).first->second, token);
    }
  }
};

using Pair = std::array<int, 4>;  // head, sequence, positions of query and key

// What a kernel would compute from the lists of one side.
std::map<Pair, int> pairs_of(const HostTables& tables, Operand side) {
  std::map<Pair, int> times;
  const LengthTables& t = tables.t;
  for (size_t number = 0; number < tables.lists().size(); ++number) {
    const LengthTables::List& list = tables.lists()[number];
    if (list.side != side) continue;
    RowsOfMatrix own_rows{side == Operand::q ? kQueryRow : kKeyRow, {}};
    RowsOfMatrix partner_rows{side == Operand::q ? kKeyRow : kQueryRow, {}};
    for (const WorkItem& item : tables.items(list)) {
      own_rows.hold(item.own);
      for (int p = item.partner_begin; p < item.partner_end; ++p) partner_rows.hold(t.partners[p]);
    }
    for (const WorkItem& item : tables.items(list))
      for (int p = item.partner_begin; p < item.partner_end; ++p)
        for (int i = item.begin; i < item.end; ++i)
          for (int j = 0; j < t.partners[p].len; ++j) {
            const int seq = item.own.seq, own = item.own.position(i);
            const int other = t.partners[p].position(j);
            const auto [q, k] = side == Operand::q ? std::pair(own, other) : std::pair(other, own);
            EXPECT_EQ(t.partners[p].seq, seq);
            if (t.mask.allows(q, k, t.q.cu_seqlens[seq + 1] - t.q.cu_seqlens[seq],
                              t.k.cu_seqlens[seq + 1] - t.k.cu_seqlens[seq]))
              for (int h = tables.heads_of_list(number).begin; h < tables.heads_of_list(number).end;
                   ++h)
                ++times[{h, seq, q, k}];
          }
  }
  return times;
}

std::map<Pair, int> visible_pairs(const Problem& problem) {
  std::map<Pair, int> once;
  for (int h = 0; h < problem.num_heads; ++h)
    for (int s = 0; s < problem.layout_q.batch(); ++s)
      for (int i = 0; i < problem.layout_q.len(s); ++i)
        for (int j = 0; j < problem.layout_k.len(s); ++j)
          if (problem.mask.allows(i, j, problem.layout_q.len(s), problem.layout_k.len(s)))
            once[{h, s, i, j}] = 1;
  return once;
}

TEST(LengthTables, ListsMeetEveryVisiblePairOnceForAnyLengths) {
  Random random(2);
  for (int number = 0; number < testing::cases(5'000); ++number) {
    Problem problem = testing::random_problem(random);
    const Capacity capacity = random_capacity(random, problem);
    const Neighbours queries = random.coin() ? Neighbours::joined : Neighbours::apart;
    HostTables tables(capacity, random.integer(1, 9), ListOrder(random.integer(0, 2)), queries);
    for (int again = 0; again < 2; ++again) {  // the same tables, other lengths
      SCOPED_TRACE("case " + std::to_string(number) + ": " + capacity.partition + " over " +
                   capacity.comm.name + ", cp_size " + std::to_string(capacity.cp_size));
      tables.fill(problem.layout_q, problem.layout_k);
      if (HasFatalFailure()) return;
      const auto want = visible_pairs(problem);
      ASSERT_EQ(want, pairs_of(tables, Operand::q));
      if (HasFailure()) return;
      ASSERT_EQ(want, pairs_of(tables, Operand::kv));
      problem.layout_q = problem.layout_k = PackedLayout();
    }
  }
}

TEST(LengthTables, ItemsOfASegmentGoTogetherWhereAListIsByDocument) {
  Random random(23);
  int several = 0;
  for (int number = 0; number < testing::cases(500); ++number) {
    const Problem problem = testing::random_problem(random);
    HostTables tables(random_capacity(random, problem), random.integer(1, 4),
                      ListOrder::by_document);
    tables.fill(problem.layout_q, problem.layout_k);
    for (const LengthTables::List& list : tables.lists()) {
      std::set<int> begun;
      const WorkItem* before = nullptr;
      const auto items = tables.items(list);
      for (const WorkItem& item : items) {
        if (before != nullptr && before->own == item.own) {
          if (list.side == Operand::q)
            EXPECT_LT(item.begin, before->begin);
          else
            EXPECT_GT(item.begin, before->begin);
          ++several;
        } else {
          EXPECT_TRUE(begun.insert(item.own.row).second) << "case " << number;
        }
        before = &item;
      }
    }
  }
  EXPECT_GT(several, 1000);
}

TEST(LengthTables, OfAnItemInTurnThoseOfTheKeysBeforeComeEarlier) {
  Random random(24);
  int several = 0;
  for (int number = 0; number < testing::cases(500); ++number) {
    Problem problem = testing::random_problem(random);
    std::vector<int32_t> begins{0};  // of documents with items in many buckets
    for (int seq = random.integer(1, 4); seq > 0; --seq)
      begins.push_back(begins.back() + random.integer(0, 3000));
    problem.layout_q = problem.layout_k = PackedLayout(begins);
    HostTables tables(random_capacity(random, problem), random.choice<int>({64, 128}),
                      ListOrder::in_turn);
    tables.fill(problem.layout_q, problem.layout_k);
    for (const LengthTables::List& list : tables.lists()) {
      if (list.side != Operand::kv) continue;
      std::map<std::pair<int, int>, int> begun;  // of segments, by sequence and row
      for (const WorkItem& item : tables.items(list)) {
        const auto [before, is_first] =
            begun.emplace(std::pair(item.own.seq, item.own.row), item.begin);
        if (is_first) continue;
        EXPECT_LT(before->second, item.begin) << "case " << number;
        before->second = item.begin, ++several;
      }
    }
  }
  EXPECT_GT(several, 1000);
}

// Where an item's block lies, and which tokens it has.
using BlockOfItem = std::tuple<int, std::vector<int>>;  // first row, positions

BlockOfItem block_of(const WorkItem& item) {
  std::vector<int> positions;
  for (int i = item.begin; i < item.end; ++i) positions.push_back(item.own.position(i));
  return {item.own.row + item.begin, positions};
}

TEST(LengthTables, ChunksOfQueriesGoAsOneWhereThoseOfThePlanDo) {
  Random random(29);
  int together = 0;
  for (int number = 0; number < testing::cases(2'000); ++number) {
    const Problem problem = testing::random_problem(random);
    Capacity c = random_capacity(random, problem);
    c.partition = random.coin() ? "zigzag" : "whole_pack_zigzag";
    c.comm = {random.coin() ? "all_gather" : "p2p"};  // queries are those at home
    const int rows_of_item = random.integer(2, 12);
    HostTables tables(c, rows_of_item, ListOrder::longest_first, Neighbours::joined);
    tables.fill(problem.layout_q, problem.layout_k);
    const Plan plan = build_plan(problem, place(problem, c.partition, c.cp_size), c.comm);
    SCOPED_TRACE("case " + std::to_string(number) + ": " + c.partition + " over " + c.comm.name +
                 ", cp_size " + std::to_string(c.cp_size));
    size_t list = 0;
    for (int step = 0; step < plan.num_steps(); ++step)
      for (int rank = 0; rank < c.cp_size; ++rank) {
        if (tables.plan().tiles(tables.plan().steps_of_rank[rank][step]).empty()) continue;
        const auto& tiles = plan.tiles(plan.steps_of_rank[rank][step]);
        std::set<BlockOfItem> want, got;
        for (const WorkItem& item :
             query_items(problem, {{&tiles, kQueryRow, kKeyRow}}, rows_of_item,
                         ItemOrder::longest_first, Neighbours::joined)
                 .items)
          want.insert(block_of(item)), together += item.own.gap_at < item.own.len;
        for (const WorkItem& item : tables.items(tables.lists()[list])) got.insert(block_of(item));
        ASSERT_EQ(want, got) << "step " << step << ", rank " << rank;
        list += 2;
      }
  }
  EXPECT_GT(together, testing::cases(500));
}

const NamedPartition& partition_of(const LengthTables& t) {
  const PartitionRule& rule = t.q.home.owned.rule;
  return *std::ranges::find_if(partitions(), [&](const NamedPartition& p) {
    return p.rule.kind == rule.kind && p.rule.of_stream == rule.of_stream;
  });
}

// A row is gathered where its group's segments have it, padding included, once, and every token is;
// a row of nobody lands nowhere.
void expect_rows_where_they_are_gathered(const LengthTables& t, const LengthTables::Side& x) {
  std::vector<int32_t> want(x.home_rows, kNobody);
  const LengthTables::Groups& g = x.resident;
  for (int group = 0; x.is_gathered() && group < g.owned.groups(); ++group)
    for (int i = 0; i < t.segments_of(g); ++i) {
      const Segment& s = t.first_segment(g, group)[i];
      for (int row = 0; row < s.len; ++row) {
        const int32_t home = x.home_of_global[x.cu_seqlens_padded[s.seq] + s.position(row)];
        ASSERT_EQ(home / x.home.rows / g.owned.ranks, group) << "a row of another group";
        ASSERT_EQ(want[home], kNobody) << "one row in two places";
        want[home] = s.row + row;
      }
    }
  ASSERT_EQ(want, std::vector<int32_t>(x.resident_of_home, x.resident_of_home + x.home_rows));
}

void expect_rows_where_the_partition_puts_them(const Problem& problem, const HostTables& tables) {
  const LengthTables& t = tables.t;
  for (const auto& [x, layout] :
       {std::pair(&t.q, &problem.layout_q), std::pair(&t.k, &problem.layout_k)})
    for (int rank = 0; rank < t.cp_size(); ++rank) {
      const Shard shard = partition_of(t).shard(*layout, t.cp_size(), rank);
      for (const Segment& s : shard)
        for (int i = 0; i < s.len; ++i) {
          const int global = layout->row_begin(s.seq) + s.position(i);
          const int home = rank * x->home.rows + s.row + i;
          ASSERT_EQ(x->home_of_global[global], home);
          ASSERT_EQ(x->global_of_home[home], s.position(i) < layout->len(s.seq) ? global : ~global);
        }
      for (int h = num_rows(shard); h < x->home.rows; ++h)
        ASSERT_EQ(x->global_of_home[rank * x->home.rows + h], kNobody);
    }
  expect_rows_where_they_are_gathered(t, t.q), expect_rows_where_they_are_gathered(t, t.k);
  for (int row = problem.layout_q.num_rows(); row < t.q.max_rows; ++row)
    ASSERT_EQ(t.q.home_of_global[row], kNobody);
}

TEST(LengthTables, RowsOfBuffersAreWhereThePartitionPutsThem) {
  Random random(3);
  for (int number = 0; number < testing::cases(20'000); ++number) {
    const Problem problem = testing::random_problem(random);
    HostTables tables(random_capacity(random, problem), 4);
    tables.fill(problem.layout_q, problem.layout_k);
    expect_rows_where_the_partition_puts_them(problem, tables);
    if (HasFatalFailure()) return;
  }
}

TEST(LengthTables, RowsOfManySequencesAreWhereThePartitionPutsThem) {
  Random random(5);
  for (int number = 0; number < 60; ++number) {
    std::vector<int32_t> cu{0}, padded{0};
    for (int s = random.integer(1, 4 * LengthTables::kChunk); s > 0; --s) {
      cu.push_back(cu.back() + random.integer(0, 5));
      padded.push_back(padded.back() + cu.back() - cu.end()[-2] + random.integer(0, 2));
    }
    Problem problem;
    problem.layout_q = problem.layout_k = PackedLayout(cu, padded);
    HostTables tables(random_capacity(random, problem), 64);
    tables.fill(problem.layout_q, problem.layout_k);
    expect_rows_where_the_partition_puts_them(problem, tables);
    if (HasFatalFailure()) return;
  }
}

// In the order of sequences, whatever rows they lie in; one row has no stride.
Shard in_order(const Shard& segments) {
  Shard shard;
  for (const Segment& s : segments) append(shard, s.seq, s.pos, s.len == 1 ? 1 : s.stride, s.len);
  for (Segment& s : shard) s.row = 0;
  std::ranges::sort(shard, {}, [](const Segment& s) { return std::pair(s.seq, s.pos); });
  return shard;
}

// Stripes of some ranks stay apart: a plan joins those of a sequence that has one turn of them.
bool are_stripes_of_some(const PartitionRows& owned) {
  return owned.rule.kind == PartitionKind::striped && owned.ranks > 1 && owned.groups() > 1;
}

TEST(LengthTables, BuffersHaveTheSegmentsOfThePlanThatKnowsTheLengths) {
  Random random(7);
  int gathered = 0;
  for (int number = 0; number < testing::cases(2'000); ++number) {
    Problem problem = testing::random_problem(random);
    problem.mask = Mask::full();  // no keys stay behind
    const Capacity c = random_capacity(random, problem);
    HostTables tables(c, 4);
    tables.fill(problem.layout_q, problem.layout_k);
    const Plan plan = build_plan(problem, place(problem, c.partition, c.cp_size), c.comm);
    SCOPED_TRACE("case " + std::to_string(number) + ": " + c.partition + " over " + c.comm.name +
                 ", cp_size " + std::to_string(c.cp_size));
    for (int step = 0; step < plan.num_steps(); ++step)
      for (int rank = 0; rank < c.cp_size; ++rank)
        for (const Operand side : {Operand::q, Operand::kv}) {
          const Step& known = plan.steps_of_rank[rank][step];
          const Shard& shard = plan.shard(side == Operand::q ? known.q : known.kv);
          const LengthTables::Groups& g = tables.t.side(side).resident;
          if (shard.empty() || are_stripes_of_some(g.owned)) continue;
          const auto& buffer = tables.buffer_of(step, rank, side);
          const Segment* first = tables.t.first_segment(g, buffer.group);
          ASSERT_EQ(in_order(shard), in_order({first, first + tables.t.segments_of(g)}));
          gathered += g.owned.ranks > 1;
        }
  }
  EXPECT_GT(gathered, testing::cases(1'000));
}

TEST(LengthTables, LengthsThatDoNotFitAreSeen) {
  LengthTables t;
  t.max_batch = 2, t.multiple_of = 4, t.q.max_rows = 16;
  const auto fit = [&](std::array<int, 3> cu, std::array<int, 3> padded) {
    return t.fits(t.q, 0, {cu[0], cu[1], padded[0], padded[1]}) &&
           t.fits(t.q, 1, {cu[1], cu[2], padded[1], padded[2]});
  };
  EXPECT_TRUE(fit({0, 3, 7}, {0, 4, 16}));
  EXPECT_TRUE(fit({0, 0, 0}, {0, 0, 0}));
  EXPECT_FALSE(fit({1, 3, 7}, {0, 4, 16})) << "does not start at 0";
  EXPECT_FALSE(fit({0, 3, 7}, {4, 8, 16})) << "does not start at 0";
  EXPECT_FALSE(fit({0, 5, 7}, {0, 4, 16})) << "more tokens than rows";
  EXPECT_FALSE(fit({0, 3, 2}, {0, 4, 16})) << "falls";
  EXPECT_FALSE(fit({0, 3, 7}, {0, 8, 4})) << "falls";
  EXPECT_FALSE(fit({0, 3, 7}, {0, 4, 20})) << "more rows than room";
  EXPECT_FALSE(fit({0, 3, 7}, {0, 5, 16})) << "not a multiple";
  EXPECT_FALSE(fit({0, -2147483647, 7}, {0, 4, 16})) << "wraps";
  t.max_seqlen = 4;
  EXPECT_TRUE(fit({0, 3, 7}, {0, 4, 16}));
  EXPECT_FALSE(fit({0, 3, 8}, {0, 4, 16})) << "more tokens than a sequence may have";
}

TEST(LengthTables, HeavierItemsComeEarlier) {
  EXPECT_EQ(LengthTables::bucket_of(0), LengthTables::kNoItem);
  int before = LengthTables::bucket_of(1);
  EXPECT_EQ(before, LengthTables::kBuckets - 1);
  for (int64_t weight = 1; weight < int64_t{1} << 50; weight += 1 + weight / 7) {
    const int bucket = LengthTables::bucket_of(weight);
    ASSERT_TRUE(0 <= bucket && bucket <= before) << weight;
    ASSERT_LE(before - bucket, weight < 512 ? 2 : 1) << "a jump at " << weight;
    before = bucket;
  }
  EXPECT_EQ(before, 0);
}

}  // namespace
}  // namespace ringside
