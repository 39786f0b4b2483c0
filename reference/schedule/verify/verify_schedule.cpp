#include "reference/schedule/verify/verify_schedule.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "reference/schedule/builder.h"
#include "reference/support/errors.h"
#include "reference/support/interrupt.h"

namespace ringside {
namespace {

struct Where {  // put into words only where something is wrong
  const Schedule& schedule;
  size_t operation;
  At at{.rank = schedule.rank, .step = schedule.operations[operation].step};
};

std::ostream& operator<<(std::ostream& out, const Where& where) {
  const Schedule& schedule = where.schedule;
  const Operation& op = schedule.operations[where.operation];
  return out << "rank " << schedule.rank
             << (schedule.pass == Pass::forward ? " forward" : " backward") << " operation "
             << where.operation << " (" << name(op.kind) << " of step " << op.step << ")";
}

Where where(const Schedule& schedule, size_t i) { return {schedule, i}; }

void verify_block(const Schedule& schedule, const Block& block, const Where& what) {
  plan_require(0 <= block.buffer && block.buffer < static_cast<int>(schedule.buffers.size()), what,
               " names buffer ", block.buffer, " of ", schedule.buffers.size());
  const ScheduledBuffer& buffer = schedule.buffers[block.buffer];
  plan_require(block.row >= 0 && block.rows >= 0 && block.row <= buffer.rows - block.rows, what,
               " names rows [", block.row, ", ", int64_t{block.row} + block.rows,
               ") of a buffer of ", buffer.rows, " rows");
  plan_require(buffer.heads.begin <= block.heads.begin && block.heads.begin <= block.heads.end &&
                   block.heads.end <= buffer.heads.end,
               what, " names heads [", block.heads.begin, ", ", block.heads.end,
               ") of a buffer of heads [", buffer.heads.begin, ", ", buffer.heads.end, ")");
}

bool within(int first, int step, int rows, const Block& block) {
  const int64_t last = first + int64_t{step} * (rows - 1);
  return step >= 1 && first >= block.row && last < block.row + block.rows;
}

// Runs lie inside both blocks, and no row is written twice.
void verify_runs(const Operation& op, const Where& what) {
  std::vector<bool> written(op.runs.empty() ? 0 : op.to.rows);
  for (const RowRun& run : op.runs) {
    check_interrupt(run.rows);
    plan_require(run.rows >= 1 && within(run.from, run.from_step, run.rows, op.from) &&
                     within(run.to, run.to_step, run.rows, op.to),
                 what, " moves ", run.rows, " rows from row ", run.from, " to row ", run.to,
                 ", not all of them in its buffers");
    for (int i = 0; i < run.rows; ++i) {
      const int row = run.to + i * run.to_step - op.to.row;
      plan_require(!written[row], what, " writes row ", row + op.to.row, " twice");
      written[row] = true;
    }
  }
}

void verify_memory(const Schedule& schedule) {
  std::vector<int64_t> cells(schedule.areas.size(), 0);
  for (const ScheduledBuffer& buffer : schedule.buffers) {
    if (buffer.area == kCaller) continue;
    plan_require(0 <= buffer.area && buffer.area < static_cast<int>(cells.size()),
                 At{schedule.rank}, " has a buffer in area ", buffer.area, " of ", cells.size());
    plan_require(buffer.payload == schedule.areas[buffer.area].payload && buffer.cell >= 0,
                 At{schedule.rank}, " has a buffer of ", name(buffer.payload), " in an area of ",
                 name(schedule.areas[buffer.area].payload));
    cells[buffer.area] = std::max(cells[buffer.area], buffer.cell + buffer.cells());
  }
  for (size_t i = 0; i < cells.size(); ++i)
    plan_require(cells[i] == schedule.areas[i].cells, At{schedule.rank}, " states ",
                 schedule.areas[i].cells, " cells for area ", i, "; its buffers take ", cells[i]);
}

// visit(operation, message) for all sends or all receives, in order.
template <typename Visit>
void for_each_message(const Schedule& schedule, bool sends, Visit visit) {
  for (size_t i = 0; i < schedule.operations.size(); ++i)
    for (const ScheduledMessage& m :
         sends ? schedule.operations[i].sends : schedule.operations[i].receives)
      visit(i, m);
}

using Channel = std::tuple<int, int, Payload>;  // from, to
Payload payload_of(const Schedule& s, const ScheduledMessage& m) {
  return s.buffers[m.block.buffer].payload;
}

struct End {
  size_t operation;
  Block block;
};

std::map<Channel, std::vector<End>> ends_of(const std::vector<Schedule>& schedules, bool sends) {
  std::map<Channel, std::vector<End>> ends;
  for (const Schedule& s : schedules)
    for_each_message(s, sends, [&](size_t i, const ScheduledMessage& m) {
      const int from = sends ? s.rank : m.peer, to = sends ? m.peer : s.rank;
      ends[{from, to, payload_of(s, m)}].push_back({i, m.block});
    });
  return ends;
}

}  // namespace

void verify_shape(const Plan& plan, const Schedule& schedule) {
  verify_memory(schedule);
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    const Operation& op = schedule.operations[i];
    check_interrupt(16);
    for (const Access& access : accesses(schedule, op)) {
      verify_block(schedule, access.block, where(schedule, i));
      plan_require(!access.writes || schedule.buffers[access.block.buffer].area != kCaller,
                   where(schedule, i), " writes into the caller's arrays");
    }
    for (const auto* messages : {&op.sends, &op.receives})
      for (const ScheduledMessage& m : *messages)
        plan_require(0 <= m.peer && m.peer < plan.cp_size() && m.peer != schedule.rank,
                     where(schedule, i), " has a message with rank ", m.peer, " of ",
                     plan.cp_size());
    plan_require((op.stream == Stream::exchange) == (op.kind == OperationKind::exchange),
                 where(schedule, i), " stands in the wrong stream");
    for (const int before : op.after)
      plan_require(0 <= before && before < static_cast<int>(i), where(schedule, i),
                   " waits for operation ", before, ", which does not come before it");
    if (op.kind == OperationKind::copy || op.kind == OperationKind::combine)
      plan_require(
          (op.from.rows == op.to.rows || !op.runs.empty()) && op.from.heads == op.to.heads &&
              schedule.buffers[op.from.buffer].payload == schedule.buffers[op.to.buffer].payload,
          where(schedule, i), " moves one shape into another");
    verify_runs(op, where(schedule, i));
  }
}

