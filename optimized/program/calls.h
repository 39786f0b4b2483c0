// What the passes of a program are given, a member (a rank, or all of them) at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "optimized/attention/kernel.h"
#include "optimized/exchange/move.h"

namespace ringside {

// Of one hosted rank: its rows of the caller's arrays, dense.
struct RankForwardCall {
  move::GlobalArray q, k, v, out, lse;
  std::byte* kept = nullptr;  // kept_bytes(): keys and values for the backward pass; or none
};
struct RankBackwardCall {
  move::GlobalArray dout, q, k, v, out, lse, dq, dk, dv;
  float* dsink = nullptr;     // [num_heads] the part of its own rows, where there are sinks
  std::byte* kept = nullptr;  // as the forward pass left it, or none
};

// Of all hosted ranks.
struct RankCallOptions {
  const float* sinks = nullptr;  // [num_heads], or none
  ScoreOptions options;
  float* max_logit = nullptr;  // [num_heads] of the tiles of all ranks, of all processes; or none
  bool deterministic = true;
};

}  // namespace ringside
