// Uses an installed Ringside the way a stranger would: the headers by their installed names, and
// the library.
#include <ringside/reference/rows/mask.h>
#include <ringside/reference/rows/packed_layout.h>

#include <cstdio>

int main() {
  const ringside::Interval keys = ringside::Mask::causal().visible(2, 5, 5);
  if (keys != ringside::Interval{0, 3}) {
    std::printf("query 2 sees keys [%d, %d), but should see [0, 3)\n", keys.begin, keys.end);
    return 1;
  }
  const auto layout = ringside::PackedLayout::from_lengths({5, 0, 3}, 4);
  if (layout.num_rows() != 12) {
    std::printf("num_rows=%d, but should be 12\n", layout.num_rows());
    return 1;
  }
  return 0;
}