void verify_steps(const Plan& plan, const Schedule& schedule) {
  std::vector<int> computed(plan.num_steps(), 0);
  const auto fits = [&](int buffer, const Buffer& held, Payload payload) {
    const ScheduledBuffer& b = schedule.buffers[buffer];
    return b.payload == payload && b.rows == plan.rows(held) && b.heads == held.heads;
  };
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    const Operation& op = schedule.operations[i];
    if (op.kind != OperationKind::compute) continue;
    plan_require(0 <= op.step && op.step < plan.num_steps(), where(schedule, i),
                 " names a step that the plan does not have");
    const Step& step = plan.steps_of_rank[schedule.rank][op.step];
    const bool is_backward = schedule.pass == Pass::backward;
    plan_require(op.tiles == step.tiles && op.queries >= 0 && op.keys >= 0 && op.query_sums >= 0 &&
                     is_backward == (op.key_sums >= 0) &&
                     fits(op.queries, step.q, Payload::queries) &&
                     fits(op.keys, step.kv, Payload::keys) &&
                     fits(op.query_sums, step.q, schedule.query_sums()) &&
                     (!is_backward || fits(op.key_sums, step.kv, Payload::key_gradients)),
                 where(schedule, i), " has other buffers or tiles than the plan");
    ++computed[op.step];
  }
  for (int step = 0; step < plan.num_steps(); ++step) {
    const int wanted = plan.tiles(plan.steps_of_rank[schedule.rank][step]).empty() ? 0 : 1;
    plan_require(computed[step] == wanted, Unsaid{{schedule.rank, step}}, "rank ", schedule.rank,
                 " computes step ", step, " ", computed[step], " times; expected ", wanted);
  }
}

void verify_sums(const Schedule& schedule) {
  std::vector<int64_t> gone(schedule.buffers.size(), 0);  // cells
  for (const Operation& op : schedule.operations) {
    for (const ScheduledMessage& m : op.sends) gone[m.block.buffer] += m.block.cells();
    if (op.kind == OperationKind::combine || op.kind == OperationKind::copy)
      gone[op.from.buffer] += op.cells_moved();
  }
  for (int i = 0; i < static_cast<int>(gone.size()); ++i) {
    const ScheduledBuffer& buffer = schedule.buffers[i];
    const bool is_sum = buffer.payload != Payload::queries && buffer.payload != Payload::keys;
    const bool stays = i == schedule.home_query_sums || i == schedule.home_key_sums;
    if (!is_sum || stays) continue;
    plan_require(gone[i] == buffer.cells(), At{schedule.rank}, " holds ", buffer.cells(),
                 " cells of ", name(buffer.payload), " in buffer ", i, ", of which ", gone[i],
                 " go on");
  }
}

