#include "optimized/program/tables.h"

#include <map>
#include <utility>

namespace ringside {
namespace {

bool in_order(const HostRowMap& map) {
  for (size_t row = 0; row < map.home_of_global.size(); ++row)
    if (map.home_of_global[row] != static_cast<int>(row)) return false;
  return true;
}

}  // namespace

ProgramTables::ProgramTables(const Plan& plan, const ItemRows& rows, int gap)
    : problem(plan.problem) {
  start(plan, gap);
  const HostRowMap of_q = home_rows(plan, Operand::q, q[0].stack);
  const HostRowMap of_kv = home_rows(plan, Operand::kv, kv[0].stack);
  every_row_is_seen = every_row_sees_itself(problem.layout_q, problem.layout_k);
  rows_stay = plan.cp_size() == 1 && in_order(of_q) && in_order(of_kv);
  q_rows = add(of_q);
  kv_rows = add(of_kv);
  cu_seqlens_q = device.add(problem.layout_q.cu_seqlens());
  cu_seqlens_k = device.add(problem.layout_k.cu_seqlens());
  cu_seqlens_q_padded = device.add(problem.layout_q.cu_seqlens_padded());
  cu_seqlens_k_padded = device.add(problem.layout_k.cu_seqlens_padded());
  for (int step = 0; step < plan.num_steps(); ++step) {
    add_residency(plan, step, Operand::q, gap);
    add_residency(plan, step, Operand::kv, gap);
    steps.push_back({static_cast<int>(q.size()) - 1, static_cast<int>(kv.size()) - 1, {}});
    add_launches(plan, step, rows);
  }
  device.upload();
}

void ProgramTables::start(const Plan& plan, int gap) {
  q.push_back({stack_ranks(plan, 0, Operand::q, gap), -1, {}, {}, {}});
  kv.push_back({stack_ranks(plan, 0, Operand::kv, gap), -1, {}, {}, {}});
}

void ProgramTables::add_residency(const Plan& plan, int step, Operand operand, int gap) {
  if (!any_rank_moves(plan, step, operand)) return;
  std::vector<Residency>& residencies = operand == Operand::q ? q : kv;
  Residency next{stack_ranks(plan, step + 1, operand, gap), step, {}, {}, {}};
  const RankStack& before = residencies.back().stack;
  next.carry = device.add(carry_blocks(plan, step, operand, before, next.stack));
  for (const auto& round : carry_back_rounds(plan, step, operand, before, next.stack))
    next.carry_back.push_back(device.add(round));
  residencies.push_back(std::move(next));
}

// The ranks that compute something, by the heads they hold.
std::vector<ProgramTables::RanksOfLaunch> ProgramTables::launches_of(const Plan& plan,
                                                                     int step) const {
  std::map<std::pair<int, int>, std::vector<int>> ranks_of_matrices;
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    if (!plan.tiles(plan.steps_of_rank[rank][step]).empty())
      ranks_of_matrices[{q.back().stack.of_rank[rank].matrix, kv.back().stack.of_rank[rank].matrix}]
          .push_back(rank);
  std::vector<RanksOfLaunch> launches;
  for (const auto& [matrices, ranks] : ranks_of_matrices)
    launches.push_back({matrices.first, matrices.second, ranks});
  return launches;
}

Launch ProgramTables::launch_of(const RanksOfLaunch& ranks) const {
  return {ranks.q_matrix,
          ranks.k_matrix,
          q.back().stack.matrices[ranks.q_matrix].heads,
          kv.back().stack.matrices[ranks.k_matrix].heads,
          {},
          {},
          {},
          false};
}

void ProgramTables::add_launches(const Plan& plan, int step, const ItemRows& rows) {
  for (const RanksOfLaunch& of_launch : launches_of(plan, step)) {
    std::vector<RankTiles> tiles;
    for (const int rank : of_launch.ranks)
      tiles.push_back({&plan.tiles(plan.steps_of_rank[rank][step]),
                       q.back().stack.of_rank[rank].row, kv.back().stack.of_rank[rank].row});
    Launch launch = launch_of(of_launch);
    launch.forward = add(query_items(problem, tiles, rows.forward));
    launch.backward_queries = add(query_items(problem, tiles, rows.backward_queries));
    const HostWorkList keys = key_items(problem, tiles, rows.backward_keys);
    launch.backward_keys = add(keys);
    launch.keys_in_one_item = one_item_a_sequence(keys);
    steps.back().launches.push_back(launch);
  }
}

WorkTable ProgramTables::add(const HostWorkList& list) {
  const auto size = static_cast<int32_t>(list.items.size());
  return {device.add(list.items), device.add(list.partners),
          device.add(std::vector<int32_t>{size})};
}

RowTables ProgramTables::add(const HostRowMap& map) {
  return {device.add(map.global_of_home), device.add(map.home_of_global)};
}

UnseenRows ProgramTables::unseen_rows() const {
  const auto offsets = [&](TableOf<int32_t> table) {
    return DeviceOffsets{device.at(table), table.size, false};
  };
  return {{offsets(cu_seqlens_q), offsets(cu_seqlens_q_padded), q_rows.home_of_global.size},
          {offsets(cu_seqlens_k), offsets(cu_seqlens_k_padded), kv_rows.home_of_global.size},
          problem.mask};
}

WorkList ProgramTables::work_list(const WorkTable& table) const {
  return {device.at(table.items),
          device.at(table.partners),
          device.at(table.num_items),
          table.items.size,
          problem.mask,
          lengths.num_lists == 0};
}

}  // namespace ringside
