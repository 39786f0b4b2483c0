// What the ranks of a process read of lengths on the device, behind fill_length_tables.
#pragma once

#include <cuda_runtime_api.h>

#include "optimized/tables/own_rows.h"

namespace ringside {

// `own` are `count` in device memory.
void cut_own_rows(const LengthTables& tables, const OwnRows* own, int count, cudaStream_t stream);

}  // namespace ringside
