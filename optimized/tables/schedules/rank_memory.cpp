#include "optimized/tables/schedules/rank_memory.h"

#include <algorithm>

#include "reference/support/errors.h"

namespace ringside {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int kFloat = 4;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

CellSizes cell_sizes(Pass pass, int head_dim_qk, int head_dim_v, int element) {
  CellSizes sizes;
  const auto of = [&](Payload payload) -> std::vector<int>& {
    return sizes.of_payload[static_cast<size_t>(payload)];
  };
  of(Payload::queries) = {head_dim_qk * element};
  if (pass == Pass::backward)
    of(Payload::queries) = {head_dim_qk * element, head_dim_v * element, kFloat, kFloat};
  of(Payload::keys) = {head_dim_qk * element, head_dim_v * element};
  of(Payload::results) = {head_dim_v * kFloat, kFloat};
  of(Payload::query_gradients) = {head_dim_qk * kFloat};
  of(Payload::key_gradients) = {head_dim_qk * kFloat, head_dim_v * kFloat};
  return sizes;
}

RankMemory place_areas(const Schedule& schedule, const CellSizes& sizes, int64_t begin) {
  RankMemory memory;
  memory.end = aligned(begin);
  for (const Area& area : schedule.areas) {
    auto& arrays = memory.of_area.emplace_back();
    int64_t& end = area.kept ? memory.kept_bytes : memory.end;
    for (const int bytes : sizes.of(area.payload)) {
      arrays.push_back(end);
      end += aligned(area.cells * bytes);
    }
  }
  return memory;
}

Rows rows_of(const Schedule& schedule, const RankMemory& memory, const CellSizes& sizes,
             const Block& block, int array) {
  const ScheduledBuffer& buffer = schedule.buffers[block.buffer];
  const int bytes = sizes.of(buffer.payload).at(array);
  const int64_t cell = buffer.cell + int64_t{block.row} * buffer.heads.size() + block.heads.begin -
                       buffer.heads.begin;
  const int64_t begin = buffer.area == kCaller ? 0 : memory.of_area[buffer.area][array];
  return {begin + cell * bytes, int64_t{buffer.heads.size()} * bytes,
          int64_t{block.heads.size()} * bytes, block.rows};
}

int Hosting::process_of(int rank) const {
  for (size_t p = 0; p < processes.size(); ++p)
    if (std::ranges::count(processes[p], rank) > 0) return static_cast<int>(p);
  throw InvalidArgument(concat("no process hosts rank ", rank));
}

}  // namespace ringside
