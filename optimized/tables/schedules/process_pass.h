// One pass of a process that hosts some ranks of a plan, as integers: where its buffers lie and
// those of the processes it sends to, and what goes from where to where in each round.
//
// Every process makes the same of the same plan, so that a sender knows where its rows are to land
// in the receiver's workspace.
#pragma once

#include <vector>

#include "optimized/tables/schedules/rank_memory.h"
#include "reference/schedule/rounds.h"

namespace ringside {

struct Parcel {  // one array of a message
  int member = 0, array = 0;
  Block block;      // here
  Rows here;        // in this workspace, or in the caller's array (home buffers)
  int process = 0;  // at the other end
  Rows there;       // of a parcel that is sent: in the workspace of that process
};

struct LocalParcel {     // between two ranks of this process, or of a rank to itself
  int from = 0, to = 0;  // members
  Block sent, received;
};

struct RoundOfProcess {
  std::vector<LocalParcel> copies;
  std::vector<Parcel> sends, receives;  // between two processes in one order at both ends
};

struct PassChoices {
  KeepKv keep = KeepKv::no;
  int64_t header_bytes = 0;  // of every workspace before the areas, alike in all processes
};

class ProcessPass {
 public:
  ProcessPass(const Plan& plan, const Hosting& hosting, Pass pass, const CellSizes& sizes,
              const PassChoices& choices = {});
  // Of one schedule that sends nothing.
  ProcessPass(Schedule alone, const CellSizes& sizes);
  ProcessPass() = default;

  const std::vector<Schedule>& hosted() const { return hosted_; }
  const std::vector<Act>& acts() const { return acts_; }
  const CellSizes& sizes() const { return sizes_; }
  int64_t bytes() const { return bytes_; }  // of the header and this process's areas
  int64_t kept_bytes(int member) const { return memory_[member].kept_bytes; }
  Rows rows(int member, const Block& block, int array) const {
    return rows_of(hosted_[member], memory_[member], sizes_, block, array);
  }
  const RoundOfProcess& round(int act) const { return rounds_[act]; }
  // What rounds need where messages must be dense: the most that those of one round take that are
  // not.
  int64_t staging_bytes() const;

 private:
  class Rounds;

  CellSizes sizes_;
  PassChoices choices_;
  std::vector<Schedule> hosted_;
  std::vector<RankMemory> memory_;
  std::vector<Act> acts_;
  std::vector<RoundOfProcess> rounds_;  // [acts]; empty where the act is no exchange
  int64_t bytes_ = 0;
};

}  // namespace ringside
