// Tables of a program whose lengths come later: the same steps and places as any plan's, and room
// for what fill_length_tables writes.
#include <utility>

#include "optimized/program/tables.h"
#include "optimized/tables/length_lists.h"

namespace ringside {

class CapacityTables {
 public:
  CapacityTables(ProgramTables& tables, const Capacity& capacity, const Plan& stand_in)
      : t_(tables), c_(capacity), plan_(stand_in), lists_(capacity, stand_in, tables.lengths) {
    t_.rows_stay = c_.cp_size == 1;  // whichever the partition
    t_.cu_seqlens_q = t_.device.reserve<int32_t>(c_.max_sequences + 1);
    t_.cu_seqlens_k = t_.device.reserve<int32_t>(c_.max_sequences + 1);
    t_.cu_seqlens_q_padded = t_.device.reserve<int32_t>(c_.max_sequences + 1);
    t_.cu_seqlens_k_padded = t_.device.reserve<int32_t>(c_.max_sequences + 1);
    q_side_ = reserve_side(t_.lengths.q, t_.q[0].stack, t_.q_rows);
    k_side_ = reserve_side(t_.lengths.k, t_.kv[0].stack, t_.kv_rows);
    status_ = t_.device.add(std::vector<int32_t>{0});
    unfit_ = t_.device.add(std::vector<int32_t>{0});
  }

  // Gathered rows lie where lengths say; all others where the stand-in plan has them.
  void add_residency(int step, Operand operand, int gap) {
    const bool is_q = operand == Operand::q;
    std::vector<Residency>& residencies = is_q ? t_.q : t_.kv;
    const LengthTables::Side& side = t_.lengths.side(operand);
    if (!side.is_gathered() || residencies.size() > 1 || !any_rank_moves(plan_, step, operand))
      return t_.add_residency(plan_, step, operand, gap);
    const int ranks = side.resident.owned.ranks;
    const RankStack& home = residencies[0].stack;
    Residency next{stack_ranks(plan_, step + 1, operand, gap), step, {}, {}, {}};
    next.carry = t_.device.add(gather_blocks(home, next.stack, ranks));
    for (const auto& round : gather_back_rounds(home, next.stack, ranks))
      next.carry_back.push_back(t_.device.add(round));
    next.home_rows = (is_q ? q_side_ : k_side_).home_of_resident;
    residencies.push_back(std::move(next));
  }

  void add_launches(int step, const ItemRows& rows) {
    for (const auto& of_launch : t_.launches_of(plan_, step)) {
      Launch launch = t_.launch_of(of_launch);
      std::vector<int> queries, keys;
      for (const int rank : of_launch.ranks) {
        const Step& s = plan_.steps_of_rank[rank][step];
        queries.push_back(lists_.add_buffer(Operand::q, s.q, t_.q.back().stack.of_rank[rank].row));
        keys.push_back(lists_.add_buffer(Operand::kv, s.kv, t_.kv.back().stack.of_rank[rank].row));
      }
      launch.forward = add_list(Operand::q, queries, keys, rows.forward);
      launch.backward_queries = add_list(Operand::q, queries, keys, rows.backward_queries);
      launch.backward_keys = add_list(Operand::kv, keys, queries, rows.backward_keys);
      t_.steps.back().launches.push_back(launch);
    }
  }

  void finish() {
    const auto partners = t_.device.reserve<Segment>(lists_.num_partners);
    for (StepTables& step : t_.steps)
      for (Launch& launch : step.launches)
        for (WorkTable* table : {&launch.forward, &launch.backward_queries, &launch.backward_keys})
          table->partners = partners;
    t_.device.allocate();
    for (size_t i = 0; i < work_.size(); ++i) {
      LengthTables::List& list = lists_.lists[i];
      list.items = t_.device.at(work_[i].items);
      list.num_items = t_.device.at(work_[i].num_items);
      list.segment_of_slot = t_.device.at(slots_[i]);
      list.bucket_of_slot = t_.device.at(buckets_[i]);
      list.counts = t_.device.at(counts_[i]);
      list.cursors = list.counts + LengthTables::kBuckets;
    }
    const auto buffers = t_.device.add(lists_.buffers);
    const auto runs = t_.device.add(lists_.runs);
    const auto lists = t_.device.add(lists_.lists);
    t_.device.upload();
    LengthTables& l = t_.lengths;
    point(l.q, q_side_, t_.q_rows, t_.cu_seqlens_q, t_.cu_seqlens_q_padded);
    point(l.k, k_side_, t_.kv_rows, t_.cu_seqlens_k, t_.cu_seqlens_k_padded);
    l.buffers = t_.device.at(buffers), l.num_buffers = buffers.size;
    l.runs = t_.device.at(runs);
    l.lists = t_.device.at(lists), l.num_lists = lists.size;
    l.partners = t_.device.at(partners), l.num_partners = partners.size;
    for (const LengthTables::List& list : lists_.lists) l.num_slots += list.num_slots();
    l.status = t_.device.at(status_), l.unfit = t_.device.at(unfit_);
  }

