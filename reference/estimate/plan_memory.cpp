#include "reference/estimate/plan_memory.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/plan/tile_counts.h"
#include "reference/plan/tiles.h"
#include "reference/support/errors.h"
#include "reference/support/interrupt.h"
#include "reference/support/memory.h"
#include "reference/transport/ring_of_groups.h"

namespace ringside {
namespace {

constexpr int kNumbersOfStep = 17;  // of a cost: PlanCost, and PassCost of both passes

struct Bytes {    // of the least that is taken
  double step;    // of a rank
  double pair;    // of groups
  double hop;     // of keys to the next group, at both ends
  double wanted;  // what a rank fetches from another, and when
};
constexpr Bytes kOfPlan{sizeof(Step), sizeof(int), 2 * sizeof(Message),
                        sizeof(std::vector<Interval>) + sizeof(int)};
constexpr Bytes kOfCost{kNumbersOfStep * sizeof(int64_t), sizeof(TileCounts), 0, 0};

double with_rows(const std::vector<Shard>& shards) {
  return static_cast<double>(
      std::ranges::count_if(shards, [](const Shard& s) { return !s.empty(); }));
}

double bytes_of_ring(const Bytes& bytes, const Problem& problem, const Placement& placement,
                     const Transport& transport, double enough) {
  const int cp_size = static_cast<int>(placement.q.size());
  const int a2a_size = transport.name == "a2a"       ? cp_size
                       : transport.name == "a2a+p2p" ? transport.a2a_size
                                                     : 1;
  const double ranks = cp_size, groups = cp_size / a2a_size;
  const double members = std::min(a2a_size, problem.num_heads);  // that have heads
  const double owners = with_rows(placement.q) + with_rows(placement.k);
  const double once = bytes.pair * groups * groups +
                      (a2a_size > 1 ? bytes.hop * owners * members : 0);  // rows for heads
  const double most = once + bytes.step * ranks * groups + bytes.hop * groups * groups * members;
  if (most <= enough || once > enough) return most;
  Plan homes = plan_of_homes(problem, placement, transport);
  RingOfGroups ring(homes, a2a_size, StackOrder::fewest_segments);
  ring.find_last_hops([&](int group, int owner) {
    check_interrupt(16);
    return has_tiles(problem, homes.shards[ring.q_shard(group)],
                     homes.shards[ring.kv_shard(owner)]);
  });
  double hops = 0;  // of all groups' keys
  for (int owner = 0; owner < ring.groups(); ++owner) hops += ring.last_hop(owner);
  return once + bytes.step * ranks * ring.num_steps() + bytes.hop * hops * members;
}

double bytes_of(const Bytes& bytes, const Problem& problem, const Placement& placement,
                const Transport& transport, double enough) {
  const auto ranks = static_cast<double>(placement.q.size());
  if (transport.name == "all_gather")
    return bytes.step * ranks + bytes.hop * with_rows(placement.k) * ranks;
  if (transport.name == "fetch") return bytes.step * ranks + bytes.wanted * ranks * ranks;
  return bytes_of_ring(bytes, problem, placement, transport, enough);
}

constexpr double kTaken =
    3;  // at most, over the least: what grows is copied, small pieces are padded

std::string nearest(const Bytes& bytes, const Problem& problem, const Placement& placement,
                    const Transport& transport, double needed, double all) {
  const auto ranks = static_cast<double>(placement.q.size());
  const int size = std::max(transport.a2a_size, 1);  // of groups
  const auto fewer = static_cast<int>(ranks * std::sqrt(all / (kTaken * needed))) / size * size;
  const bool gathers = bytes_of(bytes, problem, placement, {"all_gather"}, all) <= all;
  return concat("Pass fewer ranks, such as ", std::max(fewer, size),
                gathers ? ", or comm=\"all_gather\", which has one step" : "");
}

void check_memory(const Bytes& bytes, const char* what, const Problem& problem,
                  const Placement& placement, const Transport& transport) {
  const double all = bytes_of_memory();
  const double needed = bytes_of(bytes, problem, placement, transport, all);
  if (needed > all)
    require_memory(needed, concat("cp_size=", placement.q.size(), ": ", what),
                   nearest(bytes, problem, placement, transport, needed, all));
}

// Else they are refused where the plan is built, in words of their own.
bool fit_together(const Problem& problem, const Placement& placement, const Transport& transport) {
  const int ranks = static_cast<int>(placement.q.size());
  return ranks >= 1 && placement.k.size() == placement.q.size() &&
         problem.layout_q.batch() == problem.layout_k.batch() &&
         (transport.name != "a2a+p2p" ||
          (transport.a2a_size >= 1 && ranks % transport.a2a_size == 0));
}

}  // namespace

void check_memory_of_plan(const Problem& problem, const Placement& placement,
                          const Transport& transport) {
  if (fit_together(problem, placement, transport))
    check_memory(kOfPlan, "the steps of all ranks", problem, placement, transport);
}

void check_memory_of_cost(const Problem& problem, const Placement& placement,
                          const Transport& transport) {
  if (fit_together(problem, placement, transport))
    check_memory(kOfCost, "counts of all ranks and steps", problem, placement, transport);
}

}  // namespace ringside
