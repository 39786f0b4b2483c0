#include "optimized/program.h"

#include <map>
#include <utility>

namespace ringside {

ProgramTables::ProgramTables(const Plan& plan, const ItemRows& rows, int gap)
    : problem(plan.problem) {
  q.push_back({stack_ranks(plan, 0, Operand::q, gap), -1, {}, {}});
  kv.push_back({stack_ranks(plan, 0, Operand::kv, gap), -1, {}, {}});
  home_q_all = device.add(home_blocks(plan, Operand::q, q[0].stack, Rows::all));
  home_q_valid = device.add(home_blocks(plan, Operand::q, q[0].stack, Rows::valid));
  home_kv_all = device.add(home_blocks(plan, Operand::kv, kv[0].stack, Rows::all));
  home_kv_valid = device.add(home_blocks(plan, Operand::kv, kv[0].stack, Rows::valid));
  cu_seqlens_q = device.add(problem.layout_q.cu_seqlens());
  cu_seqlens_k = device.add(problem.layout_k.cu_seqlens());
  for (int step = 0; step < plan.num_steps(); ++step) {
    add_epoch(plan, step, Operand::q, gap);
    add_epoch(plan, step, Operand::kv, gap);
    steps.push_back({static_cast<int>(q.size()) - 1, static_cast<int>(kv.size()) - 1, {}});
    add_launches(plan, step, rows);
  }
  device.upload();
}

void ProgramTables::add_epoch(const Plan& plan, int step, Operand operand, int gap) {
  if (!any_rank_moves(plan, step, operand)) return;
  std::vector<Epoch>& epochs = operand == Operand::q ? q : kv;
  Epoch next{stack_ranks(plan, step + 1, operand, gap), step, {}, {}};
  const RankStack& before = epochs.back().stack;
  next.carry = device.add(carry_blocks(plan, step, operand, before, next.stack));
  for (const auto& round : carry_back_rounds(plan, step, operand, before, next.stack))
    next.carry_back.push_back(device.add(round));
  epochs.push_back(std::move(next));
}

void ProgramTables::add_launches(const Plan& plan, int step, const ItemRows& rows) {
  const RankStack &q_stack = q.back().stack, &kv_stack = kv.back().stack;
  std::map<std::pair<int, int>, std::vector<RankTiles>> ranks_of_matrices;
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const auto& tiles = plan.tiles(plan.steps_of_rank[rank][step]);
    const auto &q_place = q_stack.of_rank[rank], &kv_place = kv_stack.of_rank[rank];
    if (!tiles.empty())
      ranks_of_matrices[{q_place.matrix, kv_place.matrix}].push_back(
          {&tiles, q_place.row, kv_place.row});
  }
  for (const auto& [matrices, ranks] : ranks_of_matrices) {
    const auto [q_matrix, k_matrix] = matrices;
    steps.back().launches.push_back({q_matrix, k_matrix, q_stack.matrices[q_matrix].heads,
                                     kv_stack.matrices[k_matrix].heads,
                                     add(query_items(problem, ranks, rows.forward)),
                                     add(query_items(problem, ranks, rows.backward_queries)),
                                     add(key_items(problem, ranks, rows.backward_keys))});
  }
}

WorkTable ProgramTables::add(const HostWorkList& list) {
  const auto size = static_cast<int32_t>(list.items.size());
  return {device.add(list.items), device.add(list.partners),
          device.add(std::vector<int32_t>{size})};
}

WorkList ProgramTables::work_list(const WorkTable& table) const {
  return {device.at(table.items),
          device.at(table.partners),
          device.at(table.num_items),
          table.items.size,
          device.at(cu_seqlens_q),
          device.at(cu_seqlens_k),
          problem.mask};
}

}  // namespace ringside
