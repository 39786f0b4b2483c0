// Fills the tables of a program from lengths in device memory: one launch, nothing read back.
#pragma once

#include <cuda_runtime_api.h>

#include "optimized/tables/length_tables.h"

namespace ringside {

// Lengths that do not fit the tables count as none at all, and set *tables.status.
void fill_length_tables(const LengthTables& tables, const DeviceLayout& q, const DeviceLayout& k,
                        cudaStream_t stream);

// Whether all did since this was last asked; synchronizes.
bool take_status(int32_t* status, cudaStream_t stream);

}  // namespace ringside
