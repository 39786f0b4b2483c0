// What one rank does in one pass, as plain data: its buffers, what it computes and exchanges, and
// which waits for which.
//
// A plan says what is resident in each step; a schedule says how a rank gets there. It has two
// streams: `compute` runs tiles, sums, merges and copies, `exchange` posts groups of messages. Each
// stream keeps its order, and an operation also waits for the operations that `after` names. The
// order of the list is one that all of this allows, alike on every rank: whoever has one stream
// only just walks the list. Copies are not beside the messages, as a GPU's own take
// multiprocessors: there they would wait until tiles end that have them all, and the next messages
// for them.
//
// Exchanges are prefetched: the keys and values of step s+1 travel under the tiles of step s, into
// two areas in turn. Backward walks the steps from the last to the first, fetches keys and values
// anew from the ranks that own them, one step ahead, and sends gradients back as messages of the
// forward pass transposed; what arrives is added, in the order of transfers(), after the rank's own
// part. A message that lands by position travels through a staging area, from which a copy spreads
// its rows; on its way back a copy collects them. Where keys and values are kept, a forward pass
// copies those of each step into memory that outlives it, and both passes' tiles read them there;
// the backward pass fetches none. make_schedule() makes it, verify_schedules() proves those of all
// ranks, run_schedule.h runs one on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/plan/plan.h"
#include "reference/rows/row_places.h"

namespace ringside {

enum class Pass : int8_t { forward, backward };

// Whether the backward pass finds the keys and values of every step where the forward pass left
// them, or fetches them anew.
enum class KeepKv : int8_t { no, yes };

// Arrays that lie and travel together, a cell (one head of one row) of each beside the others.
enum class Payload : int8_t {
  queries,          // q; in the backward pass q, dout, lse and delta
  keys,             // k and v
  results,          // partial out and lse, float32
  query_gradients,  // dq, float32
  key_gradients,    // dk and dv, float32
};
inline constexpr int kPayloads = 5;
const char* name(Payload payload);

inline constexpr int kCaller = -1;  // instead of an area: the caller's own arrays

struct ScheduledBuffer {  // rows x heads in an area of the workspace
  Payload payload = Payload::queries;
  int rows = 0;
  Range heads;
  int area = kCaller;
  int64_t cell = 0;  // where it begins in its area

  int64_t cells() const { return int64_t{rows} * heads.size(); }
};

struct Block {  // some rows and heads of a buffer
  int buffer = -1, row = 0, rows = 0;
  Range heads;  // numbered globally
  int64_t cells() const { return int64_t{rows} * heads.size(); }
  bool operator==(const Block&) const = default;
};

enum class OperationKind : int8_t {
  clear,     // `to` becomes the result of nothing: gradients 0, out 0, lse -inf
  exchange,  // posts sends and receives together and ends when all have arrived
  copy,      // `from` to `to`: a message of a rank to itself, rows from or to staging, or to keep
  combine,   // merges results, adds gradients of `from` into `to`
  compute,   // a tile list, into query_sums and, in the backward pass, key_sums
};
const char* name(OperationKind kind);

enum class Stream : int8_t { compute, exchange };

struct ScheduledMessage {
  int peer = 0;  // never the rank itself
  Block block;
  bool operator==(const ScheduledMessage&) const = default;
};

struct Operation {
  OperationKind kind = OperationKind::compute;
  Stream stream = Stream::compute;
  int step = 0;                                       // of the plan
  std::vector<int> after{};                           // earlier operations of the other stream
  std::vector<ScheduledMessage> sends{}, receives{};  // of an exchange
  Block from{}, to{};
  // Of copy and combine: which rows of the two buffers; none: all of the blocks, in order.
  std::vector<RowRun> runs{};
  int tiles = 0;                       // of compute: index into Plan::tile_lists
  int queries = -1, keys = -1;         // of compute: buffers it reads
  int query_sums = -1, key_sums = -1;  // of compute: buffers it adds to

  int64_t cells_moved() const {  // of copy and combine
    return runs.empty() ? from.cells() : rows_of(runs) * from.heads.size();
  }
  std::vector<RowRun> row_runs() const {  // of copy and combine: `runs`, or all of its blocks
    if (!runs.empty() || to.cells() == 0) return runs;
    return {{from.row, to.row, to.rows}};
  }
  bool operator==(const Operation&) const = default;
};

struct Area {  // of the workspace; buffers use it one after the other
  Payload payload = Payload::queries;
  int64_t cells = 0;
  // Whether it outlives the pass: written by a forward pass, read by the backward pass. Both have
  // the same ones in the same order, that of steps.
  bool kept = false;
};

struct Schedule {
  Pass pass = Pass::forward;
  int rank = 0;
  std::vector<ScheduledBuffer> buffers;
  std::vector<Area> areas;
  std::vector<Operation> operations;
  int home_queries = -1, home_keys = -1;         // buffers: where the caller's rows lie
  int home_query_sums = -1, home_key_sums = -1;  // where results or gradients lie at the end

  Payload query_sums() const {
    return pass == Pass::forward ? Payload::results : Payload::query_gradients;
  }
  // Sums of those whose rows work items are blocks of: queries, and in the backward pass keys.
  int item_sums(const Operation& op) const {
    return pass == Pass::forward ? op.query_sums : op.key_sums;
  }
  int home_item_sums() const { return pass == Pass::forward ? home_query_sums : home_key_sums; }
};

// Raises PlanError where a rank sends itself what it does not receive. The plan is taken to be
// proved otherwise; it may hold the tiles of this rank alone.
Schedule make_schedule(const Plan& plan, int rank, Pass pass, KeepKv keep = KeepKv::no);
std::vector<Schedule> make_schedules(const Plan& plan, Pass pass,
                                     KeepKv keep = KeepKv::no);  // of all ranks

}  // namespace ringside
