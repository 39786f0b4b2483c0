// The backward pass of a rank: steps from the last to the first. Keys and values come from their
// owners one step ahead, or lie where the forward pass kept them; gradients of keys travel while
// the next tiles run.
#include <algorithm>
#include <utility>

#include "reference/schedule/lower.h"
#include "reference/schedule/passes.h"

namespace ringside {
namespace {

class Backward : Lowering {
 public:
  Backward(const Plan& plan, int rank, HomeRows& home_rows, KeepKv keep)
      : Lowering(plan, rank, Pass::backward, keep),
        home_rows_(home_rows),
        key_areas_(b_, Payload::keys),
        key_sum_areas_(b_, Payload::key_gradients) {}

  Schedule make() {
    Residents now = home();
    const int steps = plan_.num_steps();
    for (int step = 0; step < steps; ++step) bring_queries(step, now);
    find_kept_keys();
    now.keys = steps == 0 ? now.keys : keys_of(steps - 1, now.keys);
    start_sums(now);
    for (int step = steps - 1; step >= 0; --step) {
      const int keys_before = step > 0 ? keys_of(step - 1, now.keys) : now.keys;
      compute(step, now);
      if (!can_wait(step)) add_arrivals(step);
      exchange_back(step, now);
      now.keys = keys_before;
    }
    add_arrivals(0);
    Schedule& s = b_.schedule();
    s.home_query_sums = now.query_sums, s.home_key_sums = now.key_sums;
    return std::move(s);
  }

 private:
  Residents home() {
    Schedule& s = b_.schedule();
    s.home_queries = add_like(Payload::queries, plan_.home_q[rank_], kCaller);
    s.home_keys = add_like(Payload::keys, plan_.home_kv[rank_], kCaller);
    return {s.home_queries, s.home_keys, -1, -1};
  }

  void bring_queries(int index, Residents& now) {
    queries_before_.push_back(now.queries);
    if (!replaced(index, Operand::q)) return;
    const int queries = add_like(Payload::queries, step(index).q, b_.add_area(Payload::queries));
    Moves moves;
    add_moves(moves, index, Operand::q, now.queries, queries);
    post(index, moves);
    now.queries = queries;
  }

  // Where nothing was kept, no tile reads the keys.
  void find_kept_keys() {
    int keys = b_.schedule().home_keys;
    for (int i = 0; keep_ == KeepKv::yes && i < plan_.num_steps(); ++i) {
      if (replaced(i, Operand::kv))
        keys = step(i).kv == plan_.home_kv[rank_] ? b_.schedule().home_keys : add_kept_keys(i);
      kept_keys_.push_back(keys);
    }
  }

  int keys_of(int index, int at_hand) {
    return keep_ == KeepKv::yes ? kept_keys_[index] : fetch_keys(index, at_hand);
  }

  // Whether a rank's keys of `step` are not those of the step after, which it has.
  bool fetches(int of_rank, int step) const {
    if (step + 1 < plan_.num_steps() && !is_replaced(plan_, of_rank, step + 1, Operand::kv))
      return false;
    const Buffer& keys = plan_.steps_of_rank[of_rank][step].kv;
    return !(keys == plan_.home_kv[of_rank]);
  }

  // The keys and values of `step`: those at hand, those at home, or brought from their owners.
  int fetch_keys(int index, int at_hand) {
    Moves moves;
    const Buffer& wanted = step(index).kv;
    int keys = at_hand;
    if (index + 1 == plan_.num_steps() || replaced(index + 1, Operand::kv))
      keys = wanted == plan_.home_kv[rank_] ? b_.schedule().home_keys
                                            : add_like(Payload::keys, wanted, key_areas_.next());
    Apart apart(moves.receives);
    for (int peer = 0; peer < plan_.cp_size(); ++peer) {
      if (fetches(rank_, index)) receive_rows(moves, apart, wanted, peer, keys);
      if (peer != rank_ && fetches(peer, index)) send_rows(moves, index, peer);
    }
    spread(moves, apart, keys);
    post(index, moves);
    return keys;
  }

