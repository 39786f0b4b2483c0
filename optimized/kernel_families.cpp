// The table of kernel families, the preferred one first: a new one is its files, and a line here.
#include "optimized/attention_kernel.h"
#include "optimized/attention_mma.h"

namespace ringside {

std::span<const KernelFamily> kernel_families() {
  static const KernelFamily kTable[] = {
      {"mma", mma::supports, mma::forward_rows, mma::backward_query_rows, mma::backward_key_rows,
       mma::forward, mma::backward},
      float32_family(),
  };
  return kTable;
}

const KernelFamily* find_family(const AttentionShape& shape, bool with_score_options) {
  for (const KernelFamily& family : kernel_families())
    if (family.supports(shape) && (family.score_options || !with_score_options)) return &family;
  return nullptr;
}

}  // namespace ringside
