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

// Groups without rows neither see nor are seen: there may be millions of them.
class Ring {
 public:
  Ring(const Plan& homes, int a2a_size)
      : plan_(homes), ring_(plan_, a2a_size, StackOrder::fewest_segments) {
    for (int group = 0; group < ring_.groups(); ++group) {
      if (ring_.q_shard(group) != kEmpty) seeing_.push_back(group);
      if (ring_.kv_shard(group) != kEmpty) owners_.push_back(group);
    }
    for (const int owner : owners_) {
      const int last = last_hop(owner);
      hops_ += last;
      num_steps_ = std::max(num_steps_, last + 1);
    }
  }

  double num_steps() const { return num_steps_; }
  double hops() const { return static_cast<double>(hops_); }  // of all groups' keys

 private:
  // As RingOfGroups::find_last_hops() has it: the groups are asked from the last one back.
  int last_hop(int owner) const {
    const auto first = std::ranges::lower_bound(seeing_, owner) - seeing_.begin();
    const auto count = std::ssize(seeing_);
    for (auto i = count - 1; i >= 0; --i) {
      const int group = seeing_[(first + i) % count];
      check_interrupt(16);
      if (group != owner && has_tiles(plan_.problem, plan_.shards[ring_.q_shard(group)],
                                      plan_.shards[ring_.kv_shard(owner)]))
        return (group - owner + ring_.groups()) % ring_.groups();
    }
    return 0;
  }

  Plan plan_;
  RingOfGroups ring_;
  std::vector<int> seeing_, owners_;  // rising
  int num_steps_ = 1;
  int64_t hops_ = 0;
};

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
  const Ring ring(plan_of_homes(problem, placement, transport), a2a_size);
  return once + bytes.step * ranks * ring.num_steps() + bytes.hop * ring.hops() * members;
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
