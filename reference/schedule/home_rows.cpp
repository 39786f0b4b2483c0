#include "reference/schedule/home_rows.h"

namespace ringside {

std::vector<HomeRun> home_runs(const Shard& home, const RowPlaces& places) {
  std::vector<HomeRun> runs;
  for (const RowRun& run : places.runs(home, {0, num_rows(home)})) {
    if (runs.empty() || runs.back().row + runs.back().rows != run.from)
      runs.push_back({run.from, 0, {}});
    runs.back().rows += run.rows;
    runs.back().landing.push_back(run);
  }
  return runs;
}

const std::vector<HomeRun>& HomeRows::runs(int shard, int owner) {
  const auto [entry, is_new] = runs_of_shard_.try_emplace(shard);
  auto& of_owner = entry->second;
  if (is_new) {
    const RowPlaces places(plan_.shards[shard]);
    for (const auto& [rank, rows] : owners_.count(plan_.shards[shard]))
      of_owner[rank] = home_runs(plan_.shard(plan_.home_kv[rank]), places);
  }
  const auto found = of_owner.find(owner);
  return found == of_owner.end() ? none_ : found->second;
}

}  // namespace ringside
