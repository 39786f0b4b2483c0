// Parts of a program that has every rank on one device: one member, whose buffers are stacks.
#pragma once

#include "optimized/program/passes.h"
#include "optimized/tables/schedules/stack_schedule.h"

namespace ringside {

struct StackParts : ProgramParts {
  RankStack home_q, home_k;
  bool in_place = false;           // kernels work on the caller's arrays
  bool every_row_is_seen = false;  // as far as the host knows
  // Whether each query meets one item of keys, so that nothing is summed up in dq.
  bool keys_in_one_item = false;
  bool carries_dq = false;         // in float32, through items of several blocks of keys
  int64_t dq_in_place = 0;         // sums, where these are needed, or what is carried
  bool takes_turns = false;        // at adding to these, in deterministic calls
  bool turns_are_quicker = false;  // in others, too
  int64_t turns_in_place = 0;
  // Whether dq need not begin as zeros, where its order is free, and the words by which.
  bool first_keys_store = false;
  int64_t first_in_place = 0;
  int64_t bytes_of_first_words() const;
  // In how many parts backward kernels in place take the query heads of a key head; then dk and dv
  // are summed up, too.
  int head_parts = 1;
  int64_t dk_in_place = 0, dv_in_place = 0;

  StackParts(const Plan& plan, const ProgramOptions& o);
  StackParts(const Capacity& capacity, const ProgramOptions& o)
      : StackParts(capacity, stand_in_plan(capacity), o) {}

  void require_current() const { require_made_on(current_device(), device, "program"); }
  // Of one call's arrays.
  void require_rows(const ForwardCall& call) const;
  void require_rows(const BackwardCall& call) const;

  void forward_in_place(const ForwardCall& call, const RunsOn& on) const;
  void backward_in_place(const BackwardCall& call, const RunsOn& on) const;

 private:
  friend class StackOfCapacity;
  StackParts(Lengths known, const Plan& plan, const ProgramOptions& o);  // without tables yet
  StackParts(const Capacity& capacity, const Plan& stand_in, const ProgramOptions& o);

  int gap() const;
  int rows_q() const { return members[0].q.home_of_global.size; }  // of the caller's arrays
  int rows_k() const { return members[0].kv.home_of_global.size; }
  bool can_be_in_place(const Stacks& stacks) const;
  // Schedules, and where their buffers lie. tables_of(operation, of the stack) makes the tables.
  template <typename TablesOf>
  void make_passes(const Stacks& stacks, TablesOf tables_of);
  void place(PassParts& parts);
  RowTables add_rows(const HostRowMap& map);
  bool put_first_keys_ahead(HostWorkList& keys) const;
};

struct NamedArray {
  const move::GlobalArray* array;
  const char* name;
};
void require_rows_of(int rows, std::initializer_list<NamedArray> arrays);

}  // namespace ringside
