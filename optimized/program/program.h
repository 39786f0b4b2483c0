// Interprets a plan on one GPU, every rank virtual: the same steps and exchanges as
// reference/execute/execute.cpp, on tables that are uploaded once.
//
// Making a CudaProgram allocates and uploads; running it does neither. forward() and backward() are
// asynchronous on the caller's stream, work in a workspace of the caller's (or of the program's
// making, see DeviceMemory) and read nothing back. In each step, one launch serves all ranks that
// hold the same heads. A plan of one rank that owns all rows in order moves none: kernels read and
// write the caller's arrays.
//
// A program belongs to the device that was current when it was made. Its functions raise
// InvalidArgument while another one is.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "optimized/attention/kernel.h"
#include "optimized/exchange/move.h"
#include "optimized/tables/capacity.h"
#include "optimized/tables/length_tables.h"
#include "reference/plan/plan.h"

namespace ringside {

enum class Poison { off, on };  // on: workspaces are NaN before use, and NaN rows part the ranks

struct ProgramOptions {
  int head_dim_qk = 0, head_dim_v = 0;
  ElementType type = ElementType::float32;  // of the caller's q, k, v
  bool score_options = false;               // softcap, ALiBi or dropout will be asked for
  float softmax_scale = 1;
  Poison poison = Poison::off;
  bool sinks = true;  // whether calls may bring sinks
  // The first one in the table that is asked, as "mma" on a Hopper GPU; empty: its first.
  std::string family{};
  // Multiprocessors that attention leaves to other kernels, such as those that exchange, where its
  // blocks stay on theirs, as on Hopper GPUs; it takes one at least.
  int sm_margin = 0;
};

struct ForwardCall {
  move::GlobalArray q, k, v, out;
  move::GlobalArray lse;         // float32; dim is 1, strides say whether heads or rows come first
  const float* sinks = nullptr;  // [num_heads], or none
  ScoreOptions options;
  void* workspace = nullptr;   // forward_bytes(), at a multiple of 256 bytes
  float* max_logit = nullptr;  // [num_heads] the largest score, -inf where no row sees any; or none
};

struct BackwardCall {
  move::GlobalArray dout, q, k, v, out, lse;
  move::GlobalArray dq, dk, dv;
  const float* sinks = nullptr;
  float* dsink = nullptr;  // [num_heads], where there are sinks
  ScoreOptions options;
  bool deterministic = true;  // bit-equal results from run to run
  void* workspace = nullptr;  // backward_bytes(), likewise
};

struct StackParts;  // stack_parts.h

class CudaProgram {
 public:
  // Raises Unsupported where no kernel family takes the head dimensions, InvalidArgument where the
  // table has none of the name asked for.
  CudaProgram(const Plan& plan, const ProgramOptions& options);
  // One whose lengths only the device knows: set_lengths() before the first pass.
  CudaProgram(const Capacity& capacity, const ProgramOptions& options);
  ~CudaProgram();

  // Rewrites the tables from lengths in device memory: one asynchronous launch, nothing read back,
  // so that a captured graph follows what the arrays hold when it is replayed. Lengths that do not
  // fit count as none: results are those of an empty batch until they fit again. Of q and of k, as
  // many sequences each; padded offsets may be the same array.
  void set_lengths(const DeviceLayout& q, const DeviceLayout& k, cudaStream_t stream) const;
  bool lengths_fitted(cudaStream_t stream) const;  // since it was last asked; synchronizes

  int device() const;          // on which it was made
  const char* family() const;  // whose kernels it runs
  bool in_place() const;       // whether they work on the caller's arrays, 16-byte aligned then
  int64_t forward_bytes() const;
  int64_t backward_bytes() const;
  void forward(const ForwardCall& call, cudaStream_t stream) const;
  void backward(const BackwardCall& call, cudaStream_t stream) const;

 private:
  std::unique_ptr<StackParts> parts_;
};

}  // namespace ringside
