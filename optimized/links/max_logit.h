// The largest scores of several processes.
#pragma once

#include <cuda_runtime_api.h>

namespace ringside {

struct LogitsOfProcesses {  // [processes][heads], those of `mine` elsewhere
  const float* data;
  int processes, mine, heads;
};

// Of each head the larger of what max_logit holds and of what all others found; NaN stays.
void take_larger_logits(const LogitsOfProcesses& others, float* max_logit, cudaStream_t stream);

}  // namespace ringside
