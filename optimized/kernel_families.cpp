// The table of kernel families, the preferred one first. A new family is its own file and a line
// here.
#include "optimized/attention_kernel.h"
#include "optimized/attention_mma.h"

namespace ringside {

std::span<const KernelFamily> kernel_families() {
  static constexpr KernelFamily families[] = {
      {"mma", mma::supports, mma::forward_rows, mma::backward_query_rows, mma::backward_key_rows,
       mma::forward, mma::backward},
  };
  return families;
}

}  // namespace ringside
