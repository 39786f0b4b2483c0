// What lies between q.k and the softmax, and between the softmax and v, for one query head: the
// formulas of attention_options.h, for tiles on the CPU (double) and for the float32 kernels.
#pragma once

#include <cmath>
#include <cstdint>

#include "reference/rows/seen_rows.h"
#include "reference/support/host_device.h"

namespace ringside {

template <typename Real, typename Options>  // options: softcap and dropout
struct ScoreModel {
  const Options& options;
  SequenceMask mask;
  Real scale, alibi_slope;
  int seq, head;  // global

  RINGSIDE_HD bool only_scales() const { return options.softcap == 0 && alibi_slope == 0; }

  // The score of softmax_scale * q.k; by which factor it changes with q.k, in `slope`.
  RINGSIDE_HD Real score(Real scaled, int q, int k, Real* slope) const {
    using std::tanh;
    Real x = scaled;
    *slope = scale;
    if (options.softcap != 0) {
      const Real bend = tanh(x / static_cast<Real>(options.softcap));
      x = static_cast<Real>(options.softcap) * bend;
      *slope = scale * (1 - bend * bend);
    }
    if (alibi_slope != 0) {
      const int64_t distance = mask.mask.aligned(q, mask.len_q, mask.len_k) - k;
      x -= alibi_slope * static_cast<Real>(distance < 0 ? -distance : distance);
    }
    return x;
  }

  // What dropout leaves of a weight. Dropped pairs are seen, times 0.
  RINGSIDE_HD Real kept(Real weight, int q, int k) const {
    if (options.dropout.p == 0) return weight;
    return options.dropout.keeps(seq, head, q, k)
               ? weight / static_cast<Real>(1 - options.dropout.p)
               : weight * Real{0};
  }
};

}  // namespace ringside
