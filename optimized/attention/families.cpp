// The table of kernel families: a new one is its files, and a line here.
#include "optimized/attention/kernel.h"

namespace ringside {

std::span<const KernelFamily> kernel_families() {
  static const KernelFamily kTable[] = {
      hopper_family(),
      mma_family(),
      float32_family(),
  };
  return kTable;
}

const KernelFamily* find_family(std::span<const KernelFamily> families, const AttentionShape& shape,
                                const DeviceProperties& device, bool with_score_options,
                                int64_t rows) {
  for (const KernelFamily& family : families)
    if (rows <= family.most_rows && family.supports(shape, device) &&
        (!with_score_options || family.score_options(shape)))
      return &family;
  return nullptr;
}

const KernelFamily* find_family(const AttentionShape& shape, const DeviceProperties& device,
                                bool with_score_options, int64_t rows) {
  return find_family(kernel_families(), shape, device, with_score_options, rows);
}

}  // namespace ringside
