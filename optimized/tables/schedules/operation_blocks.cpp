#include "optimized/tables/schedules/operation_blocks.h"

#include "reference/rows/packed_layout.h"

namespace ringside {
namespace {

int pitch(const Schedule& schedule, const Block& block) {
  return schedule.buffers[block.buffer].heads.size();
}
int64_t cell(const Schedule& schedule, const Block& block, int row) {
  return int64_t{row} * pitch(schedule, block) + block.heads.begin -
         schedule.buffers[block.buffer].heads.begin;
}

CellBlock block_of(const Schedule& schedule, const Operation& op, const RowRun& run) {
  return {cell(schedule, op.from, run.from),
          cell(schedule, op.to, run.to),
          run.from_step * pitch(schedule, op.from),
          run.to_step * pitch(schedule, op.to),
          run.rows,
          op.to.heads.size()};
}

Payload payload(const Schedule& schedule, const Operation& op) {
  return schedule.buffers[op.to.buffer].payload;
}

}  // namespace

std::vector<CellBlock> operation_blocks(const Schedule& schedule, const Operation& op) {
  std::vector<CellBlock> pieces;
  for (const RowRun& run : op.row_runs()) add_in_pieces(block_of(schedule, op, run), pieces);
  return pieces;
}

bool GatheredBlocks::gathers(const Schedule& schedule, const Operation& op) {
  return payload(schedule, op) == Payload::queries || payload(schedule, op) == Payload::keys;
}

Operand GatheredBlocks::side(const Schedule& schedule, const Operation& op) {
  const bool is_kv =
      payload(schedule, op) == Payload::keys || payload(schedule, op) == Payload::key_gradients;
  return is_kv ? Operand::kv : Operand::q;
}

// Rows of a run follow each other at home: the map is read from that of its first one on.
std::vector<CellBlock> GatheredBlocks::of(const Schedule& schedule, const Operation& op) {
  const Operand operand = side(schedule, op);
  const bool to_gathered = gathers(schedule, op);
  const Step& step = plan_.steps_of_rank[schedule.rank][op.step];
  const auto& homes = home_of_gathered(operand == Operand::q ? step.q : step.kv, operand);
  std::vector<CellBlock> pieces;
  for (const RowRun& run : op.runs) {
    CellBlock block = block_of(schedule, op,
                               to_gathered ? RowRun{run.from, 0, run.rows, run.from_step, 1}
                                           : RowRun{0, run.to, run.rows, 1, run.to_step});
    (to_gathered ? block.to_map : block.from_map) = homes.at(to_gathered ? run.to : run.from);
    add_in_pieces(block, pieces);
  }
  return pieces;
}

// A position of the stand-in plan's one sequence is in one home.
const std::vector<int>& GatheredBlocks::home_of_gathered(const Buffer& buffer, Operand side) {
  auto [found, is_new] = home_of_gathered_.try_emplace(buffer.shard);
  std::vector<int>& homes = found->second;
  if (!is_new) return homes;
  const bool is_q = side == Operand::q;
  const PackedLayout& layout = is_q ? plan_.problem.layout_q : plan_.problem.layout_k;
  std::vector<int> home_of_position(layout.num_rows());
  int next = 0;
  for (const Buffer& home : is_q ? plan_.home_q : plan_.home_kv)
    for (const Segment& s : plan_.shard(home))
      for (int i = 0; i < s.len; ++i) home_of_position.at(s.position(i)) = next++;
  for (const Segment& s : plan_.shard(buffer))
    for (int i = 0; i < s.len; ++i) homes.push_back(home_of_position.at(s.position(i)));
  return homes;
}

}  // namespace ringside
