// Which lists a program of capacities has, and what they are made of: the shape of LengthTables,
// made once on the host.
#pragma once

#include <vector>

#include "optimized/tables/capacity.h"
#include "optimized/tables/length_tables.h"

namespace ringside {

// Raises InvalidArgument for layouts that cannot be those of q and k: what their arrays hold is not
// looked at.
void require_room(const LengthTables& tables, const DeviceLayout& q, const DeviceLayout& k);

class LengthLists {
 public:
  // Sets what of `tables` follows from the capacity alone.
  LengthLists(const Capacity& capacity, const Plan& stand_in, LengthTables& tables);

  std::vector<LengthTables::ResidentBuffer> buffers;
  std::vector<LengthTables::Run> runs;
  std::vector<LengthTables::List> lists;  // their memory is the caller's to fill in
  int64_t num_partners = 0;

  // A resident buffer of the stand-in plan that begins in a row of a matrix.
  int add_buffer(Operand side, const Buffer& buffer, int row);

  // Items over the rows of some buffers; the i-th meets the i-th of the partners.
  int add_list(Operand side, const std::vector<int>& own, const std::vector<int>& partners,
               int rows_of_item, ListOrder order = ListOrder::longest_first);

 private:
  const Plan& plan_;
  const LengthTables& tables_;
};

}  // namespace ringside
