#include "reference/tensor.h"

#include "reference/partial.h"

namespace ringside {

void Partial::merge(int row, int head, const double* other_out, double other_lse) {
  double& own_lse = *lse.at(row, head);
  double* own_out = out.at(row, head);
  const MergeWeights<double> w = merge_weights(own_lse, other_lse);
  for (int d = 0; d < out.dim; ++d) own_out[d] = w.a * own_out[d] + w.b * other_out[d];
  own_lse = w.lse;
}

}  // namespace ringside
