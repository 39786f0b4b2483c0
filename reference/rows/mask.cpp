#include "reference/rows/mask.h"

#include "reference/support/errors.h"

namespace ringside {

void check_mask(const Mask& mask) {
  require(mask.left >= kUnbounded && mask.right >= kUnbounded, "window_size=(", mask.left, ", ",
          mask.right,
          "); expected -1 (unbounded) or the number of visible neighbours on each side. "
          "Causal is (-1, 0)");
  require(mask.chunk >= 0, "chunk_size=", mask.chunk,
          "; expected 0 (no chunks) or the number of tokens in a chunk");
}

}  // namespace ringside
