#include "reference/schedule/schedule.h"

#include "reference/schedule/passes.h"

namespace ringside {

const char* name(Payload payload) {
  constexpr const char* kNames[] = {"queries", "keys", "results", "query_gradients",
                                    "key_gradients"};
  return kNames[static_cast<int>(payload)];
}

const char* name(OperationKind kind) {
  constexpr const char* kNames[] = {"clear", "exchange", "copy", "combine", "compute"};
  return kNames[static_cast<int>(kind)];
}

Schedule make_schedule(const Plan& plan, int rank, Pass pass, KeepKv keep) {
  if (pass == Pass::forward) return forward_schedule(plan, rank, keep);
  HomeRows home_rows(plan);
  return backward_schedule(plan, rank, home_rows, keep);
}

std::vector<Schedule> make_schedules(const Plan& plan, Pass pass, KeepKv keep) {
  HomeRows home_rows(plan);
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    schedules.push_back(pass == Pass::forward ? forward_schedule(plan, rank, keep)
                                              : backward_schedule(plan, rank, home_rows, keep));
  return schedules;
}

}  // namespace ringside
