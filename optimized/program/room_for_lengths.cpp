#include "optimized/program/room_for_lengths.h"

#include "optimized/tables/heads_at_a_time.h"

namespace ringside {

void set_partners(PassParts& parts, TableOf<Segment> partners) {
  for (auto& of_member : parts.operations)
    for (OperationTables& op : of_member)
      for (WorkTable* table :
           {&op.forward, &op.backward_queries, &op.backward_keys, &op.keys_in_turn})
        table->partners = partners;
}

const RoomForLengths::Side& RoomForLengths::add_side(Operand operand, int home_rows,
                                                     const std::vector<int32_t>& row_of_rank) {
  const bool is_q = operand == Operand::q;
  LengthTables::Side& side = is_q ? lengths_.q : lengths_.k;
  SideTables& tables = is_q ? q_ : k_;
  side.home_rows = home_rows;
  Side& shown = tables.shown;
  shown.rows = {device_.reserve<int32_t>(home_rows), device_.reserve<int32_t>(side.max_rows)};
  shown.cu_seqlens = device_.reserve<int32_t>(lengths_.max_batch + 1);
  shown.cu_seqlens_padded = device_.reserve<int32_t>(lengths_.max_batch + 1);
  tables.home = reserve_groups(side.home);
  tables.resident = side.is_gathered() ? reserve_groups(side.resident) : tables.home;
  tables.row_of_rank = device_.add(row_of_rank);
  if (side.is_gathered()) shown.gathered = device_.reserve<int32_t>(home_rows);
  return shown;
}

WorkTable RoomForLengths::add_list(Operand side, const std::vector<int>& own,
                                   const std::vector<int>& partners, int rows_of_item,
                                   ListOrder order, int documents_ahead) {
  auto& list = lists_.lists[lists_.add_list(side, own, partners, rows_of_item, order)];
  list.documents_ahead = documents_ahead;
  work_.push_back({device_.reserve<WorkItem>(list.num_slots()), {}, device_.reserve<int32_t>(1)});
  slots_.push_back(device_.reserve<int32_t>(list.num_slots()));
  buckets_.push_back(device_.reserve<uint8_t>(list.num_slots()));
  counts_.push_back(device_.reserve<int32_t>(2 * list.num_parts() * LengthTables::kBuckets));
  firsts_.push_back(device_.reserve<int32_t>(documents_ahead > 0 ? 2 * lengths_.max_batch + 1 : 0));
  lengths_.has_firsts_ahead = lengths_.has_firsts_ahead || documents_ahead > 0;
  return work_.back();
}

OperationTables RoomForLengths::add_items(Pass pass, const ProgramParts& parts,
                                          const std::vector<int>& queries,
                                          const std::vector<int>& keys, bool alone) {
  const KernelFamily& family = parts.family;
  lengths_.joins_queries = parts.neighbours() == Neighbours::joined;
  OperationTables made;
  const auto add_keys = [&](int rows, ListOrder order, int documents_ahead = 0) {
    return add_list(Operand::kv, keys, queries, rows, order, documents_ahead);
  };
  if (pass == Pass::forward) {
    made.forward = add_list(Operand::q, queries, keys, family.forward_rows(parts.shape),
                            family.by_document ? ListOrder::by_document : ListOrder::longest_first);
    return made;
  }
  lengths_.group_size = parts.problem.group_size(), lengths_.in_part = parts.meet_in_part(alone);
  const int rows = family.backward_key_rows(parts.shape);
  const int whole = alone ? parts.rows_of_whole_keys() : 0;
  if (alone) made.head_parts = parts.head_parts_of(made.of_keys.rows_met);
  made.backward_queries =
      add_list(Operand::q, queries, keys, family.backward_query_rows(parts.shape));
  if (whole > 0) {
    made.backward_keys = add_keys(whole, ListOrder::longest_first);
    made.keys_in_one_item = true, made.carries_dq = parts.longest_keys() > rows;
    return made;
  }
  made.keys_by_document = parts.order_of_keys(made.head_parts) == ItemOrder::by_document;
  if (!made.keys_by_document) {
    made.backward_keys = add_keys(rows, ListOrder::longest_first);
  } else {
    const int ahead = alone ? parts.documents_ahead(made.head_parts) : 0;
    made.backward_keys = add_keys(rows, ListOrder::by_document, ahead);
    made.first_keys_ahead = ahead > 0;
  }
  if (alone && family.backward_in_turn != nullptr)
    made.keys_in_turn = add_keys(rows, ListOrder::in_turn);
  return made;
}

TableOf<Segment> RoomForLengths::allocate() {
  partners_ = device_.reserve<Segment>(lists_.num_partners);
  status_ = device_.add(std::vector<int32_t>{0});
  unfit_ = device_.add(std::vector<int32_t>{0});
  longest_keys_ = device_.add(std::vector<int32_t>{0});
  most_heads_ = device_.add(std::vector<int32_t>{kEveryHead});
  device_.allocate();
  for (size_t i = 0; i < work_.size(); ++i) {
    LengthTables::List& list = lists_.lists[i];
    list.items = device_.at(work_[i].items);
    list.num_items = device_.at(work_[i].num_items);
    list.segment_of_slot = device_.at(slots_[i]);
    list.bucket_of_slot = device_.at(buckets_[i]);
    list.counts = device_.at(counts_[i]);
    if (list.documents_ahead == 0) continue;
    list.first_slots = device_.at(firsts_[i]);
    list.first_places = list.first_slots + lengths_.max_batch;
    list.num_firsts = list.first_places + lengths_.max_batch;
  }
  buffers_ = device_.add(lists_.buffers);
  runs_ = device_.add(lists_.runs);
  list_table_ = device_.add(lists_.lists);
  return partners_;
}

void RoomForLengths::point() {
  point(lengths_.q, q_), point(lengths_.k, k_);
  lengths_.buffers = device_.at(buffers_), lengths_.num_buffers = buffers_.size;
  lengths_.runs = device_.at(runs_);
  lengths_.lists = device_.at(list_table_), lengths_.num_lists = list_table_.size;
  lengths_.partners = device_.at(partners_), lengths_.num_partners = partners_.size;
  for (const LengthTables::List& list : lists_.lists) lengths_.num_slots += list.num_slots();
  lengths_.status = device_.at(status_), lengths_.unfit = device_.at(unfit_);
  lengths_.longest_keys = device_.at(longest_keys_);
  lengths_.most_heads = device_.at(most_heads_);
}

RoomForLengths::GroupTables RoomForLengths::reserve_groups(const LengthTables::Groups& groups) {
  const int64_t number = groups.owned.groups();
  return {device_.reserve<int32_t>(number * lengths_.max_batch),
          device_.reserve<int32_t>(number * lengths_.num_chunks()),
          device_.reserve<Segment>(number * lengths_.segments_of(groups))};
}

void RoomForLengths::point(LengthTables::Groups& groups, const GroupTables& tables) const {
  groups.row_in_chunk = device_.at(tables.row_in_chunk);
  groups.rows_of_chunk = device_.at(tables.rows_of_chunk);
  groups.segments = device_.at(tables.segments);
}

void RoomForLengths::point(LengthTables::Side& side, const SideTables& tables) const {
  side.cu_seqlens = device_.at(tables.shown.cu_seqlens);
  side.cu_seqlens_padded = device_.at(tables.shown.cu_seqlens_padded);
  point(side.home, tables.home), point(side.resident, tables.resident);
  side.home_row_of_rank = device_.at(tables.row_of_rank);
  side.global_of_home = device_.at(tables.shown.rows.global_of_home);
  side.home_of_global = device_.at(tables.shown.rows.home_of_global);
  if (side.is_gathered()) side.resident_of_home = device_.at(tables.shown.gathered);
}

}  // namespace ringside
