// What attention does besides q.k, softmax and v: parameters only, shared by everybody who
// computes.
//
//   score_ij = softcap * tanh(softmax_scale * q_i . k_j / softcap) - alibi_slope * |p_i - j|
//
// with p_i the aligned position of the query (Mask::aligned). A sink adds exp(sink) to the
// denominator of every row, once, after everything else has been merged. Dropout acts on the
// normalised weights.
#pragma once

#include <vector>

#include "reference/attention/philox.h"

namespace ringside {

struct AttentionOptions {
  double softmax_scale = 1;
  double softcap = 0;                // 0: none
  std::vector<double> alibi_slopes;  // [num_heads], or empty for none
  std::vector<double> sinks;         // [num_heads] logits, or empty for none
  Dropout dropout;

  double alibi_slope(int head) const { return alibi_slopes.empty() ? 0.0 : alibi_slopes[head]; }
};

}  // namespace ringside
