// What a call enqueues, as a captured graph: so it allocates nothing and waits for nothing, which
// no capture takes.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "optimized/device/error.h"

namespace ringside::testing {

class Stream {
 public:
  Stream() { RINGSIDE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Graph {
 public:
  // Of what enqueue(stream) enqueues.
  template <typename Enqueue>
  explicit Graph(Enqueue enqueue) {
    RINGSIDE_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    enqueue(static_cast<cudaStream_t>(stream_));
    RINGSIDE_CUDA(cudaStreamEndCapture(stream_, &graph_));
    RINGSIDE_CUDA(cudaGraphInstantiate(&made_, graph_, 0));
  }
  ~Graph() { cudaGraphExecDestroy(made_), cudaGraphDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch() const {
    RINGSIDE_CUDA(cudaGraphLaunch(made_, stream_));
    RINGSIDE_CUDA(cudaStreamSynchronize(stream_));
  }

  // How many nodes it has, of a type or of all.
  int number_of(cudaGraphNodeType type) const {
    return static_cast<int>(std::ranges::count(types(), type));
  }
  int size() const { return static_cast<int>(types().size()); }

 private:
  std::vector<cudaGraphNodeType> types() const {
    size_t number = 0;
    RINGSIDE_CUDA(cudaGraphGetNodes(graph_, nullptr, &number));
    std::vector<cudaGraphNode_t> nodes(number);
    RINGSIDE_CUDA(cudaGraphGetNodes(graph_, nodes.data(), &number));
    std::vector<cudaGraphNodeType> found(number);
    for (size_t i = 0; i < number; ++i) RINGSIDE_CUDA(cudaGraphNodeGetType(nodes[i], &found[i]));
    return found;
  }

  Stream stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t made_ = nullptr;
};

}  // namespace ringside::testing
