// Runs the ranks of a plan that this process hosts, on its device, by their schedules.
//
// The caller's arrays are the home buffers of the ranks. Tiles run on the caller's stream; messages
// travel on the links' stream, which is forked from it and joined to it in every call. Between two
// ranks of the process a message is a copy, the others go through the communicator. A pass is
// asynchronous and reads nothing back; what it computes is, to the bit, what CudaProgram computes
// with every rank on one device.
#pragma once

#include <memory>
#include <vector>

#include "optimized/links/links.h"
#include "optimized/program/program.h"
#include "optimized/tables/rank_memory.h"

namespace ringside {

// Of one hosted rank: its rows of the caller's arrays, dense.
struct RankForwardCall {
  move::GlobalArray q, k, v, out, lse;
};
struct RankBackwardCall {
  move::GlobalArray dout, q, k, v, out, lse, dq, dk, dv;
  float* dsink = nullptr;  // [num_heads] the part of its own rows, where there are sinks
};

// Of all hosted ranks.
struct RankCallOptions {
  const float* sinks = nullptr;  // [num_heads], or none
  ScoreOptions options;
  float* max_logit = nullptr;  // [num_heads] of the tiles of the hosted ranks; or none
  bool deterministic = true;
};

struct RankParts;

class RankProgram {
 public:
  RankProgram(const Plan& plan, const Hosting& hosting, const ProgramOptions& options);
  ~RankProgram();

  const char* family() const;
  int64_t workspace_bytes() const;  // of the links, which hold anything
  // `kind` tells calls of this program from those of others, alike in all processes.
  void attach(const Links& links, uint32_t kind);

  void forward(const std::vector<RankForwardCall>& ranks, const RankCallOptions& options,
               Links& links, cudaStream_t stream) const;
  void backward(const std::vector<RankBackwardCall>& ranks, const RankCallOptions& options,
                Links& links, cudaStream_t stream) const;

 private:
  std::unique_ptr<RankParts> parts_;
};

}  // namespace ringside
