// Tables filled from lengths, in plain loops on the host: against the partitions and the definition
// of what is visible.
#include "optimized/tables/length_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "optimized/tables/length_lists.h"
#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

constexpr int kQueryRow = 1000, kKeyRow = 5000;  // where buffers begin in their matrices

// A capacity, the memory its tables need, and what length_tables.cu does with it, one entry after
// the other.
class HostTables {
 public:
  HostTables(const Capacity& capacity, int rows_of_item)
      : plan_(stand_in_plan(capacity)), lists_(capacity, plan_, t) {
    for (int rank = 0; rank < capacity.cp_size; ++rank) {
      home_row_of_rank_[0].push_back(rank * t.q.home.rows);
      home_row_of_rank_[1].push_back(rank * t.k.home.rows);
    }
    for (int step = 0; step < plan_.num_steps(); ++step)
      for (int rank = 0; rank < capacity.cp_size; ++rank) add_lists(step, rank, rows_of_item);
    provide_memory();
  }

  void fill(const PackedLayout& layout_q, const PackedLayout& layout_k) {
    fill_homes(t.q, layout_q);
    fill_homes(t.k, layout_k);
    for (const LengthTables::Side* x : {&t.q, &t.k}) {
      std::fill_n(x->global_of_home, x->home_rows, kNobody);
      std::fill_n(x->home_of_global, x->max_rows, kNobody);
      std::fill_n(x->home_of_resident, x->num_gathered(), kNobody);
      for (int rank = 0; rank < t.cp_size(); ++rank)
        for (int h = 0; h < (x->home.rows + 2) / 3; ++h)
          t.map_rows<3>(*x, rank, h, (x->home.rows + 2) / 3);
    }
    for (const auto& buffer : lists_.buffers)
      for (int i = 0; i < t.num_partners_of(buffer); ++i)
        t.partners[buffer.first_partner + i] = t.partner(buffer, i);
  }

  std::vector<WorkItem> items(const LengthTables::List& list) const {
    std::vector<std::pair<int, WorkItem>> by_bucket;
    for (int slot = 0; slot < list.num_slots(); ++slot)
      if (WorkItem item; t.item_of(list, slot, t.segment_of(list, slot), item))
        if (const int b = t.bucket_of(t.weight_of(list, slot, item)); b != LengthTables::kNoItem)
          by_bucket.emplace_back(b, item);
    std::ranges::stable_sort(by_bucket, {}, &std::pair<int, WorkItem>::first);
    std::vector<WorkItem> items;
    for (const auto& [bucket, item] : by_bucket) {
      EXPECT_TRUE(list.side == Operand::kv || is_sound(item));
      items.push_back(item);
    }
    return items;
  }

  const Plan& plan() const { return plan_; }
  const std::vector<LengthTables::List>& lists() const { return lists_.lists; }
  const LengthTables::ResidentBuffer& buffer_of(int step, int rank, Operand side) const {
    return lists_.buffers[first_buffer_.at({step, rank}) + (side == Operand::kv)];
  }
  Range heads_of_list(size_t list) const { return heads_[list]; }

  LengthTables t;

 private:
  void add_lists(int step, int rank, int rows_of_item) {
    const Step& s = plan_.steps_of_rank[rank][step];
    if (plan_.tiles(s).empty()) return;
    first_buffer_[{step, rank}] = static_cast<int>(lists_.buffers.size());
    const int q = lists_.add_buffer(Operand::q, s.q, kQueryRow);
    const int k = lists_.add_buffer(Operand::kv, s.kv, kKeyRow);
    lists_.add_list(Operand::q, {q}, {k}, rows_of_item);
    lists_.add_list(Operand::kv, {k}, {q}, rows_of_item);
    heads_.insert(heads_.end(), 2, s.q.heads);
  }

  void provide_memory() {
    partners_.resize(lists_.num_partners);
    LengthTables::Side* sides[] = {&t.q, &t.k};
    for (int i = 0; i < 2; ++i) {
      LengthTables::Side& x = *sides[i];
      x.home_rows = t.cp_size() * x.home.rows;
      for (auto* ints : {&cu_[i], &padded_[i]}) ints->resize(t.max_batch + 1);
      global_of_home_[i].resize(x.home_rows);
      home_of_global_[i].resize(x.max_rows);
      x.cu_seqlens = cu_[i].data(), x.cu_seqlens_padded = padded_[i].data();
      home_of_resident_[i].resize(x.num_gathered());
      x.home_row_of_rank = home_row_of_rank_[i].data();
      x.global_of_home = global_of_home_[i].data(), x.home_of_global = home_of_global_[i].data();
      x.home_of_resident = home_of_resident_[i].data();
      provide_memory(x.home, home_[i]);
      provide_memory(x.resident, x.is_gathered() ? resident_[i] : home_[i]);
    }
    t.buffers = lists_.buffers.data();
    t.runs = lists_.runs.data(), t.lists = lists_.lists.data();
    t.partners = partners_.data();
  }

  struct MemoryOfGroups {
    std::vector<int32_t> row_in_chunk, rows_of_chunk;
    std::vector<Segment> segments;
  };

  void provide_memory(LengthTables::Groups& groups, MemoryOfGroups& memory) const {
    memory.row_in_chunk.resize(groups.owned.groups() * t.max_batch);
    memory.rows_of_chunk.resize(groups.owned.groups() * t.num_chunks());
    memory.segments.resize(groups.owned.groups() * t.segments_of(groups));
    groups.row_in_chunk = memory.row_in_chunk.data();
    groups.rows_of_chunk = memory.rows_of_chunk.data();
    groups.segments = memory.segments.data();
  }

