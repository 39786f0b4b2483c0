#include "reference/execute.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reference/carry.h"
#include "reference/cpu_kernels.h"
#include "reference/interrupt.h"
#include "reference/parallel.h"
#include "reference/partial.h"
#include "reference/tile_attention.h"

namespace ringside {
namespace {

constexpr int kRowsOfItem = 256;  // query rows that one thread takes at a time
constexpr int64_t kPairsWorthThreads = int64_t{1} << 14;

In head_of(const Tensor& x, int head) {
  return {x.at(0, head), static_cast<std::ptrdiff_t>(x.heads) * x.dim, x.dim};
}
Out head_of(Tensor& x, int head) {
  return {x.at(0, head), static_cast<std::ptrdiff_t>(x.heads) * x.dim, x.dim};
}

int kv_head_of(const Plan& plan, const Step& step, int head) {  // both counted in the buffer
  return (step.q.heads.begin + head) / plan.problem.group_size() - step.kv.heads.begin;
}

// Runs items on all cores, or right here when starting threads would take longer than the work.
template <typename Run>
void run_items(int items, int64_t pairs, Run run) {
  cpu_level();  // a bad RINGSIDE_CPU_LEVEL is refused here, not in a thread
  if (pairs >= kPairsWorthThreads) {
    parallel_for(items, run);
  } else {
    for (int i = 0; i < items; ++i) run(i);
  }
}

int64_t pairs_at_most(const Plan& plan, int step_index) {
  int64_t pairs = 0;
  for (const auto& steps : plan.steps_of_rank) {
    check_interrupt(static_cast<int64_t>(plan.tiles(steps[step_index]).size()) + 1);
    for (const Tile& tile : plan.tiles(steps[step_index]))
      pairs += int64_t{tile.q.len} * tile.k.len * steps[step_index].q.heads.size();
  }
  return pairs;
}

// --- forward ---

struct ForwardItem {  // some rows of one rank's resident queries, one head
  int rank, head;
  Interval rows;
};

std::vector<ForwardItem> forward_items(const Plan& plan, int step_index) {
  std::vector<ForwardItem> items;
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const Step& step = plan.steps_of_rank[rank][step_index];
    if (plan.tiles(step).empty()) continue;
    const int rows = plan.rows(step.q);
    for (int begin = 0; begin < rows; begin += kRowsOfItem)
      for (int head = 0; head < step.q.heads.size(); ++head)
        items.push_back({rank, head, {begin, std::min(begin + kRowsOfItem, rows)}});
  }
  return items;
}

struct Resident {
  PerRank q, k, v;
};

// Returns the largest score of each head.
std::vector<double> run_forward_step(const Plan& plan, int step_index,
                                     const AttentionOptions& options, const Resident& x,
                                     std::vector<Partial>& partials) {
  const auto items = forward_items(plan, step_index);
  std::vector<double> max_of_item(items.size(), kNegInf);
  const auto run = [&](int i) {
    const auto [rank, head, rows] = items[i];
    const Step& step = plan.steps_of_rank[rank][step_index];
    const int kv_head = kv_head_of(plan, step, head);
    check_interrupt(static_cast<int64_t>(plan.tiles(step).size()));
    const ForwardBuffers buffers{
        head_of(x.q[rank], head),          head_of(x.k[rank], kv_head),
        head_of(x.v[rank], kv_head),       head_of(partials[rank].out, head),
        head_of(partials[rank].lse, head), &max_of_item[i]};
    for (const Tile& tile : plan.tiles(step)) {
      const Interval q_rows{std::max(rows.begin - tile.q.row, 0),
                            std::min(rows.end - tile.q.row, tile.q.len)};
      if (q_rows.begin < q_rows.end)
        tile_forward({plan.problem, tile, q_rows, options, step.q.heads.begin + head}, buffers);
    }
  };
  run_items(static_cast<int>(items.size()), pairs_at_most(plan, step_index), run);
  std::vector<double> max_logit(plan.problem.num_heads, kNegInf);
  for (size_t i = 0; i < items.size(); ++i) {
    const Step& step = plan.steps_of_rank[items[i].rank][step_index];
    double& of_head = max_logit[step.q.heads.begin + items[i].head];
    of_head = larger(of_head, max_of_item[i]);
  }
  return max_logit;
}

std::vector<Partial> empty_partials(const Plan& plan, int step, int head_dim_v) {
  std::vector<Partial> partials;
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const Buffer& q = resident_before(plan, rank, step, Operand::q);
    partials.emplace_back(plan.rows(q), q.heads.size(), head_dim_v);
  }
  return partials;
}