 private:
  struct GroupTables {
    TableOf<int32_t> row_in_chunk, rows_of_chunk;
    TableOf<Segment> segments;
  };
  struct SideTables {
    GroupTables home, resident;
    TableOf<int32_t> home_row_of_rank, home_of_resident;
  };

  SideTables reserve_side(LengthTables::Side& side, const RankStack& home, RowTables& rows) {
    side.home_rows = home.matrices[0].rows;
    rows = {t_.device.reserve<int32_t>(side.home_rows), t_.device.reserve<int32_t>(side.max_rows)};
    std::vector<int32_t> row_of_rank;
    for (const RankStack::Place& place : home.of_rank) row_of_rank.push_back(place.row);
    SideTables tables;
    tables.home = reserve_groups(side.home);
    tables.resident = side.is_gathered() ? reserve_groups(side.resident) : tables.home;
    tables.home_row_of_rank = t_.device.add(row_of_rank);
    tables.home_of_resident = t_.device.reserve<int32_t>(side.num_gathered());
    return tables;
  }

  GroupTables reserve_groups(const LengthTables::Groups& groups) {
    const int64_t number = groups.owned.groups();
    return {t_.device.reserve<int32_t>(number * c_.max_sequences),
            t_.device.reserve<int32_t>(number * t_.lengths.num_chunks()),
            t_.device.reserve<Segment>(number * t_.lengths.segments_of(groups))};
  }

  void point(LengthTables::Groups& groups, const GroupTables& tables) const {
    groups.row_in_chunk = t_.device.at(tables.row_in_chunk);
    groups.rows_of_chunk = t_.device.at(tables.rows_of_chunk);
    groups.segments = t_.device.at(tables.segments);
  }

  void point(LengthTables::Side& side, const SideTables& tables, const RowTables& rows,
             TableOf<int32_t> cu_seqlens, TableOf<int32_t> cu_seqlens_padded) const {
    side.cu_seqlens = t_.device.at(cu_seqlens);
    side.cu_seqlens_padded = t_.device.at(cu_seqlens_padded);
    point(side.home, tables.home), point(side.resident, tables.resident);
    side.home_row_of_rank = t_.device.at(tables.home_row_of_rank);
    if (side.is_gathered()) side.home_of_resident = t_.device.at(tables.home_of_resident);
    side.global_of_home = t_.device.at(rows.global_of_home);
    side.home_of_global = t_.device.at(rows.home_of_global);
  }

  WorkTable add_list(Operand side, const std::vector<int>& own, const std::vector<int>& partners,
                     int rows_of_item) {
    const auto& list = lists_.lists[lists_.add_list(side, own, partners, rows_of_item)];
    work_.push_back(
        {t_.device.reserve<WorkItem>(list.num_slots()), {}, t_.device.reserve<int32_t>(1)});
    slots_.push_back(t_.device.reserve<int32_t>(list.num_slots()));
    buckets_.push_back(t_.device.reserve<uint8_t>(list.num_slots()));
    counts_.push_back(t_.device.reserve<int32_t>(2 * LengthTables::kBuckets));
    return work_.back();
  }

  ProgramTables& t_;
  const Capacity& c_;
  const Plan& plan_;
  LengthLists lists_;
  SideTables q_side_, k_side_;
  TableOf<int32_t> status_, unfit_;
  std::vector<WorkTable> work_;  // of each list
  std::vector<TableOf<int32_t>> slots_;
  std::vector<TableOf<uint8_t>> buckets_;
  std::vector<TableOf<int32_t>> counts_;
};

ProgramTables::ProgramTables(const Capacity& capacity, const ItemRows& rows, int gap) {
  const Plan plan = stand_in_plan(capacity);
  problem = plan.problem;
  problem.mask = capacity.mask;
  start(plan, gap);
  CapacityTables tables(*this, capacity, plan);
  for (int step = 0; step < plan.num_steps(); ++step) {
    tables.add_residency(step, Operand::q, gap);
    tables.add_residency(step, Operand::kv, gap);
    steps.push_back({static_cast<int>(q.size()) - 1, static_cast<int>(kv.size()) - 1, {}});
    tables.add_launches(step, rows);
  }
  tables.finish();
}

}  // namespace ringside
