// Captures and graphs.
#include "optimized/interpreter/runtime/graph.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "optimized/interpreter/runtime/runtime.h"

namespace ringside::ptx {
namespace {

struct Graph {
  std::vector<GraphNode> nodes;
  bool failed = false;
};

thread_local std::unique_ptr<Graph> capture;

Graph* graph_of(cudaGraph_t graph) { return reinterpret_cast<Graph*>(graph); }
Graph* graph_of(cudaGraphExec_t graph) { return reinterpret_cast<Graph*>(graph); }

}  // namespace

void enqueue(cudaGraphNodeType type, std::function<void()> run) {
  if (capture == nullptr) return run();
  capture->nodes.push_back({type, std::move(run)});
}

cudaError_t refuse_in_capture() {
  if (capture == nullptr) return cudaSuccess;
  capture->failed = true;
  return note(cudaErrorStreamCaptureUnsupported);
}

}  // namespace ringside::ptx

using namespace ringside::ptx;  // NOLINT: the runtime's functions have its names

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || capture != nullptr) return note(cudaErrorStreamCaptureUnsupported);
  capture = std::make_unique<Graph>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = nullptr;
  const auto ended = std::exchange(capture, nullptr);
  if (ended == nullptr || ended->failed) return note(cudaErrorStreamCaptureInvalidated);
  *graph = reinterpret_cast<cudaGraph_t>(new Graph(*ended));
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = capture == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* number) {
  auto& all = graph_of(graph)->nodes;
  if (nodes == nullptr) return *number = all.size(), cudaSuccess;
  *number = std::min(*number, all.size());
  for (size_t k = 0; k < *number; ++k) nodes[k] = reinterpret_cast<cudaGraphNode_t>(&all[k]);
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = reinterpret_cast<const GraphNode*>(node)->type;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = reinterpret_cast<cudaGraphExec_t>(new Graph(*graph_of(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  for (const GraphNode& node : graph_of(graph)->nodes) enqueue(node.type, node.run);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph_of(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph_of(graph);
  return cudaSuccess;
}
}
