// Runs a kernel's blocks: some at once (RINGSIDE_PTX_AT_ONCE), from the first on or from the last
// (RINGSIDE_PTX_FROM_LAST=1), warps in turns that a seed draws (RINGSIDE_PTX_SEED), one in
// RINGSIDE_PTX_SLEEPS of which begins a long sleep.
#pragma once

#include "optimized/interpreter/machine/state.h"

namespace ringside::ptx {

// The parameters lie in function->parameter_bytes. Ends the process by name and line where the
// kernel does what it must not, or nothing moves any more.
void run(const Launch& launch);

}  // namespace ringside::ptx
