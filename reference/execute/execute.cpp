#include "reference/execute/execute.h"

#include <algorithm>
#include <utility>

#include "reference/attention/partial.h"
#include "reference/execute/carry.h"
#include "reference/execute/execute_items.h"
#include "reference/plan/interpret.h"

namespace ringside {
namespace {

using namespace execution;

constexpr int kRowsOfItem = 256;  // query rows that one thread takes at a time

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

// Results of the queries that one exchange brought; they return the way the queries came.
struct Visit {
  int step = -1;  // whose exchange it was; -1: home
  std::vector<Partial> results;
};

class ForwardPass {
 public:
  ForwardPass(const Plan& plan, const AttentionInputs& inputs, Resident home)
      : plan_(plan),
        options_(inputs.options),
        x_(std::move(home)),
        dim_v_(inputs.v.dim),
        max_logit_(plan.problem.num_heads, kNegInf) {
    visits_.push_back({-1, empty_partials(plan, 0, dim_v_)});
  }

  void exchange(int step, Operand operand) {
    if (operand == Operand::q) {
      x_.q = carry(plan_, step, operand, std::move(x_.q));
      visits_.push_back({step, empty_partials(plan_, step + 1, dim_v_)});
    } else {
      x_.k = carry(plan_, step, operand, std::move(x_.k));
      x_.v = carry(plan_, step, operand, std::move(x_.v));
    }
  }

  void compute(int step) {
    const auto of_step = run_forward_step(plan_, step, options_, x_, visits_.back().results);
    for (size_t head = 0; head < max_logit_.size(); ++head)
      max_logit_[head] = larger(max_logit_[head], of_step[head]);
  }

  std::vector<Partial> bring_home() {
    for (; visits_.size() > 1; visits_.pop_back())
      carry_back_results(plan_, visits_.back().step, visits_.back().results,
                         visits_[visits_.size() - 2].results);
    merge_sinks(plan_, options_, visits_[0].results);
    return std::move(visits_[0].results);
  }
  std::vector<double> max_logit() { return std::move(max_logit_); }

 private:
  const Plan& plan_;
  const AttentionOptions& options_;
  Resident x_;
  int dim_v_;
  std::vector<Visit> visits_;
  std::vector<double> max_logit_;
};

}  // namespace

AttentionOutput attention(const Plan& plan, const AttentionInputs& inputs) {
  const PackedLayout &layout_q = plan.problem.layout_q, &layout_k = plan.problem.layout_k;
  const auto q_shards = home_shards(plan, Operand::q), kv_shards = home_shards(plan, Operand::kv);
  ForwardPass pass(plan, inputs,
                   {shard(layout_q, q_shards, inputs.q), shard(layout_k, kv_shards, inputs.k),
                    shard(layout_k, kv_shards, inputs.v)});
  interpret(plan, pass);
  PerRank out, lse;
  for (Partial& home : pass.bring_home()) {
    out.push_back(std::move(home.out));
    lse.push_back(std::move(home.lse));
  }
  return {unshard(layout_q, q_shards, out), unshard(layout_q, q_shards, lse), pass.max_logit()};
}

}  // namespace ringside
