// What a row of a home buffer holds, in one number: the global row of a token; of padding, its
// complement; or kNobody (move_tables.h), which is negative, too. Device code includes this file.
#pragma once

#include <cstdint>

#include "reference/support/host_device.h"

namespace ringside {

RINGSIDE_HD inline int32_t padding_row(int global) { return ~global; }
RINGSIDE_HD inline bool is_token(int32_t global_of_home) { return global_of_home >= 0; }

}  // namespace ringside
