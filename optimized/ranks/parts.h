// A plan as a RankProgram keeps it: schedules, tables on the device, places in the workspace.
#pragma once

#include <utility>
#include <vector>

#include "optimized/device/event.h"
#include "optimized/device/memory.h"
#include "optimized/program/tables.h"
#include "optimized/ranks/program.h"
#include "optimized/tables/process_pass.h"

namespace ringside {

struct OperationTables {                               // what the device reads of one operation
  WorkTable forward, backward_queries, backward_keys;  // of compute
  // Of `forward` or `backward_keys`: items whose rows of the home sums nobody else writes, and the
  // others, where it is worth while to tell them apart.
  WorkTable sole, others;
  bool starts = false;        // whether its sums hold nothing before it
  TableOf<CellBlock> blocks;  // of combine, and of copies by runs
};

// Behind the areas of a pass: what is the member's own and nobody sends into.
struct MemberPlaces {
  int64_t q = 0, k = 0, v = 0, dout = 0;  // home rows in the kernels' type, where it is another
  int64_t lse = 0, delta = 0;
};

// What should have come by the end of a call, once attached, and the token of its messages.
struct Expected {
  DeviceMemory words;
  int count = 0;
  uint32_t token = 0;
};

// Of one member: which rows of its home sums sole items write.
struct SoleRows {
  bool any = false, all = false;
  RowTables not_sole;  // its rows, and kWritten in the place of those
};

struct PassParts {
  explicit PassParts(ProcessPass of_process) : pass(std::move(of_process)) {}

  ProcessPass pass;
  std::vector<std::vector<OperationTables>> operations;  // [member][operation]
  std::vector<std::vector<Event>> events;                // of each, for those of the other stream
  std::vector<MemberPlaces> places;
  std::vector<SoleRows> sole_rows;  // of each member
  int64_t of_family = 0, staging = 0, staging_bytes = 0, end = 0;
  Expected expected, expected_with_logits;  // the latter of a call for the largest scores
};

struct MemberRows {
  int rank = 0;
  RowTables q, kv;
  RowTables seeing;  // q, with padding for rows that see nothing
};

struct RankParts {
  int device = current_device();
  ProgramOptions options;
  KeepKv keep;
  Problem problem;
  Hosting hosting;
  AttentionShape shape;  // head numbers are those of the launch
  KernelFamily family;
  bool converts;  // whether home rows pass through the workspace
  PassParts forward, backward;
  std::vector<MemberRows> members;
  DeviceTables tables;
  DeviceMemory rehearsal;  // in place of the caller's arrays

  RankParts(const Plan& plan, const Hosting& hosting, const ProgramOptions& options, KeepKv keep);

  // At the front of every workspace: the largest scores of each process, [num_heads] float32.
  int64_t bytes_of_logits() const { return problem.num_heads * int64_t{sizeof(float)}; }
  int num_processes() const { return static_cast<int>(hosting.processes.size()); }

  template <typename T>
  move::Span<T> span(TableOf<T> table) const {
    return {tables.at(table), table.size};
  }
  move::RowMap row_map(const RowTables& rows) const {
    return {span(rows.global_of_home), span(rows.home_of_global)};
  }
  WorkList work_list(const WorkTable& table) const {
    return {tables.at(table.items), tables.at(table.partners), tables.at(table.num_items),
            table.items.size, problem.mask};
  }
  AttentionShape shape_of(const Range& q_heads, const Range& kv_heads) const;

 private:
  PassParts make_pass(const Plan& plan, Pass pass);
  void place(PassParts& parts, Pass pass) const;
  void add_tables(const Plan& plan, PassParts& parts);
  OperationTables tables_of(const Plan& plan, const Schedule& schedule, int operation);
  HostWorkList items_of(const Plan& plan, const Schedule& schedule, const Operation& op) const;
  void tell_sole_items(const Plan& plan, const Schedule& schedule,
                       std::vector<OperationTables>& operations, SoleRows& sole_rows);
  WorkTable add(const HostWorkList& list);
  WorkTable add(const std::vector<WorkItem>& items, TableOf<Segment> partners);
  RowTables add_rows(const std::vector<int32_t>& rows);
};

}  // namespace ringside
