// Runs a kernel's blocks: some at once, warps in turns that a seed draws (RINGSIDE_PTX_SEED), one
// in RINGSIDE_PTX_SLEEPS of which begins a long sleep.
#pragma once

#include "optimized/interpreter/machine/state.h"

namespace ringside::ptx {

// The parameters lie in function->parameter_bytes. Ends the process by name and line where the
// kernel does what it must not, or nothing moves any more.
void run(const Launch& launch);

}  // namespace ringside::ptx
