// Runs the ranks of a plan that this process hosts, on its device, by their schedules.
//
// The caller's arrays are the home buffers of the ranks. Tiles run on the caller's stream; messages
// travel on the links' stream, which is forked from it and joined to it in every call. Between two
// ranks of the process a message is a copy, the others go through the communicator. A pass is
// asynchronous and reads nothing back; what it computes is, to the bit, what CudaProgram computes
// with every rank on one device.
#pragma once

#include <memory>
#include <vector>

#include "optimized/links/links.h"
#include "optimized/program/calls.h"
#include "optimized/program/program.h"
#include "optimized/tables/schedules/rank_memory.h"

namespace ringside {

struct RankParts;

class RankProgram {
 public:
  // A program that keeps keys and values is another one than one that does not.
  RankProgram(const Plan& plan, const Hosting& hosting, const ProgramOptions& options,
              KeepKv keep = KeepKv::no);
  // One whose lengths only the device knows: set_lengths() before the first pass. A rank's arrays
  // have rank_rows() rows (tables/capacity.h), those of its sequences first; others become 0.
  RankProgram(const Capacity& capacity, const Hosting& hosting, const ProgramOptions& options,
              KeepKv keep = KeepKv::no);
  ~RankProgram();

  // As of a CudaProgram: the layouts of the whole batch, alike on all ranks.
  void set_lengths(const DeviceLayout& q, const DeviceLayout& k, cudaStream_t stream) const;
  bool lengths_fitted(cudaStream_t stream) const;  // since it was last asked; synchronizes

  const char* family() const;
  int64_t workspace_bytes() const;          // of the links, which hold anything
  std::vector<int64_t> kept_bytes() const;  // of each hosted rank
  int64_t bytes_sent() const;               // to other processes, by both passes
  // To links for the calls to come. `kind` tells calls of this program from those of others, alike
  // in all processes.
  void attach(const Links& links, uint32_t kind);
  // What may fail of a rehearsal: in a process by itself, as nobody waits for it yet.
  void make_room_to_rehearse();
  // Microseconds that the messages of both passes take by themselves, the mean of some times; what
  // they carry is nothing. Waits for it, and gives the room back. All processes call it.
  double rehearse(Links& links, int times);

  void forward(const std::vector<RankForwardCall>& ranks, const RankCallOptions& options,
               Links& links, cudaStream_t stream) const;
  void backward(const std::vector<RankBackwardCall>& ranks, const RankCallOptions& options,
                Links& links, cudaStream_t stream) const;

 private:
  std::unique_ptr<RankParts> parts_;
};

}  // namespace ringside
