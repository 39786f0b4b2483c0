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
      home_row_of_rank_[0].push_back(rank * t.q.rank_rows);
      home_row_of_rank_[1].push_back(rank * t.k.rank_rows);
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
      for (int rank = 0; rank < t.partition.cp_size; ++rank)
        for (int h = 0; h < (x->rank_rows + 2) / 3; ++h)
          t.map_rows<3>(*x, rank, h, (x->rank_rows + 2) / 3);
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
  Range heads_of_list(size_t list) const { return heads_[list]; }

  LengthTables t;

 private:
  void add_lists(int step, int rank, int rows_of_item) {
    const Step& s = plan_.steps_of_rank[rank][step];
    if (plan_.tiles(s).empty()) return;
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
      x.home_rows = t.partition.cp_size * x.rank_rows;
      for (auto* ints : {&cu_[i], &padded_[i]}) ints->resize(t.max_batch + 1);
      segments_[i].resize(t.partition.cp_size * t.segments_of_rank());
      global_of_home_[i].resize(x.home_rows);
      home_of_global_[i].resize(x.max_rows);
      x.cu_seqlens = cu_[i].data(), x.cu_seqlens_padded = padded_[i].data();
      row_in_chunk_[i].resize(t.partition.cp_size * t.max_batch);
      rows_of_chunk_[i].resize(t.partition.cp_size * t.num_chunks());
      x.row_in_chunk = row_in_chunk_[i].data(), x.rows_of_chunk = rows_of_chunk_[i].data();
      x.segments = segments_[i].data(), x.home_row_of_rank = home_row_of_rank_[i].data();
      x.global_of_home = global_of_home_[i].data(), x.home_of_global = home_of_global_[i].data();
    }
    t.owners = lists_.owners.data(), t.buffers = lists_.buffers.data();
    t.runs = lists_.runs.data(), t.lists = lists_.lists.data();
    t.partners = partners_.data();
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
    for (int rank = 0; rank < t.partition.cp_size; ++rank) {
      int rows_of_rank = 0;
      for (int chunk = 0; chunk < t.num_chunks(); ++chunk) {
        int& rows = x.rows_of_chunk[rank * t.num_chunks() + chunk] = 0;
        const int begin = chunk * t.kChunk, end = std::min(begin + t.kChunk, t.max_batch);
        for (int s = begin; s < end; ++s) {
          x.row_in_chunk[rank * t.max_batch + s] = rows;
          rows += t.rows_of_sequence(rank, s, x.cu_seqlens_padded[s], x.cu_seqlens_padded[s + 1],
                                     layout.num_rows());
        }
        rows_of_rank += rows;
      }
      ASSERT_LE(rows_of_rank, x.rank_rows) << "more rows than capacity";
      for (int i = 0; i < t.segments_of_rank(); ++i)
        x.segments[rank * t.segments_of_rank() + i] = t.home_segment(x, rank, i);
    }
  }

  Plan plan_;
  LengthLists lists_;
  std::vector<Range> heads_;
  std::vector<int32_t> cu_[2], padded_[2], home_row_of_rank_[2], row_in_chunk_[2],
      rows_of_chunk_[2], global_of_home_[2], home_of_global_[2];
  std::vector<Segment> segments_[2], partners_;
};

Capacity random_capacity(Random& random, const Problem& problem) {
  Capacity c;
  c.partition = testing::random_closed_form(random).name;
  c.cp_size = random.integer(1, 4);
  do c.comm.name = transports()[random.integer(0, 4)].name;
  while (c.comm.name == "fetch");
  if (c.comm.name == "a2a+p2p") c.comm.a2a_size = c.cp_size % 2 == 0 ? 2 : 1;
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
  const PartitionRule& rule = t.partition.rule;
  return *std::ranges::find_if(partitions(), [&](const NamedPartition& p) {
    return p.rule.kind == rule.kind && p.rule.of_stream == rule.of_stream;
  });
}

void expect_rows_where_the_partition_puts_them(const Problem& problem, const HostTables& tables) {
  const LengthTables& t = tables.t;
  for (const auto& [x, layout] :
       {std::pair(&t.q, &problem.layout_q), std::pair(&t.k, &problem.layout_k)})
    for (int rank = 0; rank < t.partition.cp_size; ++rank) {
      const Shard shard = partition_of(t).shard(*layout, t.partition.cp_size, rank);
      for (const Segment& s : shard)
        for (int i = 0; i < s.len; ++i) {
          const int global = layout->row_begin(s.seq) + s.position(i);
          const int home = rank * x->rank_rows + s.row + i;
          ASSERT_EQ(x->home_of_global[global], home);
          ASSERT_EQ(x->global_of_home[home], s.position(i) < layout->len(s.seq) ? global : ~global);
        }
      for (int h = num_rows(shard); h < x->rank_rows; ++h)
        ASSERT_EQ(x->global_of_home[rank * x->rank_rows + h], kNobody);
    }
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
