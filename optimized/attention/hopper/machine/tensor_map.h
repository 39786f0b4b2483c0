// Ragged tensor maps (box.h) of the buffers that kernels read and write: made on the host for each
// launch, and passed by value.
#pragma once

#include <cuda.h>

#include "optimized/attention/hopper/machine/box.h"
#include "optimized/device/types.h"

namespace ringside::hopper {

struct MapShape {
  ElementType type = ElementType::bfloat16;
  int dim = 0, heads = 0;  // columns behind `dim` are zeros to loads, and dropped by stores
};

// Whether the driver can make such maps at all.
bool driver_makes_maps();

// Whether a map takes the beginning and the strides of a matrix: multiples of 16 bytes, above 0 and
// within the bounds of box.h. A head's stride does not matter where there is one head.
bool fits_a_map(const DeviceMatrix& matrix, const MapShape& shape);

// With boxes of 128 bytes of columns of a head, swizzled, and so many rows. False: it has none.
bool make_map(CUtensorMap& map, const DeviceMatrix& matrix, const MapShape& shape,
              int box_rows = kBoxRows);

}  // namespace ringside::hopper
