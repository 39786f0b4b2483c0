// What a program keeps to run its passes: schedules, tables on the device, places in a workspace.
// Its members are the ranks that a process hosts, or one that stands for all of them
// (tables/schedules/stack_schedule.h). ranks/parts.h and program/stack_parts.h make it.
#pragma once

#include <algorithm>
#include <vector>

#include "optimized/device/event.h"
#include "optimized/device/memory.h"
#include "optimized/program/calls.h"
#include "optimized/program/program.h"
#include "optimized/tables/build_work_list.h"
#include "optimized/tables/capacity.h"
#include "optimized/tables/length_tables.h"
#include "optimized/tables/schedules/process_pass.h"

namespace ringside {

struct WorkTable {  // a WorkList in DeviceTables
  TableOf<WorkItem> items;
  TableOf<Segment> partners;
  TableOf<int32_t> num_items;
};

struct RowTables {  // a HostRowMap in DeviceTables
  TableOf<int32_t> global_of_home, home_of_global;
};

struct OperationTables {                               // what the device reads of one operation
  WorkTable forward, backward_queries, backward_keys;  // of compute
  WorkTable keys_in_turn;          // items_in_turn() of `backward_keys`, where there are some
  bool turns_are_quicker = false;  // than adding in any order
  bool starts = false;             // whether its sums hold nothing before it, and it may store
  std::vector<Interval> written;  // of compute: rows that its items write, as far as the host knows
  std::vector<Interval> cleared;  // of clear: rows that nobody writes first
  TableOf<CellBlock> blocks;      // of combine, and of copies that go by a table
  TableOf<int32_t> map;           // that these go by, where lengths say where rows lie
  bool keys_in_one_item = false;  // those that a query sees, as far as the host knows
  bool carries_dq = false;        // such items have more keys than others may (carried)
  bool keys_by_document = false;  // of those of several, those of a document go together
  bool first_keys_ahead = false;  // but for those that begin it: put_first_keys_ahead()
  WorkOfItems of_keys;            // zeros where only the device knows (most_heads)
  int head_parts = 1;             // of items of keys, where these may be taken in parts

  // In parts, several items add to dk and dv of their keys.
  bool can_start() const { return head_parts == 1; }
};

// Behind the areas of a pass, or, of all ranks in one, in them: home rows in the kernels' type,
// where these do not read the caller's, and what nobody sends into.
struct MemberPlaces {
  int64_t q = 0, k = 0, v = 0, dout = 0;
  int64_t lse = 0, delta = 0;
};

// What should have come by the end of a call, once attached, and the token of its messages.
struct Expected {
  DeviceMemory words;
  int count = 0;
  uint32_t token = 0;
};

// Of one member: which rows of its home sums final items leave in the caller's arrays.
struct FinalRows {
  bool any = false, all = false;
  bool sums_unused = false;  // by other items
  RowTables others;          // its rows, and kWritten in the place of those
};

// Of one member: what is added to its home sums where these become final (last_sum.h).
struct AddedAtEnd {
  struct Term {
    int operation = -1;
    bool begins = true;
    TableOf<int32_t> of_home;
  };
  std::vector<Term> terms;
  std::vector<int> without;  // more operations that nobody needs then

  // Whether an operation is not to be run, as finish() does its work.
  bool has(int operation) const {
    const auto is_it = [&](const Term& term) { return term.operation == operation; };
    return std::ranges::any_of(terms, is_it) ||
           std::ranges::find(without, operation) != without.end();
  }
};

struct PassParts {
  ProcessPass pass;
  std::vector<std::vector<OperationTables>> operations;  // [member][operation]
  std::vector<std::vector<Event>> events;                // of each, for those of the other stream
  std::vector<MemberPlaces> places;
  std::vector<FinalRows> final_rows;     // of each member
  std::vector<AddedAtEnd> added_at_end;  // likewise, or nothing
  int64_t of_family = 0, staging = 0, staging_bytes = 0, end = 0;
  Expected expected, expected_with_logits;  // the latter of a call for the largest scores
};

struct MemberRows {
  RowTables q, kv;
  RowTables seeing;  // q, with padding for rows that see nothing; or not asked for
};

struct ProgramParts {
  int device = current_device();
  ProgramOptions options;
  Problem problem;
  AttentionShape shape;  // head numbers are those of the launch
  KernelFamily family;
  bool any_lengths;            // which set_lengths tells
  int max_seqlen = INT32_MAX;  // of these, as far as is known
  bool is_stacked = false;     // whether the one member is all ranks
  bool home_in_workspace;      // whether home rows pass through the workspace
  int num_processes = 1;
  AccumulatorLayout layout = AccumulatorLayout::rows;  // of results at home
  PassParts forward, backward;
  std::vector<MemberRows> members;
  TableOf<int32_t> cu_seqlens_q, cu_seqlens_k, cu_seqlens_q_padded, cu_seqlens_k_padded;  // stacked
  DeviceTables tables;
  // What set_lengths fills, and tells others; of a fixed plan, nothing.
  LengthTables lengths;
  TableOf<uint64_t> lengths_word;
  TableOf<int32_t> lengths_differ;

