#include "optimized/ranks/parts.h"

#include <algorithm>

#include "optimized/tables/row_owner.h"
#include "optimized/tables/schedules/last_sum.h"
#include "optimized/tables/schedules/operation_blocks.h"
#include "reference/rows/seen_rows.h"

namespace ringside {
namespace {

// Rows of a rank's own array: token or padding, where they are.
std::vector<int32_t> own_rows(const Plan& plan, int rank, Operand operand) {
  const bool is_q = operand == Operand::q;
  const PackedLayout& layout = is_q ? plan.problem.layout_q : plan.problem.layout_k;
  const Buffer& home = is_q ? plan.home_q[rank] : plan.home_kv[rank];
  std::vector<int32_t> rows(static_cast<size_t>(plan.rows(home)), kNobody);
  for (const Segment& s : plan.shard(home))
    for (int i = 0; i < s.len; ++i)
      rows[s.row + i] = s.position(i) < layout.len(s.seq) ? s.row + i : padding_row(s.row + i);
  return rows;
}

// Of queries, with padding for tokens that see nothing.
std::vector<int32_t> seeing_rows(const Plan& plan, int rank) {
  const Problem& problem = plan.problem;
  std::vector<int32_t> rows = own_rows(plan, rank, Operand::q);
  for (const Segment& s : plan.shard(plan.home_q[rank])) {
    const SequenceMask mask{problem.mask, problem.layout_q.len(s.seq), problem.layout_k.len(s.seq)};
    for (int i = 0; i < s.len; ++i)
      if (mask.visible(s.position(i)).size() == 0) rows[s.row + i] = padding_row(s.row + i);
  }
  return rows;
}

std::vector<std::vector<Event>> events_of(const std::vector<Schedule>& hosted) {
  std::vector<std::vector<Event>> events;
  for (const Schedule& schedule : hosted) events.emplace_back(schedule.operations.size());
  return events;
}

}  // namespace

bool finds_nothing(const Schedule& schedule, int operation) {
  const Operation& op = schedule.operations[operation];
  const bool forward = schedule.pass == Pass::forward;
  const int sums = schedule.item_sums(op);
  for (int i = operation; i-- > 0;) {
    const Operation& before = schedule.operations[i];
    if (before.kind == OperationKind::compute && schedule.item_sums(before) == sums) return false;
    if (before.kind == OperationKind::clear && before.to.buffer == sums)
      return !forward || before.step == op.step;
  }
  return false;
}

RankParts::RankParts(Lengths known, const Plan& plan, const Hosting& hosting_,
                     const ProgramOptions& o, KeepKv keep_)
    : ProgramParts(known, plan.problem, o), keep(keep_), hosting(hosting_) {
  num_processes = static_cast<int>(hosting.processes.size());
  make_pass(plan, Pass::forward), make_pass(plan, Pass::backward);
}

RankParts::RankParts(const Plan& plan, const Hosting& hosting_, const ProgramOptions& o,
                     KeepKv keep_)
    : RankParts(Lengths::of_plan, plan, hosting_, o, keep_) {
  for (const int rank : hosting.hosted())
    members.push_back({add_rows(own_rows(plan, rank, Operand::q)),
                       add_rows(own_rows(plan, rank, Operand::kv)),
                       add_rows(seeing_rows(plan, rank))});
  add_tables(plan, forward);
  add_tables(plan, backward);
  tables.upload();
}

void RankParts::make_pass(const Plan& plan, Pass pass) {
  PassParts& parts = pass == Pass::forward ? forward : backward;
  parts.pass = ProcessPass(plan, hosting, pass, sizes(pass), {keep, header_bytes(pass)});
  parts.events = events_of(parts.pass.hosted());
  place(parts);
}

void RankParts::place(PassParts& parts) const {
  Arena arena;
  static_cast<void>(arena.take(parts.pass.bytes()));
  for (const Schedule& schedule : parts.pass.hosted()) {
    const int64_t q = schedule.buffers[schedule.home_queries].cells();
    const int64_t k = schedule.buffers[schedule.home_keys].cells();
    const auto& q_sizes = parts.pass.sizes().of(Payload::queries);
    const auto& k_sizes = parts.pass.sizes().of(Payload::keys);
    MemberPlaces places;
    if (home_in_workspace) {
      places.q = arena.take(q * q_sizes[0]);
      places.k = arena.take(k * k_sizes[0]);
      places.v = arena.take(k * k_sizes[1]);
    }
    if (schedule.pass == Pass::backward) {
      if (home_in_workspace) places.dout = arena.take(q * q_sizes[1]);
      places.lse = arena.take(q * q_sizes[2]);
      places.delta = arena.take(q * q_sizes[3]);
    }
    parts.places.push_back(places);
  }
  parts.of_family = arena.take(most_bytes_of_family(parts));
  parts.staging_bytes = parts.pass.staging_bytes();
  parts.staging = arena.take(parts.staging_bytes);
  parts.end = arena.bytes();
}

void RankParts::add_tables(const Plan& plan, PassParts& parts) {
  for (const Schedule& schedule : parts.pass.hosted()) {
    std::vector<HostWorkList> items;
    for (const Operation& op : schedule.operations)
      items.push_back(op.kind == OperationKind::compute
                          ? items_of(schedule.pass, {{&plan.tile_lists[op.tiles], 0, 0}}, false)
                          : HostWorkList{});
    const bool summed_up =
        std::ranges::any_of(items, [](const HostWorkList& list) { return list.head_parts > 1; });
    parts.final_rows.push_back(
        tell_final(plan, schedule, summed_up ? FinalItems{} : find_final(schedule, items)));
    auto& of_member = parts.operations.emplace_back();
    for (int i = 0; i < static_cast<int>(schedule.operations.size()); ++i)
      of_member.push_back(tables_of(plan, schedule, i, items[i]));
    tell_clears(schedule, of_member);
    if (schedule.pass != Pass::backward) continue;
    const LastSum last = last_sum(schedule);
    AddedAtEnd& added = parts.added_at_end.emplace_back();
    for (const LastSum::Term& term : last.terms)
      added.terms.push_back({term.operation, term.begins, tables.add(term.row_of)});
    added.without = last.without;
  }
}

// Results of rows behind which nobody writes any more are final at once: they need no sums in
// float32 that are converted behind.
FinalItems RankParts::find_final(const Schedule& schedule, std::vector<HostWorkList>& items) const {
  if (!family.final_results || home_in_workspace) return {};
  std::vector<HostWorkList> home(items.size());
  const auto computes_home = [&](const Operation& op) {
    return op.kind == OperationKind::compute && schedule.item_sums(op) == schedule.home_item_sums();
  };
  for (size_t i = 0; i < items.size(); ++i)
    if (computes_home(schedule.operations[i])) home[i] = std::move(items[i]);
  FinalItems found = tell_final_items(schedule, home);
  for (size_t i = 0; i < items.size(); ++i)
    if (computes_home(schedule.operations[i])) items[i] = std::move(home[i]);
  return found;
}

FinalRows RankParts::tell_final(const Plan& plan, const Schedule& schedule,
                                const FinalItems& found) {
  const int rows = static_cast<int>(found.row_is_final.size());
  FinalRows made{.any = found.rows > 0,
                 .all = found.rows > 0 && found.rows == rows,
                 .sums_unused = found.rows > 0 && found.rows == rows && found.sums_unused,
                 .others = {}};
  if (!made.any) return made;
  const Operand operand = schedule.pass == Pass::forward ? Operand::q : Operand::kv;
  const std::vector<int32_t> own = own_rows(plan, schedule.rank, operand);
  std::vector<int32_t> others(own.size(), kNobody);
  for (int row = 0; row < rows; ++row)
    if (found.row_is_final[row])
      others[row] = kWritten;
    else if (own[row] != kNobody)
      others[row] = row;
  made.others = {tables.add(own), tables.add(others)};
  return made;
}

OperationTables RankParts::tables_of(const Plan& plan, const Schedule& schedule, int operation,
                                     const HostWorkList& items) {
  const Operation& op = schedule.operations[operation];
  OperationTables made;
  if (op.kind == OperationKind::combine || !op.runs.empty())
    made.blocks = tables.add(operation_blocks(schedule, op));
  if (op.kind != OperationKind::compute) return made;
  made = add_items(schedule.pass, {{&plan.tile_lists[op.tiles], 0, 0}}, items);
  made.starts = finds_nothing(schedule, operation) && made.can_start();
  return made;
}

RowTables RankParts::add_rows(const std::vector<int32_t>& rows) {
  std::vector<int32_t> back(rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    back[i] = rows[i] == kNobody ? kNobody : static_cast<int32_t>(i);
  return {tables.add(rows), tables.add(back)};
}

}  // namespace ringside
