// Which rows are resident when. A transport is one function that fills a plan's steps.
//
//   p2p         K/V travel round a ring, one neighbour a step
//   all_gather  every rank receives all K/V at once
//   a2a         ranks trade rows for heads, compute all rows of their own heads, and trade back
//   (Ulysses) a2a+p2p     a2a inside groups of a2a_size neighbouring ranks, a ring between the
//   groups (USP)
//   fetch       own tiles first, then the rows of K/V that a rank's tiles see, from their owners
//
// The first and third are the ends of the fourth: a2a_size = 1 and a2a_size = cp_size.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/plan/plan.h"

namespace ringside {

// Who owns which rows before the first step; the name is for people.
struct Placement {
  std::vector<Shard> q, k;  // [cp_size]
  std::string name = "custom";
};

inline constexpr int kDefaultStages = 2;  // of fetch: the second travels under the first's tiles

// How rows of several ranks lie in one buffer.
enum class StackOrder : int8_t {
  fewest_segments,
  of_ranks,
  in_halves,  // the first half of each, then the second ones: no rank's rows land together
};

struct Transport {
  std::string name = "p2p";
  int a2a_size = 0;             // for a2a+p2p: how many neighbouring ranks trade rows for heads
  std::optional<int> stages{};  // for fetch: in how many exchanges at most; kDefaultStages
  StackOrder order = StackOrder::fewest_segments;
};

void check_cp_size(int cp_size);  // raises InvalidArgument for none, and for more than memory holds
Placement place(const Problem& problem, const std::string& partition, int cp_size);
Plan build_plan(const Problem& problem, const Placement& placement, const Transport& transport);
// The same steps of the same ranks, with the tiles of some alone: what a process needs that holds
// these ranks (rising; none: all). Tiles are most of a plan: it takes their share of memory.
Plan build_plan_of_ranks(const Problem& problem, const Placement& placement,
                         const Transport& transport, std::vector<int> ranks);

// Who owns what, checked, before any step: what the transports begin with.
Plan plan_of_homes(const Problem& problem, const Placement& placement, const Transport& transport);

struct NamedTransport {
  const char* name;
  void (*fill_steps)(Plan& plan, const Transport& transport);
  bool moves_whole_buffers;  // whose rows do not depend on what is seen: a DevicePlan can have it
  const char* summary;
};
std::span<const NamedTransport> transports();

void all_gather(Plan& plan, StackOrder order);
void a2a_p2p(Plan& plan, int a2a_size, StackOrder order);
void fetch(Plan& plan, int stages, StackOrder order);

// Tools that transports share.

inline constexpr int kEmpty = 0;  // index of the empty shard and of the empty tile list

int add_shard(Plan& plan, Shard shard);  // the new pool index
int add_tiles(Plan& plan, int q_shard, int kv_shard);
int add_tiles(Plan& plan, int q_shard, const Shard& kv);  // of some rows of a buffer

// All rows of some buffers in one: in the order of sequences and positions where segments that go
// on across buffers become fewer so, as a block of a kernel ends where a segment ends; else the
// buffers one below the other.
struct Stacked {
  int shard;
  std::vector<int> row;  // of each buffer: where its rows begin, or kByPosition
};
// The same rows in that order; nothing where it makes no fewer segments.
std::optional<Shard> in_fewer_segments(const Shard& shard, int batch);
Stacked stack(Plan& plan, const std::vector<Buffer>& buffers, StackOrder order);

// Appends the message unless it would carry nothing; both ends decide alike.
void add_message(std::vector<Message>& messages, const Message& message);

}  // namespace ringside
