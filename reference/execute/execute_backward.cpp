// Backward is the transposed plan; see execute.h.
#include <algorithm>
#include <utility>

#include "reference/execute/carry.h"
#include "reference/execute/execute_items.h"
#include "reference/plan/interpret.h"

namespace ringside {
namespace {

using namespace execution;

struct QuerySide {  // everything that travels with the queries
  PerRank q, dout, lse, delta;
};

struct KeySide {
  PerRank k, v;
};

struct Differentiated {
  const QuerySide& queries;
  const KeySide& keys;
  const AttentionOptions& options;
};

Tensor delta_of(const TensorView& dout, const Tensor& out, const PackedLayout& layout) {
  Tensor delta(dout.rows, dout.heads, 1, 0.0);
  for (int s = 0; s < layout.batch(); ++s)
    for (int pos = 0; pos < layout.len(s); ++pos) {  // padding of dout is never read
      check_interrupt(int64_t{dout.heads} * dout.dim);
      for (int head = 0; head < dout.heads; ++head) {
        const int row = layout.row_begin(s) + pos;
        double sum = 0;
        for (int d = 0; d < dout.dim; ++d) sum += dout.at(row, head)[d] * out.at(row, head)[d];
        *delta.at(row, head) = sum;
      }
    }
  return delta;
}

// dk and dv are summed over the query heads of a group only afterwards: no two items share a row.
struct BackwardItem {
  int rank, head;
  Tensor dk, dv;  // [rows_kv, 1, dim] of one query head
};

struct Gradients {
  PerRank dq, dk, dv;  // of what is resident
};

void sum_over_groups(const Plan& plan, int step_index, const std::vector<BackwardItem>& items,
                     Gradients& g) {
  const auto add_head = [](Tensor& sum, int head, const Tensor& term) {
    for (int row = 0; row < term.rows; ++row)
      for (int d = 0; d < term.dim; ++d) sum.at(row, head)[d] += term.at(row, 0)[d];
  };
  for (const auto& [rank, head, dk, dv] : items) {
    check_interrupt(static_cast<int64_t>(dk.data.size()));
    const int kv_head = kv_head_of(plan, plan.steps_of_rank[rank][step_index], head);
    add_head(g.dk[rank], kv_head, dk);
    add_head(g.dv[rank], kv_head, dv);
  }
}

void run_backward_step(const Plan& plan, int step_index, const Differentiated& inputs,
                       Gradients& g) {
  const QuerySide& x = inputs.queries;
  const PerRank &k = inputs.keys.k, &v = inputs.keys.v;
  std::vector<BackwardItem> items;
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const Step& step = plan.steps_of_rank[rank][step_index];
    if (plan.tiles(step).empty()) continue;
    for (int head = 0; head < step.q.heads.size(); ++head) items.push_back({rank, head, {}, {}});
  }
  const auto run = [&](int i) {
    auto& [rank, head, dk, dv] = items[i];
    const Step& step = plan.steps_of_rank[rank][step_index];
    const int kv_head = kv_head_of(plan, step, head);
    dk = Tensor(k[rank].rows, 1, k[rank].dim, 0.0);
    dv = Tensor(v[rank].rows, 1, v[rank].dim, 0.0);
    const BackwardBuffers buffers{head_of(x.q[rank], head),
                                  head_of(k[rank], kv_head),
                                  head_of(v[rank], kv_head),
                                  head_of(x.dout[rank], head),
                                  head_of(x.lse[rank], head),
                                  head_of(x.delta[rank], head),
                                  head_of(g.dq[rank], head),
                                  head_of(dk, 0),
                                  head_of(dv, 0)};
    for (const Tile& tile : plan.tiles(step))
      tile_backward(
          {plan.problem, tile, {0, tile.q.len}, inputs.options, step.q.heads.begin + head},
          buffers);
  };
  run_items(static_cast<int>(items.size()), pairs_at_most(plan, step_index), run);
  sum_over_groups(plan, step_index, items, g);
}

std::vector<double> sink_gradients(const Plan& plan, const AttentionOptions& options,
                                   const QuerySide& home) {
  std::vector<double> dsink(options.sinks.size(), 0.0);
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    add_sink_gradients(plan, rank, options.sinks, home.lse[rank], home.delta[rank], dsink);
  return dsink;
}

PerRank zeros_like(const PerRank& x) {
  PerRank zeros;
  for (const Tensor& t : x) zeros.emplace_back(t.rows, t.heads, t.dim, 0.0);
  return zeros;
}

// Once more through the exchanges, keeping what was resident between each two.
class ForthAgain {
 public:
  ForthAgain(const Plan& plan, QuerySide home_queries, KeySide home_keys) : plan_(plan) {
    queries.push_back(std::move(home_queries));
    keys.push_back(std::move(home_keys));
  }

