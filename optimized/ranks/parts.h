// A plan as a RankProgram keeps it: schedules, tables on the device, places in the workspace. Where
// lengths are the device's to know, the plan is a stand-in (tables/capacity.h), and tables have
// room for what follows from them (parts_of_capacity.cpp).
#pragma once

#include <utility>
#include <vector>

#include "optimized/device/event.h"
#include "optimized/device/memory.h"
#include "optimized/program/tables.h"
#include "optimized/ranks/program.h"
#include "optimized/tables/length_tables.h"
#include "optimized/tables/own_rows.h"
#include "optimized/tables/process_pass.h"

namespace ringside {

struct OperationTables {                               // what the device reads of one operation
  WorkTable forward, backward_queries, backward_keys;  // of compute
  // Of `forward` or `backward_keys`: items whose rows of the home sums nobody else writes, and the
  // others, where it is worth while to tell them apart.
  WorkTable sole, others;
  bool starts = false;        // whether its sums hold nothing before it
  TableOf<CellBlock> blocks;  // of combine, and of copies by runs
  TableOf<int32_t> map;       // that these go by, where lengths say where rows lie
};

// Whether the sums that an operation adds to hold nothing: cleared for its step, or not added to
// before.
bool finds_nothing(const Schedule& schedule, int operation);

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
  bool any_lengths;  // which set_lengths tells
  Problem problem;
  Hosting hosting;
  AttentionShape shape;  // head numbers are those of the launch
  KernelFamily family;
  bool converts;  // whether home rows pass through the workspace
  PassParts forward, backward;
  std::vector<MemberRows> members;
  DeviceTables tables;
  DeviceMemory rehearsal;  // in place of the caller's arrays
  // What set_lengths fills, and tells others; of a fixed plan, nothing.
  LengthTables lengths;
  TableOf<OwnRows> rows_of_members;
  TableOf<uint64_t> lengths_word;
  TableOf<int32_t> lengths_differ;

  RankParts(const Plan& plan, const Hosting& hosting, const ProgramOptions& options, KeepKv keep);
  RankParts(const Capacity& capacity, const Hosting& hosted, const ProgramOptions& o, KeepKv kept)
      : RankParts(capacity, stand_in_plan(capacity), hosted, o, kept) {}

  // At the front of every workspace: of each process, [num_heads] float32, its largest scores;
  // and behind them the word of its lengths, where these may differ.
  int64_t bytes_of_logits() const { return problem.num_heads * int64_t{sizeof(float)}; }
  int64_t words_of_lengths(Pass pass) const {
    const int64_t logits = pass == Pass::forward ? num_processes() * bytes_of_logits() : 0;
    constexpr int64_t kWord = sizeof(uint64_t);
    return (logits + kWord - 1) / kWord * kWord;
  }
  int64_t header_bytes(Pass pass) const {
    const int64_t words = any_lengths ? num_processes() * int64_t{sizeof(uint64_t)} : 0;
    return words_of_lengths(pass) + words;
  }
  int num_processes() const { return static_cast<int>(hosting.processes.size()); }

  template <typename T>
  move::Span<T> span(TableOf<T> table) const {
    return {tables.at(table), table.size};
  }
  move::RowMap row_map(const RowTables& rows) const {
    return {span(rows.global_of_home), span(rows.home_of_global)};
  }
  move::Blocks blocks(const OperationTables& of) const {
    return {span(of.blocks), of.map.size > 0 ? tables.at(of.map) : nullptr};
  }
  WorkList work_list(const WorkTable& table) const {
    return {tables.at(table.items),
            tables.at(table.partners),
            tables.at(table.num_items),
            table.items.size,
            problem.mask,
            !any_lengths};
  }
  AttentionShape shape_of(const Range& q_heads, const Range& kv_heads) const;

 private:
  friend class PartsOfCapacity;
  enum class Lengths { of_plan, any };
  RankParts(Lengths lengths, const Plan& plan, const Hosting& hosting,
            const ProgramOptions& options, KeepKv keep);  // without tables yet
  RankParts(const Capacity& capacity, const Plan& stand_in, const Hosting& hosting,
            const ProgramOptions& options, KeepKv keep);
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
