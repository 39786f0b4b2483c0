// Which keys and values a forward pass keeps for the backward pass: those that came from elsewhere
// and that some tile reads.
#pragma once

#include <span>

#include "reference/plan/plan.h"

namespace ringside {

// Whether those that become resident with a step of a rank are kept. They stay until a later step
// replaces them, and are kept once.
bool keeps_keys(const Plan& plan, int rank, std::span<const Step> steps, int step);

}  // namespace ringside
