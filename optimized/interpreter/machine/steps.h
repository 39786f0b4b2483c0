// A warp's turn.
#pragma once

#include "optimized/interpreter/machine/state.h"

namespace ringside::ptx {

// At most so many instructions; whether it came further.
bool take_turn(Warp& warp, int instructions);

}  // namespace ringside::ptx
