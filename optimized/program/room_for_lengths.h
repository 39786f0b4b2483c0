// Device memory for what follows from lengths that only the device knows: reserved once, by
// capacities, and filled by fill_length_tables.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "optimized/program/parts.h"
#include "optimized/tables/length_lists.h"

namespace ringside {

// All lists of a program with lengths on the device have the same partners.
void set_partners(PassParts& parts, TableOf<Segment> partners);

class RoomForLengths {
 public:
  struct Side {
    RowTables rows;
    TableOf<int32_t> cu_seqlens, cu_seqlens_padded;
    TableOf<int32_t> gathered;  // the map; empty where nothing is gathered
  };

  RoomForLengths(LengthTables& lengths, DeviceTables& device, const Capacity& capacity,
                 const Plan& stand_in)
      : lengths_(lengths), device_(device), lists_(capacity, stand_in, lengths) {}

  // `home_rows` of all ranks, and where each rank's begin. Both sides come before any list.
  const Side& add_side(Operand operand, int home_rows, const std::vector<int32_t>& row_of_rank);
  // Both passes meet the same ones: each is there once.
  int add_buffer(Operand side, const Buffer& buffer, int row) {
    const auto [found, is_new] = buffers_of_plan_.try_emplace({side, buffer.shard, row}, 0);
    if (is_new) found->second = lists_.add_buffer(side, buffer, row);
    return found->second;
  }
  // All lists have the partners that allocate() returns.
  WorkTable add_list(Operand side, const std::vector<int>& own, const std::vector<int>& partners,
                     int rows_of_item, ListOrder order = ListOrder::longest_first,
                     int documents_ahead = 0);

  // The lists of a compute operation. alone: its launch is all that there is.
  OperationTables add_items(Pass pass, const ProgramParts& parts, const std::vector<int>& queries,
                            const std::vector<int>& keys, bool alone);

  // Once all lists are there: whatever was reserved has its place.
  TableOf<Segment> allocate();
  // Once all tables have been uploaded.
  void point();

 private:
  struct GroupTables {
    TableOf<int32_t> row_in_chunk, rows_of_chunk;
    TableOf<Segment> segments;
  };
  struct SideTables {
    Side shown;
    GroupTables home, resident;
    TableOf<int32_t> row_of_rank;
  };

  GroupTables reserve_groups(const LengthTables::Groups& groups);
  void point(LengthTables::Groups& groups, const GroupTables& tables) const;
  void point(LengthTables::Side& side, const SideTables& tables) const;

  LengthTables& lengths_;
  DeviceTables& device_;
  LengthLists lists_;
  std::map<std::tuple<Operand, int, int>, int> buffers_of_plan_;  // by shard and row
  SideTables q_, k_;
  TableOf<int32_t> status_, unfit_, longest_keys_, most_heads_;
  TableOf<Segment> partners_;
  TableOf<LengthTables::ResidentBuffer> buffers_;
  TableOf<LengthTables::Run> runs_;
  TableOf<LengthTables::List> list_table_;
  std::vector<WorkTable> work_;  // of each list
  std::vector<TableOf<int32_t>> slots_;
  std::vector<TableOf<uint8_t>> buckets_;
  std::vector<TableOf<int32_t>> counts_, firsts_;
};

}  // namespace ringside
