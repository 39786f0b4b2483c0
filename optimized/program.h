// A plan as a CudaProgram keeps it: tables on the device, buffers as places in a workspace.
#pragma once

#include <map>
#include <vector>

#include "optimized/build_work_list.h"
#include "optimized/device_memory.h"
#include "optimized/execute.h"
#include "optimized/move_tables.h"

namespace ringside {

// What is resident of one operand from one exchange to the next.
struct Epoch {
  RankStack stack;
  int step = -1;                               // whose exchange brought it; -1: home
  TableOf<CellBlock> carry;                    // from the epoch before
  std::vector<TableOf<CellBlock>> carry_back;  // to the epoch before, in rounds
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
};

struct StepTables {
  int q_epoch = 0, kv_epoch = 0;
  std::vector<Launch> launches;
};

// Everything about a plan that is made once. `sizes` says how many rows an item of the family has.
struct ProgramTables {
  Problem problem;
  std::vector<Epoch> q, kv;
  std::vector<StepTables> steps;
  TableOf<RowBlock> home_q_all, home_q_valid, home_kv_all, home_kv_valid;
  TableOf<int32_t> cu_seqlens_q, cu_seqlens_k;
  DeviceTables device;

  struct ItemRows {
    int forward = 0, backward_queries = 0, backward_keys = 0;
  };
  ProgramTables(const Plan& plan, const ItemRows& rows, int gap);

  template <typename T>
  move::Span<T> span(TableOf<T> table) const {
    return {device.at(table), table.size};
  }
  WorkList work_list(const WorkTable& table) const;

 private:
  void add_epoch(const Plan& plan, int step, Operand operand, int gap);
  void add_launches(const Plan& plan, int step, const ItemRows& rows);
  WorkTable add(const HostWorkList& list);
};

}  // namespace ringside
