// What a copy or a sum of a rank's schedule moves, as cells within its two buffers.
#pragma once

#include <map>
#include <vector>

#include "optimized/tables/move_tables.h"
#include "reference/schedule/schedule.h"

namespace ringside {

// Where the schedule knows the rows.
std::vector<CellBlock> operation_blocks(const Schedule& schedule, const Operation& op);

// Where lengths do: of a stand-in plan (capacity.h), whose gathered rows lie anywhere. Rows of the
// gathered buffer go by a map from rows of all homes (LengthTables::Side::resident_of_home).
class GatheredBlocks {
 public:
  explicit GatheredBlocks(const Plan& stand_in) : plan_(stand_in) {}

  // Of an operation that has runs.
  std::vector<CellBlock> of(const Schedule& schedule, const Operation& op);
  // Whether the gathered buffer is where rows go to, on their way out, or where they come from.
  static bool gathers(const Schedule& schedule, const Operation& op);
  // Whose rows they are.
  static Operand side(const Schedule& schedule, const Operation& op);

 private:
  const std::vector<int>& home_of_gathered(const Buffer& buffer, Operand side);

  const Plan& plan_;
  std::map<int, std::vector<int>> home_of_gathered_;  // by shard
};

}  // namespace ringside
