// Tables filled from lengths on the host: a capacity, the memory its tables need, and what
// fill_length_tables.cu does with it, one entry after the other.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "optimized/tables/length_lists.h"
#include "optimized/tables/length_tables.h"
#include "reference/test_support/test_random_case.h"

namespace ringside::testing {

inline constexpr int kQueryRow = 1000, kKeyRow = 5000;  // where buffers begin in their matrices

class HostTables {
 public:
  HostTables(const Capacity& capacity, int rows_of_item, ListOrder order = ListOrder::longest_first,
             Neighbours queries = Neighbours::apart)
      : plan_(stand_in_plan(capacity)), lists_(capacity, plan_, t) {
    t.joins_queries = queries == Neighbours::joined;
    for (int rank = 0; rank < capacity.cp_size; ++rank) {
      home_row_of_rank_[0].push_back(rank * t.q.home.rows);
      home_row_of_rank_[1].push_back(rank * t.k.home.rows);
    }
    for (int step = 0; step < plan_.num_steps(); ++step)
      for (int rank = 0; rank < capacity.cp_size; ++rank)
        add_lists(step, rank, rows_of_item, order);
    provide_memory();
  }

  void fill(const PackedLayout& layout_q, const PackedLayout& layout_k) {
    fill_homes(t.q, layout_q);
    fill_homes(t.k, layout_k);
    for (const LengthTables::Side* x : {&t.q, &t.k}) {
      std::fill_n(x->global_of_home, x->home_rows, kNobody);
      std::fill_n(x->home_of_global, x->max_rows, kNobody);
      std::fill_n(x->resident_of_home, x->home_rows, kNobody);
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
    for (int turn = 0; turn < list.num_slots(); ++turn) {
      const int slot = list.slot_of_turn(turn);
      if (WorkItem item; t.item_of(list, slot, t.segment_of(list, slot), item))
        if (const int b = t.bucket_of_item(list, slot, item); b != LengthTables::kNoItem)
          by_bucket.emplace_back(b, item);
    }
    std::ranges::stable_sort(by_bucket, {}, &std::pair<int, WorkItem>::first);
    std::vector<WorkItem> items;
    for (const auto& [bucket, item] : by_bucket) {
      EXPECT_TRUE(is_sound(item));
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
  void add_lists(int step, int rank, int rows_of_item, ListOrder order) {
    const Step& s = plan_.steps_of_rank[rank][step];
    if (plan_.tiles(s).empty()) return;
    first_buffer_[{step, rank}] = static_cast<int>(lists_.buffers.size());
    const int q = lists_.add_buffer(Operand::q, s.q, kQueryRow);
    const int k = lists_.add_buffer(Operand::kv, s.kv, kKeyRow);
    lists_.add_list(Operand::q, {q}, {k}, rows_of_item, order);
    lists_.add_list(Operand::kv, {k}, {q}, rows_of_item, order);
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
      resident_of_home_[i].resize(x.home_rows);
      x.home_row_of_rank = home_row_of_rank_[i].data();
      x.global_of_home = global_of_home_[i].data(), x.home_of_global = home_of_global_[i].data();
      x.resident_of_home = resident_of_home_[i].data();
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
      home_of_global_[2], resident_of_home_[2];
  MemoryOfGroups home_[2], resident_[2];
  std::vector<Segment> partners_;
};

inline Capacity random_capacity(Random& random, const Problem& problem) {
  Capacity c;
  c.partition = random_closed_form(random).name;
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

}  // namespace ringside::testing
