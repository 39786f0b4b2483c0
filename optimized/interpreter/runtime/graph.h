// Captures: while a thread captures, what it would do on a stream is recorded, and runs when the
// graph is launched. Of all its streams one graph, in the order of the calls.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <vector>

namespace ringside::ptx {

struct GraphNode {
  cudaGraphNodeType type;
  std::function<void()> run;
};

// Runs it, or records it where this thread captures.
void enqueue(cudaGraphNodeType type, std::function<void()> run);

// Of what no capture takes, as it waits for the device, or takes memory: the error, if there is a
// capture, which has failed then.
cudaError_t refuse_in_capture();

}  // namespace ringside::ptx
