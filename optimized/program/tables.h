// A plan as a CudaProgram keeps it: tables on the device, buffers as places in a workspace.
#pragma once

#include <map>
#include <vector>

#include "optimized/device/memory.h"
#include "optimized/program/program.h"
#include "optimized/tables/build_work_list.h"
#include "optimized/tables/capacity.h"
#include "optimized/tables/length_tables.h"
#include "optimized/tables/move_tables.h"

namespace ringside {

// What is resident of one operand from one exchange to the next.
struct Residency {
  RankStack stack;
  int step = -1;                               // whose exchange brought it; -1: home
  TableOf<CellBlock> carry;                    // from the residency before
  std::vector<TableOf<CellBlock>> carry_back;  // to the residency before, in rounds
  TableOf<int32_t> home_rows;                  // which they go by, where the host knows none
};

struct WorkTable {  // a WorkList in DeviceTables
  TableOf<WorkItem> items;
  TableOf<Segment> partners;
  TableOf<int32_t> num_items;
};

// The attention of all ranks that hold the same heads, in one step.
struct Launch {
  int q_matrix = 0, k_matrix = 0;
  Range q_heads, kv_heads;
  WorkTable forward, backward_queries, backward_keys;
  bool keys_in_one_item = false;  // those that a query sees, as far as the host knows
};

struct StepTables {
  int q_residency = 0, kv_residency = 0;
  std::vector<Launch> launches;
};

struct RowTables {  // a HostRowMap in DeviceTables
  TableOf<int32_t> global_of_home, home_of_global;
};

struct ItemRows {  // how many rows an item of the family has
  int forward = 0, backward_queries = 0, backward_keys = 0;
};

// Everything about a plan that is made once; and, where lengths are the device's to know, room for
// what follows from them.
struct ProgramTables {
  Problem problem;
  std::vector<Residency> q, kv;
  std::vector<StepTables> steps;
  RowTables q_rows, kv_rows;
  TableOf<int32_t> cu_seqlens_q, cu_seqlens_k, cu_seqlens_q_padded, cu_seqlens_k_padded;
  bool rows_stay = false;          // one rank owns every row, in order: nothing needs to move
  bool every_row_is_seen = false;  // as far as the host knows
  DeviceTables device;
  LengthTables lengths;  // what set_lengths fills; of a fixed plan, nothing

  ProgramTables(const Plan& plan, const ItemRows& rows, int gap);
  ProgramTables(const Capacity& capacity, const ItemRows& rows, int gap);

  template <typename T>
  move::Span<T> span(TableOf<T> table) const {
    return {device.at(table), table.size};
  }
  move::Blocks blocks(const Residency& residency, TableOf<CellBlock> table) const {
    return {span(table), residency.home_rows.size > 0 ? device.at(residency.home_rows) : nullptr};
  }
  WorkList work_list(const WorkTable& table) const;
  UnseenRows unseen_rows() const;
  move::RowMap row_map(const RowTables& rows) const {
    return {span(rows.global_of_home), span(rows.home_of_global)};
  }

 private:
  friend class CapacityTables;
  struct RanksOfLaunch {
    int q_matrix = 0, k_matrix = 0;
    std::vector<int> ranks;
  };
  void start(const Plan& plan, int gap);
  void add_residency(const Plan& plan, int step, Operand operand, int gap);
  std::vector<RanksOfLaunch> launches_of(const Plan& plan, int step) const;
  Launch launch_of(const RanksOfLaunch& ranks) const;
  void add_launches(const Plan& plan, int step, const ItemRows& rows);
  WorkTable add(const HostWorkList& list);
  RowTables add(const HostRowMap& map);
};

}  // namespace ringside
