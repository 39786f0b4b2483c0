// Lowering a plan to the schedule of a rank: what the forward and the backward pass share.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "reference/residency.h"
#include "reference/schedule/builder.h"

namespace ringside {

// The buffers of a rank between two exchanges.
struct Residents {
  int queries = -1, keys = -1;
  int query_sums = -1, key_sums = -1;
};

// Two areas of the workspace, taken in turn: what lies in one may still be read while the other
// fills.
class InTurn {
 public:
  InTurn(ScheduleBuilder& builder, Payload payload) : builder_(builder), payload_(payload) {}
  int next();

 private:
  ScheduleBuilder& builder_;
  Payload payload_;
  int areas_[2] = {kCaller, kCaller};
  int taken_ = 0;
};

class Lowering {
 protected:
  Lowering(const Plan& plan, int rank, Pass pass) : plan_(plan), rank_(rank), b_(pass, rank) {
    std::ranges::fill(staging_, kCaller);
  }

  const Step& step(int i) const { return plan_.steps_of_rank[rank_][i]; }
  bool replaced(int step, Operand operand) const {
    return is_replaced(plan_, rank_, step, operand);
  }
  int add_like(Payload payload, const Buffer& like, int area) {
    return b_.add_buffer(payload, plan_.rows(like), like.heads, area);
  }
  void compute(int step, const Residents& now);

  // The messages of the exchange before `step` that move `operand`, from buffer to buffer; what is
  // copied into staging before them, and from there or to the rank itself after them.
  struct Moves {
    std::vector<BlockMove> packs;
    std::vector<ScheduledMessage> sends, receives;
    std::vector<BlockMove> copies;
    int64_t staged[kPayloads] = {};  // cells
  };
  void add_moves(Moves& moves, int step, Operand operand, int from, int to);
  void post(int step, const Moves& moves);
  // Consecutive rows of a peer, which land apart in `to`, by way of staging.
  void receive_apart(Moves& moves, int peer, const Block& to, std::span<const RowRun> runs);

  // The transposed messages of an operand: sums of `from` travel to where its rows came from, what
  // comes back is to be combined into `to`, in the order of transfers().
  std::vector<BlockMove> add_moves_back(Moves& moves, int step, Operand operand, int from, int to,
                                        int arrivals);

  const Plan& plan_;
  const int rank_;
  ScheduleBuilder b_;

 private:
  // Rows that came apart and go back together, in staging.
  Block collect(Moves& moves, const Block& from, std::span<const RowRun> runs);
  Block stage(Moves& moves, Payload payload, int rows, Range heads);
  Block rows_of_buffer(int buffer, Range heads) const;

  int staging_[kPayloads];  // areas
};

}  // namespace ringside
