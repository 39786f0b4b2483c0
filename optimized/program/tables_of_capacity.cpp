// Tables of a program whose lengths come later: the same steps and places as any plan's, and room
// for what fill_length_tables writes.
#include <utility>
#include <vector>

#include "optimized/program/room_for_lengths.h"
#include "optimized/program/tables.h"

namespace ringside {

class CapacityTables {
 public:
  CapacityTables(ProgramTables& tables, const Capacity& capacity, const Plan& stand_in)
      : t_(tables), plan_(stand_in), room_(tables.lengths, tables.device, capacity, stand_in) {
    t_.rows_stay = capacity.cp_size == 1;  // whichever the partition
    const auto& q = add_side(Operand::q, t_.q[0].stack);
    t_.q_rows = q.rows, home_of_q_ = q.gathered;
    t_.cu_seqlens_q = q.cu_seqlens, t_.cu_seqlens_q_padded = q.cu_seqlens_padded;
    const auto& k = add_side(Operand::kv, t_.kv[0].stack);
    t_.kv_rows = k.rows, home_of_k_ = k.gathered;
    t_.cu_seqlens_k = k.cu_seqlens, t_.cu_seqlens_k_padded = k.cu_seqlens_padded;
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
    next.home_rows = is_q ? home_of_q_ : home_of_k_;
    residencies.push_back(std::move(next));
  }

  void add_launches(int step, const ItemRows& rows) {
    for (const auto& of_launch : t_.launches_of(plan_, step)) {
      Launch launch = t_.launch_of(of_launch);
      std::vector<int> queries, keys;
      for (const int rank : of_launch.ranks) {
        const Step& s = plan_.steps_of_rank[rank][step];
        queries.push_back(room_.add_buffer(Operand::q, s.q, t_.q.back().stack.of_rank[rank].row));
        keys.push_back(room_.add_buffer(Operand::kv, s.kv, t_.kv.back().stack.of_rank[rank].row));
      }
      launch.forward = room_.add_list(Operand::q, queries, keys, rows.forward);
      launch.backward_queries = room_.add_list(Operand::q, queries, keys, rows.backward_queries);
      launch.backward_keys = room_.add_list(Operand::kv, keys, queries, rows.backward_keys);
      t_.steps.back().launches.push_back(launch);
    }
  }

  void finish() {
    const TableOf<Segment> partners = room_.allocate();
    for (StepTables& step : t_.steps)
      for (Launch& launch : step.launches)
        for (WorkTable* table : {&launch.forward, &launch.backward_queries, &launch.backward_keys})
          table->partners = partners;
    t_.device.upload();
    room_.point();
  }

 private:
  const RoomForLengths::Side& add_side(Operand operand, const RankStack& home) {
    std::vector<int32_t> row_of_rank;
    for (const RankStack::Place& place : home.of_rank) row_of_rank.push_back(place.row);
    return room_.add_side(operand, home.matrices[0].rows, row_of_rank,
                          RoomForLengths::GatherMap::home_of_resident);
  }

  ProgramTables& t_;
  const Plan& plan_;
  RoomForLengths room_;
  TableOf<int32_t> home_of_q_, home_of_k_;
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
