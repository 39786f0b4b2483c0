// Which kernels a program runs.
#pragma once

#include "optimized/program/program.h"

namespace ringside {

// What no device runs is refused before one is asked for: a machine without any says it too.
const ProgramOptions& require_head_dims(const ProgramOptions& o);

// The family that the table prefers for a shape, and arrays of so many rows, or the next one of
// those from o.family on; where
// none takes it as it is, the shape becomes one that is taken: more columns, or float32.
const KernelFamily& choose_family(AttentionShape& shape, int device_number, const ProgramOptions& o,
                                  int64_t rows);

}  // namespace ringside
