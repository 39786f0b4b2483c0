// The forward pass of a rank: keys come one step ahead, results go home by the way of the queries.
#include <utility>

#include "reference/schedule/lower.h"
#include "reference/schedule/passes.h"

namespace ringside {
namespace {

class Forward : Lowering {
 public:
  Forward(const Plan& plan, int rank, KeepKv keep)
      : Lowering(plan, rank, Pass::forward, keep), key_areas_(b_, Payload::keys) {}

  Schedule make() {
    Residents now = home();
    if (plan_.num_steps() > 0) now = exchange(0, now);
    for (int step = 0; step < plan_.num_steps(); ++step) {
      const Residents next = step + 1 < plan_.num_steps() ? exchange(step + 1, now) : now;
      compute(step, {now.queries, keys_to_read(step, now.keys), now.query_sums, -1});
      now = next;
    }
    for (; !journeys_.empty(); journeys_.pop_back()) bring_back(journeys_.back());
    return std::move(b_.schedule());
  }

 private:
  struct Journey {  // of queries, by the exchange before `step`
    int step, sums_before, sums;
  };

  Residents home() {
    Schedule& s = b_.schedule();
    s.home_queries = add_like(Payload::queries, plan_.home_q[rank_], kCaller);
    s.home_keys = add_like(Payload::keys, plan_.home_kv[rank_], kCaller);
    s.home_query_sums = new_results(0, plan_.home_q[rank_]);
    return {s.home_queries, s.home_keys, s.home_query_sums, -1};
  }

  int new_results(int step, const Buffer& like) {
    const int sums = add_like(Payload::results, like, b_.add_area(Payload::results));
    b_.clear(step, sums);
    return sums;
  }

  Residents exchange(int index, Residents now) {
    Moves moves;
    if (replaced(index, Operand::q)) {
      const Buffer& q = step(index).q;
      const int queries = add_like(Payload::queries, q, b_.add_area(Payload::queries));
      add_moves(moves, index, Operand::q, now.queries, queries);
      journeys_.push_back({index, now.query_sums, new_results(index, q)});
      now.queries = queries, now.query_sums = journeys_.back().sums;
    }
    if (replaced(index, Operand::kv)) {
      const int keys = add_like(Payload::keys, step(index).kv, key_areas_.next());
      add_moves(moves, index, Operand::kv, now.keys, keys);
      now.keys = keys;
    }
    post(index, moves);
    return now;
  }

  // Others write into what a rank has for a pass, not into what outlives it: hence a copy of what
  // is kept. Tiles read that, so that others may write where it was while they run.
  int keys_to_read(int index, int keys) {
    if (const int kept = add_kept_keys(index); kept != kCaller) {
      land({keys});
      b_.copy(index, {b_.whole(keys), b_.whole(kept)});
      copied_keys_ = keys, kept_keys_ = kept;
    }
    return keys == copied_keys_ ? kept_keys_ : keys;
  }

  void bring_back(const Journey& journey) {
    Moves moves;
    const auto back = add_moves_back(moves, journey.step, Operand::q, journey.sums,
                                     journey.sums_before, b_.add_area(Payload::results));
    post(journey.step, moves);
    for (const BlockMove& arrival : back) b_.combine(journey.step, arrival);
  }

  InTurn key_areas_;
  int copied_keys_ = -1, kept_keys_ = -1;  // buffers, of the last that are kept
  std::vector<Journey> journeys_;
};

}  // namespace

Schedule forward_schedule(const Plan& plan, int rank, KeepKv keep) {
  return Forward(plan, rank, keep).make();
}

}  // namespace ringside
