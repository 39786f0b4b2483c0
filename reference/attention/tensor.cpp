#include "reference/attention/tensor.h"

#include "reference/attention/partial.h"

namespace ringside {

void merge_cell(double* out, double* lse, int dim, const double* other_out, double other_lse) {
  const MergeWeights<double> w = merge_weights(*lse, other_lse);
  for (int d = 0; d < dim; ++d) out[d] = w.a * out[d] + w.b * other_out[d];
  *lse = w.lse;
}

void Partial::merge(int row, int head, const double* other_out, double other_lse) {
  merge_cell(out.at(row, head), lse.at(row, head), out.dim, other_out, other_lse);
}

}  // namespace ringside
