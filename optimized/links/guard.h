// Gives up calls that stand still where nobody else can: threads of an interpreter do not run while
// one of them holds it and waits for the device.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

namespace ringside {

struct Progress {
  uint32_t started = 0, completed = 0;  // calls
  uint32_t step = 0;                    // of the plan, plus 1; 0: none
  bool operator==(const Progress&) const = default;
};

// Asks for progress from a thread of its own. Where calls have started that do not complete, and
// nothing has moved for so long, it calls give_up, and asks no more. Time in which the process was
// stopped does not count.
class Guard {
 public:
  Guard(std::function<Progress()> progress, std::function<void()> give_up, double patience_s);

 private:
  std::jthread thread_;
};

}  // namespace ringside