  void exchange(int step, Operand operand) {
    const auto moved = [&](const PerRank& x) { return carry(plan_, step, operand, x); };
    if (operand == Operand::q) {
      const QuerySide& x = queries.back();
      queries.push_back({moved(x.q), moved(x.dout), moved(x.lse), moved(x.delta)});
    } else {
      keys.push_back({moved(keys.back().k), moved(keys.back().v)});
    }
  }
  void compute(int) {}

  std::vector<QuerySide> queries;  // home first
  std::vector<KeySide> keys;

 private:
  const Plan& plan_;
};

class BackwardPass {
 public:
  BackwardPass(const Plan& plan, ForthAgain resident, const AttentionOptions& options)
      : plan_(plan),
        queries_(std::move(resident.queries)),
        keys_(std::move(resident.keys)),
        options_(options),
        g_{zeros_like(queries_.back().q), zeros_like(keys_.back().k), zeros_like(keys_.back().v)} {}

  void compute(int step) {
    run_backward_step(plan_, step, {queries_.back(), keys_.back(), options_}, g_);
  }

  void exchange_back(int step, Operand operand) {
    if (operand == Operand::q) {
      g_.dq = carry_back(plan_, step, operand, std::move(g_.dq));
      queries_.pop_back();
    } else {
      g_.dk = carry_back(plan_, step, operand, std::move(g_.dk));
      g_.dv = carry_back(plan_, step, operand, std::move(g_.dv));
      keys_.pop_back();
    }
  }

  const Gradients& gradients() const { return g_; }

 private:
  const Plan& plan_;
  std::vector<QuerySide> queries_;
  std::vector<KeySide> keys_;
  const AttentionOptions& options_;
  Gradients g_;
};

}  // namespace

AttentionGradients attention_backward(const Plan& plan, const AttentionInputs& inputs,
                                      const TensorView& dout, const AttentionOutput& saved) {
  const PackedLayout &layout_q = plan.problem.layout_q, &layout_k = plan.problem.layout_k;
  const auto q_shards = home_shards(plan, Operand::q), kv_shards = home_shards(plan, Operand::kv);
  const auto of_q = [&](const TensorView& x) { return shard(layout_q, q_shards, x); };
  const auto of_k = [&](const TensorView& x) { return shard(layout_k, kv_shards, x); };
  ForthAgain forth(
      plan,
      {of_q(inputs.q), of_q(dout), of_q(saved.lse), of_q(delta_of(dout, saved.out, layout_q))},
      {of_k(inputs.k), of_k(inputs.v)});
  auto dsink = sink_gradients(plan, inputs.options, forth.queries.front());
  interpret(plan, forth);
  BackwardPass back(plan, std::move(forth), inputs.options);
  interpret_back(plan, back);
  const Gradients& g = back.gradients();
  return {unshard(layout_q, q_shards, g.dq), unshard(layout_k, kv_shards, g.dk),
          unshard(layout_k, kv_shards, g.dv), std::move(dsink)};
}

}  // namespace ringside
