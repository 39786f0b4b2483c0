// Where the rows of a resident buffer of keys lie at home: the messages that fetch them anew.
#pragma once

#include <map>
#include <vector>

#include "reference/plan/key_owners.h"
#include "reference/plan/plan.h"
#include "reference/rows/row_places.h"

namespace ringside {

struct HomeRun {  // consecutive rows of a rank's home, and where each lies in the buffer
  int row = 0, rows = 0;
  std::vector<RowRun> landing;  // from rows of the home

  bool lands_apart() const { return !is_one_block(landing); }
};

// The runs of a home that a buffer holds, in the order of the home.
std::vector<HomeRun> home_runs(const Shard& home, const RowPlaces& places);

class HomeRows {
 public:
  explicit HomeRows(const Plan& plan) : plan_(plan), owners_(plan) {}

  // Of a shard of the plan and a rank.
  const std::vector<HomeRun>& runs(int shard, int owner);

 private:
  const Plan& plan_;
  KeyOwners owners_;
  std::map<int, std::map<int, std::vector<HomeRun>>>
      runs_of_shard_;  // by owner, of those there are
  const std::vector<HomeRun> none_;
};

}  // namespace ringside