int64_t verify_ends(const std::vector<Schedule>& schedules) {
  const auto sent = ends_of(schedules, true), received = ends_of(schedules, false);
  int64_t count = 0;
  for (const auto* ends : {&sent, &received})
    for (const auto& [channel, here] : *ends) {
      const auto& others = ends == &sent ? received : sent;
      const auto [from, to, payload] = channel;
      const auto there = others.find(channel);
      const size_t met = there == others.end() ? 0 : there->second.size();
      plan_require(met == here.size(), At{from}, " and rank ", to, ": ", here.size(),
                   ends == &sent ? " sends" : " receives", " of ", name(payload), ", but ", met,
                   " at the other end");
      check_interrupt(static_cast<int64_t>(here.size()));
      for (size_t i = 0; ends == &sent && i < here.size(); ++i, ++count)
        plan_require(here[i].block.rows == there->second[i].block.rows &&
                         here[i].block.heads == there->second[i].block.heads,
                     where(schedules[from], here[i].operation), " sends ", name(payload),
                     " of another shape than ", where(schedules[to], there->second[i].operation),
                     " receives");
    }
  return count;
}

int64_t verify_races(const Schedule& schedule) {
  const auto& operations = schedule.operations;
  // What of the other stream has ended before an operation begins: its last operation so far.
  std::vector<int> seen(operations.size(), -1);
  int last_of_stream[2] = {-1, -1};
  std::vector<std::vector<std::pair<int, Access>>> touched(schedule.areas.size());
  int64_t pairs = 0;
  for (int i = 0; i < static_cast<int>(operations.size()); ++i) {
    const Operation& op = operations[i];
    int& last = last_of_stream[static_cast<int>(op.stream)];
    if (last >= 0) seen[i] = seen[last];
    for (const int before : op.after)
      if (operations[before].stream != op.stream) seen[i] = std::max(seen[i], before);
    last = i;
    for (const Access& mine : accesses(schedule, op)) {
      const int area = schedule.buffers[mine.block.buffer].area;
      if (area == kCaller) continue;
      // What this operation has seen, all later ones of its stream have; its own stream is in
      // order.
      std::erase_if(touched[area], [&](const auto& touch) {
        const auto& [other, theirs] = touch;
        check_interrupt(4);
        if (operations[other].stream == op.stream) return false;
        if ((mine.writes || theirs.writes) && overlap(schedule, mine.block, theirs.block)) {
          plan_require(other <= seen[i], where(schedule, i), " may run before ",
                       where(schedule, other), " has ended, and both touch ",
                       name(schedule.buffers[mine.block.buffer].payload), " in area ", area);
          ++pairs;
        }
        return other <= seen[i];
      });
    }
    for (const Access& mine : accesses(schedule, op))
      if (const int area = schedule.buffers[mine.block.buffer].area; area != kCaller)
        touched[area].emplace_back(i, mine);
  }
  return pairs;
}

ScheduleProof verify_schedules(const Plan& plan, const std::vector<Schedule>& schedules) {
  plan_require(static_cast<int>(schedules.size()) == plan.cp_size(), schedules.size(),
               " schedules for ", plan.cp_size(), " ranks");
  ScheduleProof proof;
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const Schedule& s = schedules[rank];
    plan_require(s.rank == rank && s.pass == schedules[0].pass, "schedule ", rank, " is of rank ",
                 s.rank, " or of another pass");
    verify_shape(plan, s);
    verify_steps(plan, s);
    verify_sums(s);
    proof.operations += static_cast<int64_t>(s.operations.size());
  }
  proof.messages = verify_ends(schedules);
  verify_progress(schedules);
  for (const Schedule& s : schedules) proof.ordered_pairs += verify_races(s);
  return proof;
}

PlanProof verify_all(const Plan& plan) {
  PlanProof proof = verify(plan);
  for (const KeepKv keep : {KeepKv::no, KeepKv::yes}) {
    const auto forward = make_schedules(plan, Pass::forward, keep);
    const auto backward = make_schedules(plan, Pass::backward, keep);
    const int64_t operations =
        verify_schedules(plan, forward).operations + verify_schedules(plan, backward).operations;
    if (keep == KeepKv::no)
      proof.operations += operations;
    else
      verify_kept(forward, backward);
  }
  return proof;
}

}  // namespace ringside
