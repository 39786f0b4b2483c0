// Whether the steps of a plan, or what they cost, fit into memory. Steps are ranks times hops of a
// ring however few rows there are, and messages ranks times ranks.
#pragma once

#include "reference/transport/transport.h"

namespace ringside {

// Raise InvalidArgument where what is sure to be taken is more than the machine has: what works is
// never refused. Of arguments that do not fit together they say nothing.
void check_memory_of_plan(const Problem& problem, const Placement& placement,
                          const Transport& transport);
void check_memory_of_cost(const Problem& problem, const Placement& placement,
                          const Transport& transport);

}  // namespace ringside
