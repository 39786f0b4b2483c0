#include "reference/verify/verify.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "reference/plan/residency.h"
#include "reference/plan/tiles.h"
#include "reference/support/errors.h"
#include "reference/support/interrupt.h"
#include "reference/verify/validate.h"

namespace ringside {
namespace {

bool within(Range inner, Range outer) {
  return inner.size() == 0 || (outer.begin <= inner.begin && inner.end <= outer.end);
}

struct Home {  // what a rank owns
  At at;
};
std::ostream& operator<<(std::ostream& out, const Home& home) { return out << home.at << " home"; }

template <typename Where>
void verify_buffer(const Plan& plan, const Buffer& buffer, int num_heads, const Where& where) {
  plan_require(0 <= buffer.shard && buffer.shard < static_cast<int>(plan.shards.size()), where,
               " names shard ", buffer.shard, " of ", plan.shards.size());
  plan_require(0 <= buffer.heads.begin && buffer.heads.begin <= buffer.heads.end &&
                   buffer.heads.end <= num_heads,
               where, " holds heads [", buffer.heads.begin, ", ", buffer.heads.end, ") of ",
               num_heads);
}

template <typename Check>
void as_plan_error(Check check) {
  try {
    check();
  } catch (const InvalidArgument& error) {
    PlanError same(error.what());
    same.at = error.at;
    throw same;
  }
}

using RowOfPack = At (*)(const Plan& plan, int seq, int position);

At query_at(const Plan& plan, int seq, int position) {
  return {.row = plan.problem.layout_q.row_begin(seq) + position};
}
At key_at(const Plan& plan, int seq, int position) {
  return {.key = plan.problem.layout_k.row_begin(seq) + position};
}

// The tile's segment must be what the resident buffer really holds in those rows.
void verify_rows(const Plan& plan, const Shard& resident, const Segment& s, RowOfPack at) {
  const char* what = at == query_at ? "query" : "key";
  const int rows = num_rows(resident);
  plan_require(s.len >= 1 && s.stride >= 1, what, " segment has len=", s.len,
               " and stride=", s.stride, "; expected at least 1");
  plan_require(s.row >= 0 && s.row < rows && s.len <= rows - s.row, what, " rows [", s.row, ", ",
               int64_t{s.row} + s.len, ") lie outside the resident buffer of ", rows, " rows");
  auto r = std::upper_bound(resident.begin(), resident.end(), s.row,
                            [](int row, const Segment& x) { return row < x.row; }) -
           1;
  for (int i = 0; i < s.len; ++i) {
    while (s.row + i >= r->row_end()) ++r;
    const int held = r->position(s.row + i - r->row);
    const int64_t claimed = s.pos + int64_t{i} * s.stride;  // unproved: may be anything
    if (r->seq != s.seq || held != claimed)
      fail<PlanError>(at(plan, r->seq, held), what, " row ", s.row + i, " holds position ", held,
                      " of sequence ", r->seq, ", not position ", claimed, " of sequence ", s.seq);
  }
}

void verify_tile(const Plan& plan, const Step& step, const Tile& tile) {
  check_interrupt(2 * int64_t{tile.q.len} + tile.k.len);
  verify_rows(plan, plan.shard(step.q), tile.q, query_at);
  verify_rows(plan, plan.shard(step.kv), tile.k, key_at);
  plan_require(tile.q.seq == tile.k.seq, "queries of sequence ", tile.q.seq,
               " meet keys of sequence ", tile.k.seq);
  plan_require(visible_pairs(plan.problem, tile) > 0, "no query sees any key");
}

}  // namespace

void verify_indices(const Plan& plan) {
  const Problem& problem = plan.problem;
  as_plan_error([&] { check_problem(problem); });
  plan_require(plan.held.empty(), "the plan has the tiles of ", plan.held.size(), " of ",
               plan.cp_size(), " ranks; only a whole plan can be proved");
  plan_require(
      plan.home_q.size() == plan.home_kv.size() && plan.steps_of_rank.size() == plan.home_q.size(),
      "the plan has ", plan.home_q.size(), " query homes, ", plan.home_kv.size(),
      " key homes and steps for ", plan.steps_of_rank.size(), " ranks");
  plan_require(plan.cp_size() >= 1, "the plan has no ranks");
  plan_require(!plan.shards.empty() && plan.shards[0].empty() && !plan.tile_lists.empty() &&
                   plan.tile_lists[0].empty(),
               "entry 0 of the shards and of the tile lists must be there and empty");
  std::set<int> q_shards, kv_shards;
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const Buffer &q = plan.home_q[rank], &kv = plan.home_kv[rank];
    verify_buffer(plan, q, problem.num_heads, Home{{.rank = rank}});
    verify_buffer(plan, kv, problem.num_kv_heads, Home{{.rank = rank}});
    plan_require(q.heads.size() == problem.num_heads && kv.heads.size() == problem.num_kv_heads,
                 At{.rank = rank}, " must own all heads of its rows");
    const auto& steps = plan.steps_of_rank[rank];
    plan_require(static_cast<int>(steps.size()) == plan.num_steps(), At{.rank = rank}, " has ",
                 steps.size(), " steps, rank 0 has ", plan.num_steps());
    for (int i = 0; i < plan.num_steps(); ++i) {
      check_interrupt(64);
      const At at{rank, i};
      verify_buffer(plan, steps[i].q, problem.num_heads, at);
      verify_buffer(plan, steps[i].kv, problem.num_kv_heads, at);
      plan_require(0 <= steps[i].tiles && steps[i].tiles < static_cast<int>(plan.tile_lists.size()),
                   at, " names tile list ", steps[i].tiles, " of ", plan.tile_lists.size());
      q_shards.insert(steps[i].q.shard);
      kv_shards.insert(steps[i].kv.shard);
    }
  }
  as_plan_error([&] {
    for (const int i : q_shards) check_segments("query", problem.layout_q, plan.shards[i]);
    for (const int i : kv_shards) check_segments("key", problem.layout_k, plan.shards[i]);
    check_ownership(Operand::q, problem.layout_q, home_shards(plan, Operand::q));
    check_ownership(Operand::kv, problem.layout_k, home_shards(plan, Operand::kv));
  });
}

