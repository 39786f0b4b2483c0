#include "reference/transport/transport.h"

#include <utility>

#include "reference/partition/partition.h"
#include "reference/plan/tiles.h"
#include "reference/support/errors.h"
#include "reference/support/memory.h"
#include "reference/support/names.h"
#include "reference/verify/validate.h"

namespace ringside {
namespace {

void check_a2a_size(const Transport& transport, int cp_size) {
  if (transport.name != "a2a+p2p") {
    require(transport.a2a_size == 0, "a2a_size=", transport.a2a_size, " with comm=\"",
            transport.name, "\"; only comm=\"a2a+p2p\" takes it. Leave it out");
    return;
  }
  require(transport.a2a_size != 0,
          "a2a_size is missing; comm=\"a2a+p2p\" needs the number of ranks ",
          "that trade rows for heads, a divisor of cp_size=", cp_size, ". Pass one");
  require(transport.a2a_size >= 1 && cp_size % transport.a2a_size == 0,
          "a2a_size=", transport.a2a_size, " does not divide cp_size=", cp_size,
          "; comm=\"a2a+p2p\" needs groups of equal size. Pass a divisor of cp_size");
}

void check_stages(const Transport& transport) {
  if (!transport.stages) return;
  require(transport.name == "fetch", "stages=", *transport.stages, " with comm=\"", transport.name,
          "\"; only comm=\"fetch\" takes it. Leave it out");
  require(*transport.stages >= 1, "stages=", *transport.stages,
          "; expected at least 1 exchange. Leave it out for ", kDefaultStages);
}

void check_ranks(const std::vector<int>& ranks, int cp_size) {
  int previous = -1;
  for (const int rank : ranks) {
    require(previous < rank && rank < cp_size, "rank ", rank, " after rank ", previous,
            "; expected rising ranks from 0 to ", cp_size - 1);
    previous = rank;
  }
}

std::vector<Buffer> add_homes(Plan& plan, const std::vector<Shard>& shards, int num_heads) {
  std::vector<Buffer> homes;
  for (const Shard& shard : shards) homes.push_back({add_shard(plan, shard), {0, num_heads}});
  return homes;
}

}  // namespace

std::span<const NamedTransport> transports() {
  static constexpr NamedTransport kTable[] = {
      {"p2p", [](Plan& plan, const Transport& t) { a2a_p2p(plan, 1, t.order); }, true,
       "K/V travel round a ring"},
      {"all_gather", [](Plan& plan, const Transport& t) { all_gather(plan, t.order); }, true,
       "every rank receives all K/V at once"},
      {"a2a", [](Plan& plan, const Transport& t) { a2a_p2p(plan, plan.cp_size(), t.order); }, true,
       "ranks trade rows for heads"},
      {"a2a+p2p", [](Plan& plan, const Transport& t) { a2a_p2p(plan, t.a2a_size, t.order); }, true,
       "a2a inside groups of a2a_size, a ring between them"},
      {"fetch",
       [](Plan& plan, const Transport& t) {
         fetch(plan, t.stages.value_or(kDefaultStages), t.order);
       },
       false, "own tiles first, then the K/V rows that a rank's tiles see, from their owners"},
  };
  return kTable;
}

void check_cp_size(int cp_size) {
  constexpr double kBytesOfRank =
      2 * (sizeof(Shard) + sizeof(Buffer)) + sizeof(std::vector<Step>) + sizeof(Step);
  require(cp_size >= 1, "cp_size=", cp_size, "; expected at least 1 rank");
  require_memory(kBytesOfRank * cp_size, concat("cp_size=", cp_size, ": one step of all ranks"),
                 "Pass fewer ranks");
}

Placement place(const Problem& problem, const std::string& partition, int cp_size) {
  check_cp_size(cp_size);
  const NamedPartition& named = find_partition(partition);
  OwnedRows owned = own_rows(named, problem, cp_size);
  return {std::move(owned.q), std::move(owned.k), named.name};
}

Plan build_plan(const Problem& problem, const Placement& placement, const Transport& transport) {
  return build_plan_of_ranks(problem, placement, transport, {});
}

Plan plan_of_homes(const Problem& problem, const Placement& placement, const Transport& transport) {
  check_problem(problem);
  const int cp_size = static_cast<int>(placement.q.size());
  require(cp_size >= 1 && placement.k.size() == placement.q.size(), "the placement has ", cp_size,
          " query shards and ", placement.k.size(),
          " key shards; expected one of each for every rank");
  check_ownership(Operand::q, problem.layout_q, placement.q);
  check_ownership(Operand::kv, problem.layout_k, placement.k);
  find_by_name("comm", transports(), transport.name);
  check_a2a_size(transport, cp_size);
  check_stages(transport);

  Plan plan;
  plan.problem = problem;
  plan.partition = placement.name;
  plan.comm = transport.name;
  plan.shards.emplace_back();
  plan.tile_lists.emplace_back();
  plan.home_q = add_homes(plan, placement.q, problem.num_heads);
  plan.home_kv = add_homes(plan, placement.k, problem.num_kv_heads);
  plan.steps_of_rank.resize(cp_size);
  return plan;
}

Plan build_plan_of_ranks(const Problem& problem, const Placement& placement,
                         const Transport& transport, std::vector<int> ranks) {
  Plan plan = plan_of_homes(problem, placement, transport);
  check_ranks(ranks, plan.cp_size());
  plan.held = std::move(ranks);
  find_by_name("comm", transports(), transport.name).fill_steps(plan, transport);
  return plan;
}

int add_shard(Plan& plan, Shard shard) {
  if (shard.empty()) return kEmpty;
  plan.shards.push_back(std::move(shard));
  return static_cast<int>(plan.shards.size()) - 1;
}

int add_tiles(Plan& plan, int q_shard, int kv_shard) {
  return add_tiles(plan, q_shard, plan.shards[kv_shard]);
}

int add_tiles(Plan& plan, int q_shard, const Shard& kv) {
  auto tiles = make_tiles(plan.problem, plan.shards[q_shard], kv);
  if (tiles.empty()) return kEmpty;
  plan.tile_lists.push_back(std::move(tiles));
  return static_cast<int>(plan.tile_lists.size()) - 1;
}

void add_message(std::vector<Message>& messages, const Message& message) {
  if (message.rows > 0 && message.heads.size() > 0) messages.push_back(message);
}

}  // namespace ringside
