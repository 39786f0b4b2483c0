// Runs the schedule of one rank on the CPU, in float64, in memory of its own.
//
// What nobody wrote is poison. attention_of_rank() walks the list in order and hands exchanges to a
// communicator; RankRun does one operation at a time, for whoever wants another order.
#pragma once

#include <span>
#include <vector>

#include "reference/attention/attention_options.h"
#include "reference/attention/tensor.h"
#include "reference/attention/tile_attention.h"
#include "reference/schedule/run/communicator.h"
#include "reference/schedule/schedule.h"

namespace ringside {

class RankRun {
 public:
  // queries: q; in the backward pass q, dout, lse, delta. keys: k, v. Rows are those of the rank's
  // home, with all heads; they are read where they lie.
  RankRun(const Plan& plan, const Schedule& schedule, const AttentionOptions& options,
          std::vector<TensorView> queries, std::vector<TensorView> keys);

  void run(const Operation& operation);  // any but an exchange
  std::vector<double> packed(const Block& block) const;
  void unpack(const Block& block, std::span<const double> data);
  // The rows of a whole buffer: out and lse; dq; dk and dv.
  std::vector<Tensor> arrays(int buffer) const;
  const std::vector<double>& max_logit() const { return max_logit_; }  // [num_heads]
  // Areas that outlive the pass, one array after the other: read after it, or set before it.
  std::vector<double> kept() const;
  void set_kept(std::span<const double> kept);

 private:
  template <typename Visit>
  void for_each_cell(const Block& block, Visit visit) const;
  const double* cell(int buffer, int array, int row, int head) const;
  double* cell(int buffer, int array, int row, int head);
  void clear(const Block& block);
  template <typename Move>
  void for_each_pair(const Operation& op, Move move);
  void copy(const Block& from, const Block& to);
  void combine(const Block& from, const Block& to);
  void compute_forward(const Operation& operation);
  void compute_backward(const Operation& operation);
  In in(int buffer, int array, int head) const;
  Out out(int buffer, int array, int head);
  void add_head(int buffer, int array, int head, const Tensor& term);

  const Plan& plan_;
  const Schedule& schedule_;
  const AttentionOptions& options_;
  std::vector<TensorView> caller_[2];                     // queries, keys
  std::vector<int> dims_[kPayloads];                      // of each array of a payload
  std::vector<std::vector<std::vector<double>>> memory_;  // [area][array]
  std::vector<double> max_logit_;
};

struct Moment {  // when an operation was under way, microseconds of one clock for all threads
  double begin_us = 0, end_us = 0;
};

struct RankInputs {  // rows of the rank's home
  TensorView q, k, v;
  AttentionOptions options;
};

struct RankOutput {
  Tensor out, lse;                // [home rows, heads, .]; 0 and -inf where a row saw nothing
  std::vector<double> max_logit;  // [num_heads] of the rank's own tiles
  std::vector<Moment> moments{};  // of the operations of the schedule
  std::vector<double> kept{};     // keys and values, where the schedule keeps them
};

struct RankGradients {
  Tensor dq, dk, dv;
  std::vector<double> dsink;      // [num_heads] the part of the rank's own rows, or empty
  std::vector<Moment> moments{};  // of the operations of the schedule
};

// An error of this rank aborts the communicator, so that the others end, too.
RankOutput attention_of_rank(const Plan& plan, const Schedule& forward, const RankInputs& inputs,
                             Communicator& communicator);
RankGradients attention_backward_of_rank(const Plan& plan, const Schedule& backward,
                                         const RankInputs& inputs, const TensorView& dout,
                                         const RankOutput& saved, Communicator& communicator);

}  // namespace ringside
