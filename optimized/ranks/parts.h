// A plan as a RankProgram keeps it: schedules, tables on the device, places in the workspace. Where
// lengths are the device's to know, the plan is a stand-in (tables/capacity.h), and tables have
// room for what follows from them (parts_of_capacity.cpp).
#pragma once

#include <vector>

#include "optimized/program/parts.h"
#include "optimized/ranks/program.h"
#include "optimized/tables/own_rows.h"
#include "optimized/tables/schedules/final_items.h"

namespace ringside {

// Whether the sums that an operation adds to hold nothing: cleared for its step, or not added to
// before.
bool finds_nothing(const Schedule& schedule, int operation);

struct RankParts : ProgramParts {
  KeepKv keep;
  Hosting hosting;
  DeviceMemory rehearsal;  // in place of the caller's arrays
  TableOf<OwnRows> rows_of_members;

  RankParts(const Plan& plan, const Hosting& hosting_, const ProgramOptions& o, KeepKv keep_);
  RankParts(const Capacity& capacity, const Hosting& hosting_, const ProgramOptions& o,
            KeepKv keep_)
      : RankParts(capacity, stand_in_plan(capacity), hosting_, o, keep_) {}

 private:
  friend class PartsOfCapacity;
  RankParts(Lengths known, const Plan& plan, const Hosting& hosting_, const ProgramOptions& o,
            KeepKv keep_);  // without tables yet
  RankParts(const Capacity& capacity, const Plan& stand_in, const Hosting& hosting_,
            const ProgramOptions& o, KeepKv keep_);
  void make_pass(const Plan& plan, Pass pass);
  void place(PassParts& parts) const;
  void add_tables(const Plan& plan, PassParts& parts);
  OperationTables tables_of(const Plan& plan, const Schedule& schedule, int operation,
                            const HostWorkList& items);
  // Of the items of operations that compute, for calls that leave final results in place.
  FinalItems find_final(const Schedule& schedule, std::vector<HostWorkList>& items) const;
  FinalRows tell_final(const Plan& plan, const Schedule& schedule, const FinalItems& found);
  RowTables add_rows(const std::vector<int32_t>& rows);
};

}  // namespace ringside
