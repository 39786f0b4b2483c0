#include "optimized/device/error.h"
#include "optimized/links/max_logit.h"

namespace ringside {
namespace {

constexpr int kLogitThreads = 256;

__global__ void take_larger_kernel(LogitsOfProcesses others, float* max_logit) {
  for (int head = threadIdx.x; head < others.heads; head += kLogitThreads) {
    float largest = max_logit[head];
    for (int process = 0; process < others.processes; ++process) {
      if (process == others.mine) continue;
      const float x = others.data[process * others.heads + head];
      if (x > largest || x != x) largest = x;
    }
    max_logit[head] = largest;
  }
}

}  // namespace

void take_larger_logits(const LogitsOfProcesses& others, float* max_logit, cudaStream_t stream) {
  take_larger_kernel<<<1, kLogitThreads, 0, stream>>>(others, max_logit);
  RINGSIDE_CUDA(cudaGetLastError());
}

}  // namespace ringside
