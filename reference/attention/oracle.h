// The definition of packed attention: dense, one sequence after another, float64. Long sequences
// are taken some queries at a time, each with all its keys, so that memory suffices and Ctrl-C is
// heard.
//
// Everything else is checked against this file, so it knows nothing of plans, tiles or intervals:
// only where sequences lie (PackedLayout) and which key a query may see (Mask::allows).
//
//   s_ij = softmax_scale * q_i . k_j   where allowed, else -inf
//   lse_i = log sum_j exp(s_ij)        natural log; -inf where a row sees nothing
//   out_i = sum_j exp(s_ij - lse_i) v_j                          0 where a row sees nothing
//
// Weights of out are computed beside the largest score, so that they sum to 1 whatever that is;
// those of gradients from lse as it was given, to some 1e-16 of it.
//
// Query head h uses kv head h / (num_heads / num_kv_heads). Padding is never read, and its rows of
// every result are 0 (lse: -inf).
//
// NaN and infinities. Every sum is over the pairs that the mask allows and over no others: a pair
// that is not allowed is not 0 * x, it is not there, in out, lse, max_logit and every gradient,
// whatever is in q, k, v, dout, out or lse. A row that sees nothing adds nothing to dsink either. A
// pair that is allowed is plain IEEE arithmetic, and of its weight p_ij = exp(s_ij - lse_i)
//   s_ij = -inf     has weight 0, and 0 * inf is NaN;
//   s_ij finite     has a positive weight, also where exp rounds to 0: it times inf is inf;
//   s_ij = +inf     makes lse +inf and out NaN (inf - inf);
//   s_ij = NaN      makes lse, out and max_logit NaN, whatever else the row sees;
//   dropped         is multiplied by 0, in out and in dout . v: with inf that is NaN.
// lse is -inf where all scores are, out then 0 (NaN where v is not finite). A gradient through a
// row whose lse is NaN is NaN for all that it sees; so it is where lse is +inf, but for dv of keys
// with other scores, whose weight is next to 0.
#pragma once

#include <vector>

#include "reference/attention/attention_options.h"
#include "reference/rows/mask.h"
#include "reference/rows/packed_layout.h"

namespace ringside::oracle {

struct Arrays {               // all row-major
  const double* q = nullptr;  // [rows_q, num_heads, head_dim_qk]
  const double* k = nullptr;  // [rows_k, num_kv_heads, head_dim_qk]
  const double* v = nullptr;  // [rows_k, num_kv_heads, head_dim_v]
};

struct Attention {
  PackedLayout layout_q, layout_k;
  Mask mask;
  int num_heads = 1, num_kv_heads = 1, head_dim_qk = 1, head_dim_v = 1;
  AttentionOptions options;
};

struct Result {
  std::vector<double> out;        // [rows_q, num_heads, head_dim_v]
  std::vector<double> lse;        // [num_heads, rows_q]
  std::vector<double> max_logit;  // [num_heads] the largest score; -inf where no row sees anything
};

struct Gradients {
  std::vector<double> dq, dk, dv;  // shaped like q, k, v
  std::vector<double> dsink;       // [num_heads], or empty without sinks
};

Result forward(const Attention& attention, const Arrays& arrays);

// The gradients of sum(dout * out). `saved` is what forward returned.
Gradients backward(const Attention& attention, const Arrays& arrays, const double* dout,
                   const Result& saved);

}  // namespace ringside::oracle
