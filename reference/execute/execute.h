// Interprets a plan on the CPU for all ranks at once, in float64.
//
// Every rank has its own memory, and what it did not receive is poison. Buffers move by the plan's
// exchanges, tiles read only what is resident, partial results merge and travel home. Backward is
// the transposed plan: the same tiles, the steps reversed, gradients carried back through each
// exchange; it uses the merged out and lse, never a step's own.
#pragma once

#include <vector>

#include "reference/attention/attention_options.h"
#include "reference/attention/tensor.h"
#include "reference/plan/plan.h"

namespace ringside {

struct AttentionInputs {  // global arrays
  TensorView q;           // [rows_q, num_heads, head_dim_qk]
  TensorView k;           // [rows_k, num_kv_heads, head_dim_qk]
  TensorView v;           // [rows_k, num_kv_heads, head_dim_v]
  AttentionOptions options;
};

struct AttentionOutput {
  Tensor out;  // [rows_q, num_heads, head_dim_v]; 0 where a row saw nothing and in padding
  Tensor lse;  // [rows_q, num_heads, 1]; natural log, sinks included, -inf there
  std::vector<double> max_logit;  // [num_heads] the largest score; -inf where no row sees anything
};

struct AttentionGradients {
  Tensor dq, dk, dv;          // shaped like q, k, v
  std::vector<double> dsink;  // [num_heads], or empty without sinks
};

AttentionOutput attention(const Plan& plan, const AttentionInputs& inputs);

// The gradients of sum(dout * out), given what attention() returned.
AttentionGradients attention_backward(const Plan& plan, const AttentionInputs& inputs,
                                      const TensorView& dout, const AttentionOutput& saved);

}  // namespace ringside
