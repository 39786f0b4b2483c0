#include "reference/schedule/home_rows.h"

#include "reference/interrupt.h"

namespace ringside {

HomeRows::HomeRows(const Plan& plan)
    : plan_(plan),
      owner_of_row_(plan.problem.layout_k.num_rows(), -1),
      home_row_of_row_(plan.problem.layout_k.num_rows(), -1) {
  const PackedLayout& layout = plan.problem.layout_k;
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    for (const Segment& s : plan.shard(plan.home_kv[rank])) {
      check_interrupt(s.len);
      for (int i = 0; i < s.len; ++i) {
        const int row = layout.row_begin(s.seq) + s.position(i);
        owner_of_row_[row] = rank;
        home_row_of_row_[row] = s.row + i;
      }
    }
}

const std::vector<std::vector<HomeRun>>& HomeRows::runs(int shard) {
  const auto [entry, is_new] = runs_of_shard_.try_emplace(shard);
  auto& runs = entry->second;
  if (!is_new) return runs;
  runs.resize(plan_.cp_size());
  const PackedLayout& layout = plan_.problem.layout_k;
  for (const Segment& s : plan_.shards[shard]) {
    check_interrupt(s.len);
    for (int i = 0; i < s.len; ++i) {
      const int global = layout.row_begin(s.seq) + s.position(i), row = s.row + i;
      const int home_row = home_row_of_row_[global];
      auto& of_owner = runs[owner_of_row_[global]];
      const bool goes_on = !of_owner.empty() &&
                           of_owner.back().home_row + of_owner.back().rows == home_row &&
                           of_owner.back().row + of_owner.back().rows == row;
      if (goes_on)
        ++of_owner.back().rows;
      else
        of_owner.push_back({home_row, row, 1});
    }
  }
  return runs;
}

}  // namespace ringside