// visit(row, visible keys) for every valid query row that a rank owns.
template <typename Visit>
void for_each_home_row(const Plan& plan, int rank, Visit visit) {
  const auto& [layout_q, layout_k, mask, num_heads, num_kv_heads] = plan.problem;
  for (const Segment& s : plan.shard(plan.home_q[rank]))
    for (int i = 0; i < s.rows_below(layout_q.len(s.seq)); ++i)
      visit(s.row + i, mask.visible(s.position(i), layout_q.len(s.seq), layout_k.len(s.seq)));
}

// A sink is a partial result without a value: merged once, when everything else has been.
void merge_sinks(const Plan& plan, const AttentionOptions& options, std::vector<Partial>& home) {
  if (options.sinks.empty()) return;
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const std::vector<double> no_value(home[rank].out.dim, 0.0);
    for_each_home_row(plan, rank, [&](int row, Interval) {
      for (int head = 0; head < plan.problem.num_heads; ++head)
        home[rank].merge(row, head, no_value.data(), options.sinks[head]);
    });
  }
}

bool moves(const Plan& plan, int step, Operand operand) {
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    if (plan.steps_of_rank[rank][step].before.moves(operand) ||
        !(resident_before(plan, rank, step, operand) ==
          resident_before(plan, rank, step + 1, operand)))
      return true;
  return false;
}

// --- backward ---

struct QuerySide {  // everything that travels with the queries
  PerRank q, dout, lse, delta;
};

struct KeySide {
  PerRank k, v;
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

struct BackwardInputs {
  const QuerySide& queries;
  const KeySide& keys;
  const AttentionOptions& options;
};

void run_backward_step(const Plan& plan, int step_index, const BackwardInputs& inputs,
                       Gradients& g) {
  const auto& [x, keys, options] = inputs;
  const PerRank &k = keys.k, &v = keys.v;
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
      tile_backward({plan.problem, tile, {0, tile.q.len}, options, step.q.heads.begin + head},
                    buffers);
  };
  run_items(static_cast<int>(items.size()), pairs_at_most(plan, step_index), run);

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

// d/dsink: the sink's own weight exp(sink - lse) takes from every value, and has none.
std::vector<double> sink_gradients(const Plan& plan, const AttentionOptions& options,
                                   const QuerySide& home) {
  std::vector<double> dsink(options.sinks.size(), 0.0);
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    for_each_home_row(plan, rank, [&](int row, Interval visible) {
      if (visible.size() == 0) return;  // out is 0, whatever dout is
      for (size_t head = 0; head < dsink.size(); ++head) {
        const int h = static_cast<int>(head);
        const double weight = std::exp(options.sinks[head] - *home.lse[rank].at(row, h));
        dsink[head] -= std::max(weight, kLeastWeight) * *home.delta[rank].at(row, h);  // NaN stays
      }
    });
  return dsink;
}

PerRank zeros_like(const PerRank& x) {
  PerRank zeros;
  for (const Tensor& t : x) zeros.emplace_back(t.rows, t.heads, t.dim, 0.0);
  return zeros;
}

}  // namespace

