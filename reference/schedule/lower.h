// Lowering a plan to the schedule of a rank: what the forward and the backward pass share.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <vector>

#include "reference/plan/residency.h"
#include "reference/schedule/builder.h"
#include "reference/schedule/kept_keys.h"

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
  Lowering(const Plan& plan, int rank, Pass pass, KeepKv keep)
      : plan_(plan), rank_(rank), keep_(keep), b_(pass, rank) {
    std::ranges::fill(staging_, kCaller);
  }

  const Step& step(int i) const { return plan_.steps_of_rank[rank_][i]; }
  bool replaced(int step, Operand operand) const {
    return is_replaced(plan_, rank_, step, operand);
  }
  int add_like(Payload payload, const Buffer& like, int area) {
    return b_.add_buffer(payload, plan_.rows(like), like.heads, area);
  }
  // Room for the keys of a step, to be kept; kCaller where a pass keeps none of them.
  int add_kept_keys(int step);
  void compute(int step, const Residents& now);

  // The messages of the exchange before `step` that move `operand`, from buffer to buffer; what is
  // copied into staging before them, from there after them, and to the rank itself beside them.
  struct Moves {
    std::vector<BlockMove> packs;
    std::vector<ScheduledMessage> sends, receives;
    std::vector<BlockMove> own;      // to the rank itself
    std::vector<BlockMove> spread;   // from staging
    int64_t staged[kPayloads] = {};  // cells
  };
  void add_moves(Moves& moves, int step, Operand operand, int from, int to);
  void post(int step, const Moves& moves);
  // What arrives in staging is put in its place before anything reads it, or more arrives there.
  void land(std::initializer_list<int> buffers);
  void land_all();
  // Messages whose rows travel together and lie apart in one buffer. Runs go from the other end's
  // rows to those of the buffer.
  struct Apart {
    struct Group {  // of equal heads
      Range heads;
      int rows = 0;
      std::vector<RowRun> runs;  // from rows of staging
      std::vector<size_t> messages;
    };
    explicit Apart(std::vector<ScheduledMessage>& of_exchange) : messages(of_exchange) {}
    void add(int peer, Range heads, std::span<const RowRun> runs);

    std::vector<ScheduledMessage>& messages;
    std::vector<Group> groups;
  };
  void spread(Moves& moves, const Apart& arrived, int to);
  void collect(Moves& moves, const Apart& leaving, int from);

  // The transposed messages of an operand: sums of `from` travel to where its rows came from, what
  // comes back is to be combined into `to`, in the order of transfers().
  std::vector<BlockMove> add_moves_back(Moves& moves, int step, Operand operand, int from, int to,
                                        int arrivals);

  const Plan& plan_;
  const int rank_;
  const KeepKv keep_;
  ScheduleBuilder b_;

 private:
  std::vector<BlockMove> stage(Moves& moves, const Apart& apart, int buffer);
  // Sums of `from` leave; returns what goes from there to the rank's own rows, once it sent them.
  std::vector<BlockMove> send_back(Moves& moves, int step, Operand operand, int from, int to);
  Block stage(Moves& moves, Payload payload, int rows, Range heads);
  Block rows_of_buffer(int buffer, Range heads) const;

  int staging_[kPayloads];  // areas
  struct Arrival {
    int step;
    BlockMove move;
  };
  std::vector<Arrival> arrivals_;  // in staging
};

}  // namespace ringside
