#include "reference/schedule/schedule_cost.h"

#include <algorithm>
#include <atomic>

#include "reference/plan/key_owners.h"
#include "reference/schedule/home_rows.h"
#include "reference/schedule/kept_keys.h"
#include "reference/support/interrupt.h"

namespace ringside {
namespace {

class CellsInTurn {  // cells of two areas that buffers take in turn
 public:
  void add(int64_t cells) {
    int64_t& area = areas_[taken_++ % 2];
    area = std::max(area, cells);
  }
  int64_t cells() const { return areas_[0] + areas_[1]; }

 private:
  int64_t areas_[2] = {0, 0};
  int taken_ = 0;
};

int64_t cells_of(const Message& m) { return int64_t{m.rows} * m.heads.size(); }

// What a rank sends follows from its own steps and from those of ranks that fetch, on any thread.
void add_shared(int64_t& sum, int64_t bytes) {
  std::atomic_ref(sum).fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace

int64_t bytes_of_cell(Payload payload, Pass pass, const ElementSizes& sizes, bool travels) {
  const int64_t qk = sizes.head_dim_qk, v = sizes.head_dim_v, f32 = sizeof(float);
  switch (payload) {
    case Payload::queries:
      return pass == Pass::forward ? qk * sizes.bytes : (qk + v) * sizes.bytes + 2 * f32;
    case Payload::keys:
      return (qk + v) * sizes.bytes;
    case Payload::results:
      return v * (travels ? sizes.bytes : f32) + f32;
    case Payload::query_gradients:
      return qk * f32;
    case Payload::key_gradients:
      return (qk + v) * f32;
  }
  return 0;
}

struct PassCounter::OfRank {
  const Plan& plan;
  int rank;
  std::span<const Step> steps;

  int last() const { return static_cast<int>(steps.size()) - 1; }
  const Buffer& before(int step, Operand operand) const {
    const bool is_q = operand == Operand::q;
    if (step == 0) return is_q ? plan.home_q[rank] : plan.home_kv[rank];
    return is_q ? steps[step - 1].q : steps[step - 1].kv;
  }
  bool replaced(int step, Operand operand) const {
    return steps[step].before.moves(operand) ||
           !(before(step, operand) == before(step + 1, operand));
  }
  int64_t cells(const Buffer& buffer) const {
    return int64_t{plan.rows(buffer)} * buffer.heads.size();
  }
  // Cells that arrive together and land apart, in staging.
  int64_t staged(int step, Operand operand) const {
    int64_t cells = 0;
    for (const Message& m : steps[step].before.receives)
      if (m.operand == operand && m.peer != rank && m.lands_by_position()) cells += cells_of(m);
    return cells;
  }
  int64_t arrivals(int step, Operand operand) const {  // cells that come back from other ranks
    int64_t cells = 0;
    for (const Message& m : steps[step].before.sends)
      if (m.operand == operand && m.peer != rank) cells += cells_of(m);
    return cells;
  }
};

PassCounter::PassCounter(const Plan& plan, Pass pass, const ElementSizes& sizes, int num_steps,
                         KeepKv keep)
    : plan_(plan), pass_(pass), sizes_(sizes), keep_(keep) {
  const int ranks = plan.cp_size();
  cost_ = {PerStep(ranks, num_steps),   PerStep(ranks, num_steps),   std::vector<int64_t>(ranks),
           std::vector<int64_t>(ranks), std::vector<int64_t>(ranks), std::vector<int64_t>(ranks)};
  if (pass == Pass::backward)
    cost_.gradient_bytes_sent = cost_.gradient_bytes_received = PerStep(ranks, num_steps);
}

void PassCounter::add(int rank, std::span<const Step> steps) {
  const OfRank of{plan_, rank, steps};
  pass_ == Pass::forward ? add_forward(of) : add_backward(of);
  if (keep_ == KeepKv::yes) add_kept(of);
}

void PassCounter::add_kept(const OfRank& of) {
  int64_t cells = 0;
  for (int step = 0; step <= of.last(); ++step)
    if (keeps_keys(plan_, of.rank, of.steps, step)) cells += of.cells(of.steps[step].kv);
  cost_.kept_bytes[of.rank] += lies(Payload::keys, cells);
}

int64_t PassCounter::travels(Payload payload, int64_t cells) const {
  return cells * bytes_of_cell(payload, pass_, sizes_, true);
}

int64_t PassCounter::lies(Payload payload, int64_t cells) const {
  return cells * bytes_of_cell(payload, pass_, sizes_, false);
}

void PassCounter::add_messages(const OfRank& of, int step, Operand operand, Payload payload) {
  const auto add = [&](const std::vector<Message>& messages, PerStep& bytes) {
    check_interrupt(static_cast<int64_t>(messages.size()) + 1);
    for (const Message& m : messages)
      if (m.operand == operand && m.peer != of.rank)
        add_shared(bytes(of.rank, step), travels(payload, cells_of(m)));
  };
  add(of.steps[step].before.sends, cost_.bytes_sent);
  add(of.steps[step].before.receives, cost_.bytes_received);
}

// What was sent comes back, what was received is sent.
void PassCounter::add_messages_back(const OfRank& of, int step, Operand operand, Payload payload) {
  int64_t sent = 0;
  for (const Message& m : of.steps[step].before.receives)
    if (m.operand == operand && m.peer != of.rank) sent += travels(payload, cells_of(m));
  const int64_t received = travels(payload, of.arrivals(step, operand));
  if (payload == Payload::results) {
    cost_.result_bytes_sent[of.rank] += sent;
    cost_.result_bytes_received[of.rank] += received;
    return;
  }
  add_shared(cost_.bytes_sent(of.rank, step), sent);
  cost_.bytes_received(of.rank, step) += received;
  cost_.gradient_bytes_sent(of.rank, step) += sent;
  cost_.gradient_bytes_received(of.rank, step) += received;
}

void PassCounter::add_forward(const OfRank& of) {
  CellsInTurn keys;
  int64_t queries = 0, results = of.cells(plan_.home_q[of.rank]), staged_q = 0, staged_kv = 0;
  for (int step = 0; step <= of.last(); ++step) {
    check_interrupt(16);
    if (of.replaced(step, Operand::q)) {
      const int64_t cells = of.cells(of.steps[step].q);
      queries += cells;
      results += cells + of.arrivals(step, Operand::q);
      staged_q = std::max(staged_q, of.staged(step, Operand::q));
      add_messages(of, step, Operand::q, Payload::queries);
      add_messages_back(of, step, Operand::q, Payload::results);
    }
    if (of.replaced(step, Operand::kv)) {
      keys.add(of.cells(of.steps[step].kv));
      staged_kv = std::max(staged_kv, of.staged(step, Operand::kv));
      add_messages(of, step, Operand::kv, Payload::keys);
    }
  }
  cost_.workspace_bytes[of.rank] = lies(Payload::queries, queries + staged_q) +
                                   lies(Payload::results, results + staged_q) +
                                   lies(Payload::keys, keys.cells() + staged_kv);
}

void PassCounter::add_backward(const OfRank& of) {
  CellsInTurn keys, key_sums;
  const int steps = of.last() + 1;
  int64_t queries = 0, query_sums = of.cells(of.before(steps, Operand::q)), key_arrivals = 0;
  int64_t staged_q = 0, staged_keys = 0, staged_sums = 0;
  key_sums.add(of.cells(of.before(steps, Operand::kv)));
  for (int step = of.last(); step >= 0; --step) {
    check_interrupt(32);
    if (const auto fetched = fetch(of, step)) {
      keys.add(of.cells(of.steps[step].kv));
      staged_keys = std::max(staged_keys, fetched->staged);
    }
    if (of.replaced(step, Operand::kv)) {
      key_sums.add(of.cells(of.before(step, Operand::kv)));
      key_arrivals = std::max(key_arrivals, of.arrivals(step, Operand::kv));
      staged_sums = std::max(staged_sums, of.staged(step, Operand::kv));
      add_messages_back(of, step, Operand::kv, Payload::key_gradients);
    }
    if (of.replaced(step, Operand::q)) {
      queries += of.cells(of.steps[step].q);
      query_sums += of.cells(of.before(step, Operand::q)) + of.arrivals(step, Operand::q);
      staged_q = std::max(staged_q, of.staged(step, Operand::q));
      add_messages(of, step, Operand::q, Payload::queries);
      add_messages_back(of, step, Operand::q, Payload::query_gradients);
    }
  }
  cost_.workspace_bytes[of.rank] =
      lies(Payload::queries, queries + staged_q) +
      lies(Payload::query_gradients, query_sums + staged_q) +
      lies(Payload::keys, keys.cells() + staged_keys) +
      lies(Payload::key_gradients, key_sums.cells() + key_arrivals + staged_sums);
}

// Whether the keys of a step are brought anew from their owners: where they are neither kept, nor
// at home, nor at hand, as those of the step after.
std::optional<PassCounter::Fetched> PassCounter::fetch(const OfRank& of, int step) {
  const Buffer& wanted = of.steps[step].kv;
  if (keep_ == KeepKv::yes) return {};
  if (step < of.last() && !of.replaced(step + 1, Operand::kv)) return {};
  if (wanted == plan_.home_kv[of.rank]) return {};
  Fetched fetched;
  if (wanted.heads.size() == 0) return fetched;
  for (const auto& [owner, rows, apart] : sources_of_.at(wanted.shard)) {
    if (owner == of.rank) continue;
    const int64_t bytes = travels(Payload::keys, rows * wanted.heads.size());
    check_interrupt(4);
    cost_.bytes_received(of.rank, step) += bytes;
    add_shared(cost_.bytes_sent(owner, step), bytes);
    fetched.staged += apart * wanted.heads.size();
  }
  return fetched;
}

CostOfPasses cost_of_passes(const Plan& plan, const ElementSizes& sizes,
                            const BlockSize& block_size, KeepKv keep) {
  return {cost(plan, sizes, block_size), pass_cost(plan, Pass::forward, sizes, keep),
          pass_cost(plan, Pass::backward, sizes, keep)};
}

PassCost pass_cost(const Plan& plan, Pass pass, const ElementSizes& sizes, KeepKv keep) {
  PassCounter counter(plan, pass, sizes, plan.num_steps(), keep);
  const KeyOwners owners(plan);
  std::vector<bool> is_known(plan.shards.size());
  const auto sources_of = [&](const Shard& shard) {
    const RowPlaces places(shard);
    std::vector<KeySource> sources;
    for (const auto& [rank, rows] : owners.count(shard)) {
      int64_t apart = 0;
      for (const HomeRun& run : home_runs(plan.shard(plan.home_kv[rank]), places))
        if (run.lands_apart()) apart += run.rows;
      sources.push_back({rank, rows, apart});
    }
    return sources;
  };
  for (const auto& steps : plan.steps_of_rank)
    for (const Step& step : steps) {
      if (is_known[step.kv.shard]) continue;
      is_known[step.kv.shard] = true;
      counter.set_sources(step.kv.shard, sources_of(plan.shards[step.kv.shard]));
    }
  for (int rank = 0; rank < plan.cp_size(); ++rank) counter.add(rank, plan.steps_of_rank[rank]);
  return counter.total();
}

}  // namespace ringside
