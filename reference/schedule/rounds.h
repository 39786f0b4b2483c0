// In which order a process that hosts several ranks does what their schedules say.
//
// Messages between its ranks are copies, the others go to other processes, and each process posts
// its exchanges one after the other. So all must post them in one order, whichever ranks they host:
// exchanges have rounds, counted alike on every rank. Both ends of a message are in one round, and
// the rounds of a rank rise along its list.
#pragma once

#include <vector>

#include "reference/schedule/schedule.h"

namespace ringside {

int round_of(const Schedule& schedule, const Operation& exchange, int num_steps);
int num_rounds(Pass pass, int num_steps);

struct Turn {  // an operation of a hosted rank
  int member = 0, operation = 0;
  bool operator==(const Turn&) const = default;
};

// One operation that is no exchange; or the exchanges of a round, posted together.
struct Act {
  int round = -1;
  std::vector<Turn> turns;
  bool operator==(const Act&) const = default;
};

// Every operation of the hosted ranks, each rank's in its order. An exchange comes as early as the
// lists allow: before the tiles under which it travels.
std::vector<Act> acts_of(const std::vector<Schedule>& hosted, int num_steps);

// The n-th message from one hosted rank to another within a round, as they meet.
struct LocalMessage {
  Turn from, to;
  Block sent, received;
};
std::vector<LocalMessage> local_messages(const std::vector<Schedule>& hosted, const Act& act);

}  // namespace ringside
