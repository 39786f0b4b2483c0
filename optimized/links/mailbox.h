// Where the words of a process lie in memory that all processes of the host share: how its calls
// stand, and for every process and round what that has told it.
//
// A word that is told is a token, odd, of the call and the round: so a stream that waits for any
// odd word goes on whatever comes, and what came is compared at the end of the call.
#pragma once

#include <cstdint>

namespace ringside::mailbox {

enum Word : int64_t {
  kAborted,    // 1: nothing is right from here on
  kMismatch,   // 1: a message of another call came
  kStarted,    // calls, counted by the stream
  kCompleted,  // likewise
  kStep,       // of the plan, plus 1: for which messages are on their way
  kHeader = 16,
};

inline constexpr int kRounds = 1024;  // of a pass
// Of these the last, behind all that the plan exchanges: the largest scores of each process, and
// the word of its lengths.
inline constexpr int kOfPlan = kRounds - 2, kLogits = kOfPlan, kLengths = kOfPlan + 1;

// From `process`: its buffers are free, for this round; its rows of this round have arrived.
inline int64_t ready(int process, int round) {
  return kHeader + int64_t{2} * process * kRounds + round;
}
inline int64_t arrived(int process, int round) { return ready(process, round) + kRounds; }
inline int64_t size(int processes) { return kHeader + int64_t{2} * processes * kRounds; }

inline uint32_t token(uint32_t call, int round) {  // `call` tells calls apart
  return (call + 0x9E3779B9u * static_cast<uint32_t>(round + 1)) | 1u;
}

}  // namespace ringside::mailbox
