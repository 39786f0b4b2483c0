#include "optimized/tables/length_lists.h"

#include <algorithm>

#include "reference/partition/partition.h"
#include "reference/support/errors.h"

namespace ringside {
namespace {

void require_rows(const DeviceLayout& layout, int rows, const char* name) {
  require(layout.valid.size == layout.padded.size, "cu_seqlens of ", name, " has ",
          layout.valid.size, " entries and cu_seqlens_padded ", layout.padded.size,
          "; expected [batch+1] in both. Pass those of one batch");
  require(layout.num_rows == rows, "the layout of ", name, " has ", layout.num_rows,
          " rows; expected the program's ", rows, ". Pass the rows of the array, x.shape[0]");
}

}  // namespace

void require_room(const LengthTables& tables, const DeviceLayout& q, const DeviceLayout& k) {
  require_rows(q, tables.q.max_rows, "q"), require_rows(k, tables.k.max_rows, "k");
  require(q.batch() == k.batch(), q.batch(), " sequences of q and ", k.batch(),
          " of k; expected as many. Pass the layouts of one batch");
  require(q.batch() >= 0, "no offsets; expected [batch+1]. Pass [0] for no sequences");
  require(q.batch() <= tables.max_batch, q.batch(), " sequences; the program has room for ",
          tables.max_batch, ". Make one with a larger max_sequences");
}

LengthLists::LengthLists(const Capacity& capacity, const Plan& stand_in, LengthTables& tables)
    : plan_(stand_in), tables_(tables) {
  const PartitionRule rule = find_partition(capacity.partition).rule;
  tables.max_batch = capacity.max_sequences;
  tables.multiple_of = capacity.pad_to_multiple_of;
  tables.max_seqlen = capacity.max_seqlen;
  tables.mask = capacity.mask;
  tables.q.max_rows = capacity.max_rows_q, tables.k.max_rows = capacity.max_rows_k;
  for (const Operand operand : {Operand::q, Operand::kv}) {
    LengthTables::Side& side = operand == Operand::q ? tables.q : tables.k;
    side.home.owned = {rule, capacity.cp_size};
    side.home.rows = rank_rows(capacity, side.max_rows);
    const int ranks = ranks_of_group(stand_in, operand);
    side.resident.owned = {rule, capacity.cp_size, ranks};
    side.resident.rows = ranks * side.home.rows;
    require(int64_t{side.resident.owned.parts()} * capacity.max_sequences < INT32_MAX,
            "tables of 2^31 segments; lower max_sequences or cp_size");
  }
}

int LengthLists::add_buffer(Operand side, const Buffer& buffer, int row) {
  const LengthTables::Groups& groups = tables_.side(side).resident;
  const int partners = tables_.segments_of(groups);
  require(num_partners + partners < INT32_MAX,
          "tables of 2^31 segments; lower max_sequences or cp_size");
  const int group = owners_of(plan_, buffer, side).begin / groups.owned.ranks;
  buffers.push_back({side, group, row, static_cast<int>(num_partners)});
  num_partners += partners;
  return static_cast<int>(buffers.size()) - 1;
}

int LengthLists::add_list(Operand side, const std::vector<int>& own,
                          const std::vector<int>& partners, int rows_of_item, ListOrder order) {
  const LengthTables::Groups& groups = tables_.side(side).resident;
  LengthTables::List list;
  list.side = side;
  list.rows_of_item = rows_of_item, list.order = order;
  const int64_t slots = LengthTables::slots(groups.rows, tables_.segments_of(groups), rows_of_item);
  list.first_run = static_cast<int>(runs.size());
  for (size_t i = 0; i < own.size(); ++i)
    runs.push_back({buffers[own[i]].group, buffers[own[i]].row, partners[i]});
  list.num_runs = static_cast<int>(own.size());
  require(std::max(1, list.num_runs) * slots < INT32_MAX,
          "a work list of 2^31 slots; lower max_sequences or cp_size");
  list.slots_of_run = static_cast<int>(slots);
  lists.push_back(list);
  return static_cast<int>(lists.size()) - 1;
}

}  // namespace ringside
