// Device memory for what follows from lengths that only the device knows: reserved once, by
// capacities, and filled by fill_length_tables.
#pragma once

#include <vector>

#include "optimized/program/tables.h"
#include "optimized/tables/length_lists.h"

namespace ringside {

class RoomForLengths {
 public:
  // Which map gathered rows go by; see LengthTables::Side.
  enum class GatherMap { home_of_resident, resident_of_home };
  struct Side {
    RowTables rows;
    TableOf<int32_t> cu_seqlens, cu_seqlens_padded;
    TableOf<int32_t> gathered;  // the map; empty where nothing is gathered
  };

  RoomForLengths(LengthTables& lengths, DeviceTables& device, const Capacity& capacity,
                 const Plan& stand_in)
      : lengths_(lengths), device_(device), lists_(capacity, stand_in, lengths) {}

  // `home_rows` of all ranks, and where each rank's begin. Both sides come before any list.
  const Side& add_side(Operand operand, int home_rows, const std::vector<int32_t>& row_of_rank,
                       GatherMap map);
  int add_buffer(Operand side, const Buffer& buffer, int row) {
    return lists_.add_buffer(side, buffer, row);
  }
  // All lists have the partners that allocate() returns.
  WorkTable add_list(Operand side, const std::vector<int>& own, const std::vector<int>& partners,
                     int rows_of_item);

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
    GatherMap map = GatherMap::home_of_resident;
  };

  GroupTables reserve_groups(const LengthTables::Groups& groups);
  void point(LengthTables::Groups& groups, const GroupTables& tables) const;
  void point(LengthTables::Side& side, const SideTables& tables) const;

  LengthTables& lengths_;
  DeviceTables& device_;
  LengthLists lists_;
  SideTables q_, k_;
  TableOf<int32_t> status_, unfit_;
  TableOf<Segment> partners_;
  TableOf<LengthTables::ResidentBuffer> buffers_;
  TableOf<LengthTables::Run> runs_;
  TableOf<LengthTables::List> list_table_;
  std::vector<WorkTable> work_;  // of each list
  std::vector<TableOf<int32_t>> slots_;
  std::vector<TableOf<uint8_t>> buckets_;
  std::vector<TableOf<int32_t>> counts_;
};

}  // namespace ringside
