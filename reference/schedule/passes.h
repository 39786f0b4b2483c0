// The two passes of make_schedule().
#pragma once

#include "reference/schedule/home_rows.h"
#include "reference/schedule/schedule.h"

namespace ringside {

Schedule forward_schedule(const Plan& plan, int rank, KeepKv keep);
Schedule backward_schedule(const Plan& plan, int rank, HomeRows& home_rows, KeepKv keep);

}  // namespace ringside
