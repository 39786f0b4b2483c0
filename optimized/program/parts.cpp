#include "optimized/program/parts.h"

#include <algorithm>
#include <utility>

#include "optimized/device/processors.h"
#include "optimized/device/properties.h"
#include "optimized/program/choose_family.h"
#include "optimized/tables/heads_at_a_time.h"
#include "optimized/tables/schedules/final_items.h"
#include "optimized/tables/sums/first_keys.h"
#include "optimized/tables/sums/item_turns.h"

namespace ringside {
namespace {

constexpr int64_t kShortWalk = 2048;  // rows of queries

AttentionShape shape_asked(const Problem& problem, const ProgramOptions& o) {
  require_head_dims(o);
  return {.group_size = problem.group_size(),
          .head_dim_qk = o.head_dim_qk,
          .head_dim_v = o.head_dim_v,
          .softmax_scale = o.softmax_scale,
          .type = o.type};
}

}  // namespace

int64_t most_bytes(KernelFamily::BytesOfShape of_shape, const std::vector<AttentionShape>& shapes) {
  int64_t most = 0;
  if (of_shape != nullptr)
    for (const AttentionShape& shape : shapes) most = std::max(most, of_shape(shape));
  return most;
}

ProgramParts::ProgramParts(Lengths known, const Problem& problem_, const ProgramOptions& o)
    : options(o),
      problem(problem_),
      shape(shape_asked(problem_, o)),
      family(choose_family(shape, device, o,
                           std::max(problem_.layout_q.num_rows(), problem_.layout_k.num_rows()))),
      any_lengths(known == Lengths::any),
      home_in_workspace(shape.type != o.type || shape.head_dim_qk != o.head_dim_qk ||
                        shape.head_dim_v != o.head_dim_v) {
  require(o.sm_margin >= 0, "sm_margin is ", o.sm_margin, "; expected 0 or more multiprocessors");
}

AttentionShape ProgramParts::shape_of(const Range& q_heads, const Range& kv_heads) const {
  AttentionShape s = shape;
  s.num_heads = q_heads.size(), s.num_kv_heads = kv_heads.size();
  s.first_head = q_heads.begin, s.first_kv_head = kv_heads.begin;
  return s;
}

int64_t ProgramParts::most_bytes_of_family(const PassParts& parts) const {
  std::vector<AttentionShape> shapes;
  for (const Schedule& schedule : parts.pass.hosted())
    for (const Operation& op : schedule.operations)
      if (op.kind == OperationKind::compute) shapes.push_back(shape_of(schedule, op));
  return most_bytes(
      &parts == &forward ? family.forward_workspace_bytes : family.backward_workspace_bytes,
      shapes);
}

ItemOrder ProgramParts::order_of_items() const {
  return family.by_document ? ItemOrder::by_document : ItemOrder::longest_first;
}

int ProgramParts::longest_keys() const {
  int longest = 0;
  for (int seq = 0; seq < problem.layout_k.batch(); ++seq)
    longest = std::max(longest, problem.layout_k.len(seq));
  return std::min(longest, max_seqlen);
}

// Where only the device knows the lengths: of a step of a ring, most items meet all queries of
// their document that a rank has.
bool ProgramParts::meet_in_part(bool alone) const {
  constexpr int kLong = 2;
  return alone && problem.mask.visible(0, kLong, kLong).size() < kLong;
}

// Measured: of many heads of short documents, sixteen alone or apart, and all of another step.
int ProgramParts::heads_of_documents(int longest, int heads, bool in_part, bool alone) const {
  constexpr int kMostAlone = 16;
  const int most = alone ? std::min(heads, kMostAlone) : heads;
  return std::min(ringside::heads_of_documents(longest, problem.group_size(), in_part), most);
}

// Items that meet few rows each, of a window, go side by side in all heads, where each has a query
// head to itself. Long ones that have as much to do as others walk over the same rows at one time.
int ProgramParts::heads_at_a_time(const OperationTables& of, int heads, bool alone) const {
  const WorkOfItems& keys = of.of_keys;
  const bool in_parts = of.head_parts == problem.group_size();  // a query head of each item's own
  if (of.keys_by_document)
    return heads_of_documents(keys.most_rows_met, heads, keys.in_part, alone || of.head_parts > 1);
  if (keys.is_even && keys.most_rows_met >= kShortWalk && first_keys_see_all(problem.mask))
    return std::min(in_parts ? family.heads_at_a_time : 1, heads);
  const bool is_short = alone && in_parts && keys.rows_met > 0 && keys.rows_met <= kShortWalk;
  const bool together =
      is_short || ends_late_by_sections(keys.longest_share, heads, processors_of_device());
  return together ? heads : std::min(family.heads_at_a_time, heads);
}

// Items whose query heads take turns at a block of queries wait for each other's sums of dq, all of
// them there at one time; sums of dk and dv cost time, too. Measured: four heads or more gain,
// fewer where walks are long; of heads of 64, where they are not.
int ProgramParts::head_parts_of(int64_t rows_met) const {
  constexpr int kManyHeads = 4;
  constexpr int64_t kLongWalk = 2560;
  const bool many = problem.group_size() >= kManyHeads, is_long = rows_met >= kLongWalk;
  const bool gains = shape.head_dim_qk > 64 ? many || is_long : many && rows_met > 0 && !is_long;
  return gains && family.backward_head_parts != nullptr ? family.backward_head_parts(shape) : 1;
}

// Long ones that meet all rows, or as many, are not taken apart: they begin with the same rows, and
// are quicker one key head after the other. Nor are short ones of a step of a ring.
int ProgramParts::head_parts_of(const HostWorkList& keys, bool alone) const {
  constexpr int kLongStep = 1024;
  if (!alone && (keys.most_rows_met < kLongStep || !keys.in_part)) return 1;
  if (alone && keys.most_rows_met >= kShortWalk && keys.is_even && first_keys_see_all(problem.mask))
    return 1;
  return head_parts_of(keys.rows_met);
}

// Items that begin together wait for each other by document and head: the more heads there are, the
// fewer. But what they read is in the cache the shorter. Measured of packs of 32k tokens.
int ProgramParts::heads_in_turn(bool rounds) const {
  constexpr int kShort = 1024, kLong = 4096;
  int heads = family.heads_at_a_time;
  if (problem.group_size() == 1 && !rounds) {
    const int longest = longest_keys();
    if (longest <= kShort) return 1;
    if (longest > kLong) heads *= 2;
  }
  return std::min(heads, problem.num_kv_heads);
}

// Key heads that several query heads share are slower all at once than two at a time.
ItemOrder ProgramParts::order_of_keys(int head_parts) const {
  return problem.group_size() == 1 || head_parts > 1 ? order_of_items() : ItemOrder::longest_first;
}

// Of score options, kernels know where a block's first row stands, and no gaps.
Neighbours ProgramParts::neighbours() const {
  return options.score_options ? Neighbours::apart : Neighbours::joined;
}

HostWorkList ProgramParts::items_of(Pass pass, const std::vector<RankTiles>& tiles,
                                    bool alone) const {
  if (pass == Pass::forward)
    return query_items(problem, tiles, family.forward_rows(shape), order_of_items(), neighbours());
  const auto items = [&](ItemOrder order) {
    return key_items(problem, tiles, family.backward_key_rows(shape), order, neighbours());
  };
  if (problem.group_size() == 1) return items(order_of_keys(1));
  HostWorkList list = items(ItemOrder::longest_first);
  const int head_parts = head_parts_of(list, alone);
  if (const ItemOrder order = order_of_keys(head_parts); order != list.order) list = items(order);
  list.head_parts = head_parts;
  return list;
}

WorkTable ProgramParts::add(const HostWorkList& list) {
  return add(list.items, tables.add(list.partners));
}
WorkTable ProgramParts::add(const std::vector<WorkItem>& items, TableOf<Segment> partners) {
  const auto size = static_cast<int32_t>(items.size());
  return {tables.add(items), partners, tables.add(std::vector<int32_t>{size})};
}

WorkTable ProgramParts::add_in_turn(const HostWorkList& keys, const WorkTable& added) {
  if (family.backward_in_turn == nullptr) return {};
  const auto items = items_in_turn(keys, problem.mask, family.backward_key_rows(shape));
  return items.empty() ? WorkTable{} : add(items, added.partners);
}

// Turns cost waiting, and spare zeros before and a conversion behind the sums. Documents that wait
// for few gain, where others as long keep most processors busy. Measured of those that see
// themselves, up to four query heads a key head; where each query head has its own keys, an H100
// (3.3 TB/s) gains, and an H200 (4.9), whose memory takes zeros and sums quickly, does not.
bool ProgramParts::turns_are_quicker() const {
  constexpr int kMostKeys = 1152, kMostHeadsOfGroup = 4;
  constexpr int64_t kQuickMemory = 4'200'000'000'000;
  if (!family.rounds_in_turn(shape) || problem.group_size() > kMostHeadsOfGroup) return false;
  if (problem.group_size() == 1 && memory_rate_of(device) >= kQuickMemory) return false;
  double work = 0, most = 0;  // of a document
  for (int seq = 0; seq < problem.layout_k.batch(); ++seq) {
    const int len = problem.layout_k.len(seq);
    if (len > kMostKeys || len != problem.layout_q.len(seq)) return false;
    work += double(len) * len, most = std::max(most, double(len) * len);
  }
  const int heads = heads_in_turn(true);
  return 3 * work * heads >= most * processors_of_device();
}

bool ProgramParts::keep_busy(int64_t items) const {
  constexpr int64_t kItemsOfProcessor = 4;  // fewer would end too far apart
  return items * problem.num_kv_heads >= kItemsOfProcessor * processors_of_device();
}

int ProgramParts::rows_of_whole_keys() const {
  if (family.backward_whole_key_rows == nullptr) return 0;
  const int most = family.backward_whole_key_rows(shape), longest = longest_keys();
  if (longest > most || longest == 0) return 0;
  return keep_busy(problem.layout_k.num_rows() / longest) ? most : 0;
}

int ProgramParts::documents_ahead(int head_parts) const {
  if (family.backward_first_stores == nullptr || !first_keys_see_all(problem.mask)) return 0;
  const int longest = longest_keys();
  const int heads =
      heads_of_documents(longest, problem.num_kv_heads * head_parts, meet_in_part(true), true);
  const int ahead = ringside::documents_ahead(heads, processors_of_device());
  return longest > 0 && problem.layout_k.num_rows() / longest >= ahead ? ahead : 0;
}

HostWorkList ProgramParts::whole_keys(const std::vector<RankTiles>& tiles) const {
  if (family.backward_whole_key_rows == nullptr) return {};
  const int rows = family.backward_key_rows(shape), most = family.backward_whole_key_rows(shape);
  if (longest_keys() > most) return {};
  HostWorkList list = key_items(problem, tiles, most);
  const auto is_whole = [&](const WorkItem& item) {
    return item.end - item.begin <= rows || item.partner_end - item.partner_begin == 1;
  };
  if (!keep_busy(std::ssize(list.items)) || !one_item_a_sequence(list) ||
      !std::ranges::all_of(list.items, is_whole))
    return {};
  return list;
}

OperationTables ProgramParts::add_items(Pass pass, const std::vector<RankTiles>& tiles,
                                        const HostWorkList& items) {
  OperationTables made;
  if (pass == Pass::forward) {
    made.forward = add(items), made.written = rows_written(items.items);
  } else {
    made.backward_queries = add(query_items(problem, tiles, family.backward_query_rows(shape),
                                            ItemOrder::longest_first, neighbours()));
    const int rows = family.backward_key_rows(shape);
    made.carries_dq = std::ranges::any_of(
        items.items, [&](const WorkItem& item) { return item.end - item.begin > rows; });
    made.backward_keys = add(items), made.written = rows_written(items.items);
    made.of_keys = items;
    made.head_parts = items.head_parts;
    made.keys_in_one_item = one_item_a_sequence(items);
    made.keys_by_document = items.order == ItemOrder::by_document && !made.keys_in_one_item;
    if (!made.keys_in_one_item) made.keys_in_turn = add_in_turn(items, made.backward_keys);
    made.turns_are_quicker = made.keys_in_turn.items.size > 0 && turns_are_quicker();
  }
  return made;
}

void ProgramParts::tell_clears(const Schedule& schedule,
                               std::vector<OperationTables>& operations) const {
  constexpr size_t kMostPieces = 8;  // a fill each
  for (size_t i = 0; i < operations.size(); ++i) {
    const Operation& op = schedule.operations[i];
    if (op.kind != OperationKind::clear) continue;
    std::vector<Interval> written;
    for (size_t j = i + 1; family.starts_anew && j < operations.size(); ++j) {
      const Operation& next = schedule.operations[j];
      if (next.kind == OperationKind::clear && next.to.buffer == op.to.buffer) break;
      if (next.kind != OperationKind::compute || schedule.item_sums(next) != op.to.buffer) continue;
      if (!operations[j].starts) break;
      const std::vector<Interval>& rows = operations[j].written;
      written.insert(written.end(), rows.begin(), rows.end());
    }
    std::vector<Interval> left = rows_left(op.to.rows, std::move(written));
    const bool in_rows = layout == AccumulatorLayout::rows;
    if (!left.empty() && (left.size() > kMostPieces || !in_rows)) left = {{0, op.to.rows}};
    operations[i].cleared = std::move(left);
  }
}

UnseenRows ProgramParts::unseen_rows() const {
  const auto offsets = [&](TableOf<int32_t> table) {
    return DeviceOffsets{tables.at(table), table.size, false};
  };
  const MemberRows& rows = members[0];
  return {{offsets(cu_seqlens_q), offsets(cu_seqlens_q_padded), rows.q.home_of_global.size},
          {offsets(cu_seqlens_k), offsets(cu_seqlens_k_padded), rows.kv.home_of_global.size},
          problem.mask};
}

}  // namespace ringside
