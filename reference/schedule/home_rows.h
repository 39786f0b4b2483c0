// Where the rows of a resident buffer of keys lie at home: the messages that fetch them anew.
#pragma once

#include <map>
#include <vector>

#include "reference/plan.h"

namespace ringside {

struct HomeRun {  // consecutive rows of a buffer that are consecutive rows of one rank's home
  int home_row = 0, row = 0, rows = 0;
};

class HomeRows {
 public:
  explicit HomeRows(const Plan& plan);

  // [owner] the runs of a shard of the plan, in row order.
  const std::vector<std::vector<HomeRun>>& runs(int shard);

 private:
  const Plan& plan_;
  std::vector<int> owner_of_row_, home_row_of_row_;  // [rows of layout_k]
  std::map<int, std::vector<std::vector<HomeRun>>> runs_of_shard_;
};

}  // namespace ringside
