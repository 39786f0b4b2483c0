#include "reference/plan/plan_tables.h"

#include <initializer_list>

#include "reference/support/errors.h"
#include "reference/support/interrupt.h"

namespace ringside {
namespace {

void add_row(Table& table, std::initializer_list<int> cells) {
  table.cells.insert(table.cells.end(), cells.begin(), cells.end());
}

void add_messages(Table& table, int rank, int step, int direction,
                  const std::vector<Message>& messages) {
  for (const Message& m : messages)
    add_row(table, {rank, step, direction, m.peer, static_cast<int>(m.operand), m.row, m.rows,
                    m.heads.begin, m.heads.end});
}

// The entry that a pooled row belongs to: the last one, or the next, so that indices never jump.
template <typename Pool>
auto& pooled(Pool& pool, int index, const char* table) {
  const int last = static_cast<int>(pool.size()) - 1;
  require(index >= 1 && (index == last || index == last + 1), "table \"", table, "\" names entry ",
          index, " after entry ", last,
          "; entries are numbered 1, 2, ... and their rows lie together");
  if (index == last + 1) pool.emplace_back();
  return pool.back();
}

Step& step_at(Plan& plan, int rank, int step, const char* table) {
  require(0 <= rank && rank < plan.cp_size(), "table \"", table, "\" names rank ", rank, " of ",
          plan.cp_size());
  auto& steps = plan.steps_of_rank[rank];
  require(0 <= step && step < static_cast<int>(steps.size()), "table \"", table, "\" names step ",
          step, " of rank ", rank, ", which has ", steps.size());
  return steps[step];
}

void add_homes(const Table& homes, Plan& plan) {
  for (int i = 0; i < homes.rows(); ++i) {
    const int32_t* r = homes.row(i);
    require(r[0] == i, "table \"homes\" names rank ", r[0], " where rank ", i,
            " is due; one row a rank, in order");
    plan.home_q.push_back({r[1], {0, plan.problem.num_heads}});
    plan.home_kv.push_back({r[2], {0, plan.problem.num_kv_heads}});
  }
  plan.steps_of_rank.resize(plan.home_q.size());
}

void add_steps(const Table& steps, Plan& plan) {
  for (int i = 0; i < steps.rows(); ++i) {
    const int32_t* r = steps.row(i);
    require(0 <= r[0] && r[0] < plan.cp_size(), "table \"steps\" names rank ", r[0], " of ",
            plan.cp_size());
    auto& of_rank = plan.steps_of_rank[r[0]];
    require(r[1] == static_cast<int>(of_rank.size()), "table \"steps\" names step ", r[1],
            " of rank ", r[0], " where step ", of_rank.size(), " is due");
    require(0 <= r[2] && r[2] <= static_cast<int>(ExchangeKind::all_to_all),
            "table \"steps\" names exchange kind ", r[2], "; known are 0 to 3");
    Step& step = of_rank.emplace_back();
    step.before.kind = static_cast<ExchangeKind>(r[2]);
    step.q = {r[3], {r[4], r[5]}};
    step.kv = {r[6], {r[7], r[8]}};
    step.tiles = r[9];
  }
}

}  // namespace

PlanTables to_tables(const Plan& plan) {
  PlanTables t;
  for (int i = 0; i < static_cast<int>(plan.shards.size()); ++i)
    for (const Segment& s : plan.shards[i])
      add_row(t.shards, {i, s.seq, s.pos, s.stride, s.row, s.len});
  for (int i = 0; i < static_cast<int>(plan.tile_lists.size()); ++i)
    for (const auto& [q, k] : plan.tile_lists[i])
      add_row(t.tiles, {i, q.seq, q.pos, q.stride, q.row, q.len, k.pos, k.stride, k.row, k.len});
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    add_row(t.homes, {rank, plan.home_q[rank].shard, plan.home_kv[rank].shard});
    for (int i = 0; i < plan.num_steps(); ++i) {
      const Step& s = plan.steps_of_rank[rank][i];
      add_row(t.steps, {rank, i, static_cast<int>(s.before.kind), s.q.shard, s.q.heads.begin,
                        s.q.heads.end, s.kv.shard, s.kv.heads.begin, s.kv.heads.end, s.tiles});
      add_messages(t.messages, rank, i, 0, s.before.sends);
      add_messages(t.messages, rank, i, 1, s.before.receives);
    }
  }
  return t;
}

void from_tables(const PlanTables& t, Plan& plan) {
  plan.shards.assign(1, {});
  plan.tile_lists.assign(1, {});
  plan.home_q.clear();
  plan.home_kv.clear();
  plan.steps_of_rank.clear();
  for (int i = 0; i < t.shards.rows(); ++i) {
    const int32_t* r = t.shards.row(i);
    pooled(plan.shards, r[0], "shards").push_back({r[1], r[2], r[3], r[4], r[5]});
  }
  for (int i = 0; i < t.tiles.rows(); ++i) {
    check_interrupt(8);
    const int32_t* r = t.tiles.row(i);
    pooled(plan.tile_lists, r[0], "tiles")
        .push_back({{r[1], r[2], r[3], r[4], r[5]}, {r[1], r[6], r[7], r[8], r[9]}});
  }
  add_homes(t.homes, plan);
  add_steps(t.steps, plan);
  for (int i = 0; i < t.messages.rows(); ++i) {
    check_interrupt(8);
    const int32_t* r = t.messages.row(i);
    require(0 <= r[2] && r[2] <= 1 && 0 <= r[4] && r[4] <= 1, "table \"messages\" row ", i,
            " has direction ", r[2], " and operand ", r[4], "; both are 0 or 1");
    Exchange& exchange = step_at(plan, r[0], r[1], "messages").before;
    (r[2] == 0 ? exchange.sends : exchange.receives)
        .push_back({r[3], static_cast<Operand>(r[4]), r[5], r[6], {r[7], r[8]}});
  }
}

}  // namespace ringside
