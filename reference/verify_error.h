// Shared by the parts of verify.
#pragma once

#include "reference/errors.h"
#include "reference/verify.h"

namespace ringside {

template <typename... Parts>
void plan_require(bool condition, const Parts&... parts) {
  if (!condition) throw PlanError(concat(parts...));
}

}  // namespace ringside
