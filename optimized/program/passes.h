// Runs the passes of a program, a call a member.
#pragma once

#include <vector>

#include "optimized/program/parts.h"

namespace ringside {

class Links;

struct RunsOn {  // a pass; without links, all ranks are members
  cudaStream_t stream = nullptr;
  std::byte* workspace = nullptr;
  Links* links = nullptr;
};

void run_forward(const ProgramParts& parts, std::vector<RankForwardCall> calls,
                 const RankCallOptions& options, const RunsOn& on);
void run_backward(const ProgramParts& parts, std::vector<RankBackwardCall> calls,
                  const RankCallOptions& options, const RunsOn& on);

}  // namespace ringside