  void fill_homes(const LengthTables::Side& x, const PackedLayout& layout) {
    const std::vector<int64_t> wide(layout.cu_seqlens().begin(), layout.cu_seqlens().end());
    const DeviceLayout given{{wide.data(), layout.batch() + 1, true},
                             {layout.cu_seqlens_padded().data(), layout.batch() + 1, false},
                             layout.num_rows()};
    for (int s = 0; s < t.max_batch; ++s) {
      const LengthTables::Bounds bounds = t.bounds(given, s);
      EXPECT_TRUE(t.fits(x, s, bounds)) << "sequence " << s;
      x.cu_seqlens[s] = bounds.begin, x.cu_seqlens_padded[s] = bounds.row_begin;
      x.cu_seqlens[s + 1] = bounds.end, x.cu_seqlens_padded[s + 1] = bounds.row_end;
    }
    fill_groups(x, x.home, layout);
    if (x.is_gathered()) fill_groups(x, x.resident, layout);
  }

  void fill_groups(const LengthTables::Side& x, const LengthTables::Groups& g,
                   const PackedLayout& layout) {
    for (int group = 0; group < g.owned.groups(); ++group) {
      int rows_of_group = 0;
      for (int chunk = 0; chunk < t.num_chunks(); ++chunk) {
        int& rows = g.rows_of_chunk[group * t.num_chunks() + chunk] = 0;
        const int begin = chunk * t.kChunk, end = std::min(begin + t.kChunk, t.max_batch);
        for (int s = begin; s < end; ++s) {
          g.row_in_chunk[group * t.max_batch + s] = rows;
          rows += g.owned.rows(group, x.cu_seqlens_padded[s], x.cu_seqlens_padded[s + 1],
                               layout.num_rows());
        }
        rows_of_group += rows;
      }
      ASSERT_LE(rows_of_group, g.rows) << "more rows than capacity";
      for (int i = 0; i < t.segments_of(g); ++i)
        g.segments[group * t.segments_of(g) + i] = t.segment(x, g, group, i);
    }
  }

  Plan plan_;
  LengthLists lists_;
  std::vector<Range> heads_;
  std::map<std::pair<int, int>, int> first_buffer_;  // by step and rank: q, and then kv
  std::vector<int32_t> cu_[2], padded_[2], home_row_of_rank_[2], global_of_home_[2],
      home_of_global_[2], home_of_resident_[2];
  MemoryOfGroups home_[2], resident_[2];
  std::vector<Segment> partners_;
};

Capacity random_capacity(Random& random, const Problem& problem) {
  Capacity c;
  c.partition = testing::random_closed_form(random).name;
  c.cp_size = random.choice<int>({1, 2, 3, 4, 6, 8});
  do c.comm.name = transports()[random.integer(0, 4)].name;
  while (c.comm.name == "fetch");
  if (c.comm.name == "a2a+p2p") do
      c.comm.a2a_size = random.integer(1, c.cp_size);
    while (c.cp_size % c.comm.a2a_size != 0);
  c.mask = problem.mask;
  c.num_heads = problem.num_heads, c.num_kv_heads = problem.num_kv_heads;
  c.max_sequences = std::max(1, problem.layout_q.batch() + random.integer(0, 3));
  c.max_rows_q = problem.layout_q.num_rows() + random.integer(0, 9);
  c.max_rows_k = problem.layout_k.num_rows() + random.integer(0, 9);
  return c;
}

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
    HostTables tables(capacity, random.integer(1, 9));
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

const NamedPartition& partition_of(const LengthTables& t) {
  const PartitionRule& rule = t.q.home.owned.rule;
  return *std::ranges::find_if(partitions(), [&](const NamedPartition& p) {
    return p.rule.kind == rule.kind && p.rule.of_stream == rule.of_stream;
  });
}

// A gathered row of a token comes from its home, any other from nowhere.
void expect_rows_from_their_homes(const LengthTables& t, const LengthTables::Side& x) {
  std::vector<int32_t> want(x.num_gathered(), kNobody);
  const LengthTables::Groups& g = x.resident;
  for (int group = 0; x.is_gathered() && group < g.owned.groups(); ++group)
    for (int i = 0; i < t.segments_of(g); ++i) {
      const Segment& s = t.first_segment(g, group)[i];
      for (int row = 0; row < s.rows_below(x.cu_seqlens[s.seq + 1] - x.cu_seqlens[s.seq]); ++row) {
        int32_t& home = want[group * g.rows + s.row + row];
        ASSERT_EQ(home, kNobody) << "two rows in one place";
        home = x.home_of_global[x.cu_seqlens_padded[s.seq] + s.position(row)];
        ASSERT_EQ(home / x.home.rows / g.owned.ranks, group) << "a row of another group";
      }
    }
  ASSERT_EQ(want, std::vector<int32_t>(x.home_of_resident, x.home_of_resident + want.size()));
  const auto named = std::ranges::count_if(want, [](int32_t home) { return home >= 0; });
  ASSERT_EQ(named, x.is_gathered() ? x.cu_seqlens[t.max_batch] : 0) << "every token";
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
  expect_rows_from_their_homes(t, t.q), expect_rows_from_their_homes(t, t.k);
  for (int row = problem.layout_q.num_rows(); row < t.q.max_rows; ++row)
    ASSERT_EQ(t.q.home_of_global[row], kNobody);
}

TEST(LengthTables, RowsOfBuffersAreWhereThePartitionPutsThem) {
  Random random(3);
  for (int number = 0; number < 20'000; ++number) {
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
  for (int number = 0; number < 2'000; ++number) {
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
  EXPECT_GT(gathered, 1'000);
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