AttentionOutput attention(const Plan& plan, const AttentionInputs& inputs) {
  const PackedLayout &layout_q = plan.problem.layout_q, &layout_k = plan.problem.layout_k;
  const auto q_shards = home_shards(plan, Operand::q), kv_shards = home_shards(plan, Operand::kv);
  Resident x{shard(layout_q, q_shards, inputs.q), shard(layout_k, kv_shards, inputs.k),
             shard(layout_k, kv_shards, inputs.v)};
  const int dim_v = inputs.v.dim;
  std::vector<std::pair<int, std::vector<Partial>>> results;  // by the step that moved q there
  results.emplace_back(-1, empty_partials(plan, 0, dim_v));
  std::vector<double> max_logit(plan.problem.num_heads, kNegInf);
  for (int step = 0; step < plan.num_steps(); ++step) {
    if (moves(plan, step, Operand::q)) {
      x.q = carry(plan, step, Operand::q, std::move(x.q));
      results.emplace_back(step, empty_partials(plan, step + 1, dim_v));
    }
    x.k = carry(plan, step, Operand::kv, std::move(x.k));
    x.v = carry(plan, step, Operand::kv, std::move(x.v));
    const auto max_of_step = run_forward_step(plan, step, inputs.options, x, results.back().second);
    for (size_t head = 0; head < max_logit.size(); ++head)
      max_logit[head] = larger(max_logit[head], max_of_step[head]);
  }
  for (; results.size() > 1; results.pop_back())
    carry_back_results(plan, results.back().first, results.back().second,
                       results[results.size() - 2].second);
  merge_sinks(plan, inputs.options, results[0].second);
  PerRank out, lse;
  for (Partial& home : results[0].second) {
    out.push_back(std::move(home.out));
    lse.push_back(std::move(home.lse));
  }
  return {unshard(layout_q, q_shards, out), unshard(layout_q, q_shards, lse), std::move(max_logit)};
}

AttentionGradients attention_backward(const Plan& plan, const AttentionInputs& inputs,
                                      const TensorView& dout, const AttentionOutput& saved) {
  const PackedLayout &layout_q = plan.problem.layout_q, &layout_k = plan.problem.layout_k;
  const auto q_shards = home_shards(plan, Operand::q), kv_shards = home_shards(plan, Operand::kv);

  // Forward once more through the exchanges, keeping what was resident in each step.
  std::vector<QuerySide> queries{{shard(layout_q, q_shards, inputs.q),
                                  shard(layout_q, q_shards, dout),
                                  shard(layout_q, q_shards, saved.lse),
                                  shard(layout_q, q_shards, delta_of(dout, saved.out, layout_q))}};
  std::vector<KeySide> keys{
      {shard(layout_k, kv_shards, inputs.k), shard(layout_k, kv_shards, inputs.v)}};
  for (int step = 0; step < plan.num_steps(); ++step) {
    if (moves(plan, step, Operand::q)) {
      const QuerySide& x = queries.back();
      queries.push_back({carry(plan, step, Operand::q, x.q), carry(plan, step, Operand::q, x.dout),
                         carry(plan, step, Operand::q, x.lse),
                         carry(plan, step, Operand::q, x.delta)});
    }
    keys.push_back({carry(plan, step, Operand::kv, keys.back().k),
                    carry(plan, step, Operand::kv, keys.back().v)});
  }

  auto dsink = sink_gradients(plan, inputs.options, queries.front());
  Gradients g{zeros_like(queries.back().q), zeros_like(keys.back().k), zeros_like(keys.back().v)};
  for (int step = plan.num_steps() - 1; step >= 0; --step) {
    run_backward_step(plan, step, {queries.back(), keys[step + 1], inputs.options}, g);
    g.dk = carry_back(plan, step, Operand::kv, std::move(g.dk));
    g.dv = carry_back(plan, step, Operand::kv, std::move(g.dv));
    if (moves(plan, step, Operand::q)) {
      g.dq = carry_back(plan, step, Operand::q, std::move(g.dq));
      queries.pop_back();
    }
  }
  return {unshard(layout_q, q_shards, g.dq), unshard(layout_k, kv_shards, g.dk),
          unshard(layout_k, kv_shards, g.dv), std::move(dsink)};
}

}  // namespace ringside