  ProgramParts(Lengths known, const Problem& problem_, const ProgramOptions& o);

  // At the front of every workspace: of each process, [num_heads] float32, its largest scores;
  // and behind them the word of its lengths, where these may differ.
  int64_t bytes_of_logits() const { return problem.num_heads * int64_t{sizeof(float)}; }
  int64_t words_of_lengths(Pass pass) const {
    const int64_t logits = pass == Pass::forward ? num_processes * bytes_of_logits() : 0;
    constexpr int64_t kWord = sizeof(uint64_t);
    return (logits + kWord - 1) / kWord * kWord;
  }
  int64_t header_bytes(Pass pass) const {
    const int64_t words = any_lengths ? num_processes * int64_t{sizeof(uint64_t)} : 0;
    return words_of_lengths(pass) + words;
  }

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
  UnseenRows unseen_rows() const;  // of all ranks
  Neighbours neighbours() const;   // what lists take of queries
  // Of so many heads of a launch, key heads or parts of their query heads, of how many items of
  // keys are taken at a time. alone: the launch is all that there is.
  int heads_at_a_time(const OperationTables& of, int heads, bool alone) const;
  int heads_of_documents(int longest, int heads, bool in_part, bool alone) const;  // by document
  bool meet_in_part(bool alone) const;  // likewise, of lists that only the device knows
  int longest_keys() const;             // of a document, as far as is known
  // Of key heads, where items add to dq in turn, and the last of them may round.
  int heads_in_turn(bool rounds) const;
  // In how many parts items of keys take the query heads of a key head, where dk and dv are summed
  // up.
  int head_parts_of(int64_t rows_met) const;
  int head_parts_of(const HostWorkList& keys, bool alone) const;
  // Of how many documents of any lengths that are known of the items that begin their keys come
  // ahead, and store dq; 0: of none, as others would wait for long, or do not meet all queries.
  int documents_ahead(int head_parts) const;
  // Of items of keys that take heads in so many parts.
  ItemOrder order_of_keys(int head_parts) const;
  // The rows of an item that may have a sequence's keys all at once, where all lengths that are
  // known of allow for it and such items keep the device busy; else 0.
  int rows_of_whole_keys() const;
  AttentionShape shape_of(const Range& q_heads, const Range& kv_heads) const;
  AttentionShape shape_of(const Schedule& schedule, const Operation& compute) const {
    return shape_of(schedule.buffers[compute.queries].heads, schedule.buffers[compute.keys].heads);
  }
  // Launches that start sums store in all rows of their items: only others are cleared before.
  void tell_clears(const Schedule& schedule, std::vector<OperationTables>& operations) const;

 protected:
  CellSizes sizes(Pass pass) const {
    return cell_sizes(pass, shape.head_dim_qk, shape.head_dim_v, move::bytes_of(shape.type));
  }
  int64_t most_bytes_of_family(const PassParts& parts) const;  // that a launch of a pass needs
  ItemOrder order_of_items() const;                            // that gains
  bool keep_busy(int64_t items) const;                         // the device's processors, of a head
  // alone: no other launch adds to what items of keys leave.
  HostWorkList items_of(Pass pass, const std::vector<RankTiles>& tiles, bool alone) const;
  // Backward, a sequence's keys in one item each, where the family takes these and they keep the
  // device busy; else none.
  HostWorkList whole_keys(const std::vector<RankTiles>& tiles) const;
  WorkTable add(const HostWorkList& list);
  WorkTable add(const std::vector<WorkItem>& items, TableOf<Segment> partners);
  // Items of `keys` that may add to dq in turn, where the family knows turns.
  bool turns_are_quicker() const;  // where items can take turns
  WorkTable add_in_turn(const HostWorkList& keys, const WorkTable& added);
  // items: items_of(), or whole_keys().
  OperationTables add_items(Pass pass, const std::vector<RankTiles>& tiles,
                            const HostWorkList& items);
};

// The most that any of some launches needs of its own; they share it.
int64_t most_bytes(KernelFamily::BytesOfShape of_shape, const std::vector<AttentionShape>& shapes);

}  // namespace ringside