  void receive_rows(Moves& moves, Apart& apart, const Buffer& wanted, int owner, int keys) {
    if (wanted.heads.size() == 0) return;
    const Block to{keys, 0, plan_.rows(wanted), wanted.heads};
    for (const HomeRun& run : home_rows_.runs(wanted.shard, owner)) {
      const Block from{b_.schedule().home_keys, run.row, run.rows, wanted.heads};
      const Block landing{keys, run.landing[0].to, run.rows, wanted.heads};
      if (owner != rank_ && run.lands_apart())
        apart.add(owner, wanted.heads, run.landing);
      else if (owner != rank_)
        moves.receives.push_back({owner, landing});
      else if (run.lands_apart())
        moves.own.push_back({from, to, run.landing});
      else
        moves.own.push_back({from, landing});
    }
  }

  void send_rows(Moves& moves, int index, int peer) {
    const Buffer& wanted = plan_.steps_of_rank[peer][index].kv;
    if (wanted.heads.size() == 0) return;
    for (const HomeRun& run : home_rows_.runs(wanted.shard, rank_))
      moves.sends.push_back({peer, {b_.schedule().home_keys, run.row, run.rows, wanted.heads}});
  }

  void start_sums(Residents& now) {
    const int steps = plan_.num_steps(), last = std::max(steps - 1, 0);
    now.query_sums =
        new_sums(last, Payload::query_gradients, resident_before(plan_, rank_, steps, Operand::q),
                 b_.add_area(Payload::query_gradients));
    now.key_sums =
        new_sums(last, Payload::key_gradients, resident_before(plan_, rank_, steps, Operand::kv),
                 key_sum_areas_.next());
  }
  int new_sums(int step, Payload payload, const Buffer& like, int area) {
    const int sums = add_like(payload, like, area);
    b_.clear(step, sums);
    return sums;
  }

  void exchange_back(int index, Residents& now) {
    Moves moves;
    if (replaced(index, Operand::kv)) {
      const Buffer& before = resident_before(plan_, rank_, index, Operand::kv);
      const int sums = new_sums(index, Payload::key_gradients, before, key_sum_areas_.next());
      if (key_arrivals_ == kCaller) key_arrivals_ = b_.add_area(Payload::key_gradients);
      expect(add_moves_back(moves, index, Operand::kv, now.key_sums, sums, key_arrivals_));
      now.key_sums = sums;
    }
    if (replaced(index, Operand::q)) {
      const Buffer& before = resident_before(plan_, rank_, index, Operand::q);
      const int sums =
          new_sums(index, Payload::query_gradients, before, b_.add_area(Payload::query_gradients));
      expect(add_moves_back(moves, index, Operand::q, now.query_sums, sums,
                            b_.add_area(Payload::query_gradients)));
      now.query_sums = sums;
    }
    post(index, moves);
    now.queries = queries_before_[index];
  }

  // What arrives is added once the rank's own tiles have been: it has their time to travel.
  void expect(const std::vector<BlockMove>& arrivals) {
    late_.insert(late_.end(), arrivals.begin(), arrivals.end());
  }
  void add_arrivals(int step) {
    for (const BlockMove& arrival : late_) b_.combine(step, arrival);
    late_.clear(), has_waited_ = false;
  }
  // Whether they may travel under the tiles of the step before, too: those are added up elsewhere,
  // nobody else is sent what they are added to, nothing else arrives where they lie, and none lies
  // in sums whose area is taken again. Once only: then that of their target is.
  bool can_wait(int index) {
    const auto is_own = [&](const Message& m) { return m.peer == rank_; };
    const auto has_arrived = [&](const BlockMove& arrival) {
      return b_.schedule().buffers[arrival.from.buffer].area == key_arrivals_;
    };
    const Exchange& group = step(index).before;
    const bool waits =
        !late_.empty() && !has_waited_ && index > 0 && replaced(index, Operand::kv) &&
        !replaced(index, Operand::q) && std::ranges::all_of(late_, has_arrived) &&
        std::ranges::all_of(group.sends, is_own) && std::ranges::all_of(group.receives, is_own);
    has_waited_ |= waits;
    return waits;
  }

  HomeRows& home_rows_;
  InTurn key_areas_, key_sum_areas_;
  int key_arrivals_ = kCaller;       // area
  std::vector<int> queries_before_;  // of each step: buffer
  std::vector<int> kept_keys_;       // of each step: buffer, where keys are kept
  std::vector<BlockMove> late_;
  bool has_waited_ = false;
};

}  // namespace

Schedule backward_schedule(const Plan& plan, int rank, HomeRows& home_rows, KeepKv keep) {
  return Backward(plan, rank, home_rows, keep).make();
}

}  // namespace ringside