void verify_kinds(const Plan& plan) {
  for (int step = 0; step < plan.num_steps(); ++step) {
    ExchangeKind kind = ExchangeKind::none;
    for (int rank = 0; rank < plan.cp_size(); ++rank) {
      const Exchange& exchange = plan.steps_of_rank[rank][step].before;
      check_interrupt(static_cast<int64_t>(exchange.sends.size() + exchange.receives.size()) + 1);
      plan_require((exchange.kind == ExchangeKind::none) == exchange.empty(), At{rank, step},
                   " names its exchange ", name(exchange.kind), " and has ", exchange.sends.size(),
                   " sends and ", exchange.receives.size(), " receives");
      if (kind == ExchangeKind::none) kind = exchange.kind;
      plan_require(exchange.empty() || exchange.kind == kind, At{rank, step},
                   " names its exchange ", name(exchange.kind), ", another rank ", name(kind));
      if (exchange.kind != ExchangeKind::ring_shift) continue;
      for (const auto* messages : {&exchange.sends, &exchange.receives})
        for (const Message& m : *messages)
          plan_require(m.peer == messages->front().peer, At{rank, step},
                       " is a ring_shift with more than one neighbour on a side: ", m.peer, " and ",
                       messages->front().peer);
    }
  }
}

void verify_pools(const Plan& plan) {
  std::vector<bool> used(plan.tile_lists.size());
  used[0] = true;  // the empty one
  for (const auto& steps : plan.steps_of_rank)
    for (const Step& step : steps) used[step.tiles] = true;
  for (size_t i = 0; i < used.size(); ++i) plan_require(used[i], "no step computes tile list ", i);
}

int64_t verify_tiles(const Plan& plan) {
  int64_t count = 0;
  std::set<std::tuple<int, int, int>> proven;  // ranks share tile lists and buffers
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    for (int i = 0; i < plan.num_steps(); ++i) {
      const Step& step = plan.steps_of_rank[rank][i];
      const auto& tiles = plan.tiles(step);
      count += static_cast<int64_t>(tiles.size());
      plan_require(tiles.empty() ||
                       within(kv_heads_of(step.q.heads, plan.problem.group_size()), step.kv.heads),
                   At{rank, i}, " computes heads [", step.q.heads.begin, ", ", step.q.heads.end,
                   ") but holds only kv heads [", step.kv.heads.begin, ", ", step.kv.heads.end,
                   ")");
      if (!proven.insert({step.tiles, step.q.shard, step.kv.shard}).second) continue;
      for (size_t t = 0; t < tiles.size(); ++t) try {
          verify_tile(plan, step, tiles[t]);
        } catch (const PlanError& error) {
          const At at{rank, i, static_cast<int>(t), error.at.row, error.at.key};
          fail<PlanError>(at, ": ", error.what());
        }
    }
  return count;
}

PlanProof verify(const Plan& plan) {
  verify_indices(plan);
  PlanProof proof;
  proof.rows = int64_t{plan.problem.layout_q.num_rows()} + plan.problem.layout_k.num_rows();
  proof.messages = verify_exchanges(plan);
  verify_kinds(plan);
  proof.tiles = verify_tiles(plan);
  proof.pairs = verify_coverage(plan);
  verify_pools(plan);
  return proof;
}

std::vector<int> global_rows(const PackedLayout& layout, const Shard& shard) {
  std::vector<int> rows;
  rows.reserve(num_rows(shard));
  for (const Segment& s : shard) {
    check_interrupt(s.len);
    for (int i = 0; i < s.len; ++i) rows.push_back(layout.row_begin(s.seq) + s.position(i));
  }
  return rows;
}

}  // namespace ringside
