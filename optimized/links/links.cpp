#include "optimized/links/links.h"

#include <chrono>
#include <cstring>

#include "optimized/device/properties.h"
#include "optimized/links/mailbox.h"

namespace ringside {
namespace {

constexpr int64_t kGrain = int64_t{2} << 20;  // what a device maps is whole pages of this size
constexpr auto kReleaseEvery = std::chrono::milliseconds(1);

cudaStream_t urgent_stream() {
  int least = 0, greatest = 0;
  cudaStream_t stream = nullptr;
  RINGSIDE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  RINGSIDE_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
  return stream;
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  RINGSIDE_CUDA(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

Links::Links(int mine, int processes, const std::string& words_path)
    : mine_(mine),
      processes_(processes),
      device_(current_device()),
      words_(std::make_shared<SharedWords>(words_path, mailbox::size(processes), true)),
      unfit_(sizeof(uint32_t)),
      stream_(urgent_stream()),
      mapped_(static_cast<size_t>(processes), nullptr) {}

Links::~Links() {
  closing_ = true;
  guard_.reset();
  if (release_.joinable()) release_.join();
  nccl_.reset();
  static_cast<void>(cudaStreamSynchronize(stream_));
  for (int process = 0; process < processes_; ++process) unmap(process);
  static_cast<void>(cudaStreamDestroy(stream_));
}

bool Links::reserve(int64_t bytes) {
  if (bytes <= bytes_) return false;
  bytes_ = (bytes + kGrain - 1) / kGrain * kGrain;
  before_ = std::move(workspace_);
  workspace_ = DeviceMemory(bytes_);
  return true;
}

std::string Links::workspace_handle() const {
  cudaIpcMemHandle_t handle{};
  RINGSIDE_CUDA(cudaIpcGetMemHandle(&handle, workspace_.data()));
  return {reinterpret_cast<const char*>(&handle), sizeof(handle)};
}

void Links::meet_peers(const std::vector<std::string>& words_paths) {
  std::vector<PeerCommunicator::Peer> peers;
  for (int process = 0; process < processes_; ++process)
    peers.push_back({process == mine_
                         ? words_
                         : std::make_shared<SharedWords>(words_paths.at(process),
                                                         mailbox::size(processes_), false),
                     nullptr});
  peers_ = std::make_unique<PeerCommunicator>(mine_, std::move(peers));
}

void Links::map_workspace(int process, const std::string& bytes) {
  cudaIpcMemHandle_t handle{};
  require(bytes.size() == sizeof(handle), "a handle of ", bytes.size(), " bytes; expected ",
          sizeof(handle));
  std::memcpy(&handle, bytes.data(), sizeof(handle));
  void* found = nullptr;
  RINGSIDE_CUDA(cudaIpcOpenMemHandle(&found, handle, cudaIpcMemLazyEnablePeerAccess));
  unmap(process);
  mapped_[process] = found;
  peers_->set_workspace(process, static_cast<std::byte*>(found));
}

void Links::reach_workspace(int process, const Links& other) {
  unmap(process);
  peers_->set_workspace(process, other.workspace());
}

void Links::unmap(int process) {
  if (mapped_[process] != nullptr) static_cast<void>(cudaIpcCloseMemHandle(mapped_[process]));
  mapped_[process] = nullptr;
  if (peers_ != nullptr) peers_->set_workspace(process, nullptr);
}

void Links::unmap_workspaces() {
  for (int process = 0; process < processes_; ++process) unmap(process);
}

void Links::free_workspace() {
  workspace_ = {}, before_ = {};
  bytes_ = 0;
}

void Links::meet_nccl(const std::string& library, const std::string& id) {
  NcclUniqueId unique{};
  require(id.size() == unique.bytes.size(), "an id of ", id.size(), " bytes; expected ",
          unique.bytes.size());
  std::memcpy(unique.bytes.data(), id.data(), id.size());
  nccl_ = std::make_unique<NcclCommunicator>(NcclLibrary(library), unique, processes_, mine_);
  const DeviceMemory two_bytes(2);
  nccl_->connect(two_bytes.data(), stream_);
}

DeviceCommunicator* Links::communicator() const {
  return peers_ != nullptr ? static_cast<DeviceCommunicator*>(peers_.get()) : nccl_.get();
}

// A captured call is ordered by whoever replays it.
void Links::begin_call(uint32_t token, std::byte* staging, int64_t staging_bytes,
                       cudaStream_t stream) {
  if (!is_captured(stream)) last_.hold(stream);
  if (communicator() != nullptr) communicator()->set_call(token);
  if (nccl_ != nullptr) nccl_->set_staging(staging, staging_bytes);
  start_call_words(words_->on_device(0), stream);
}

void Links::end_call(const ExpectedWord* expected, int count, const std::vector<Spoilable>& results,
                     cudaStream_t stream) {
  auto* unfit = reinterpret_cast<uint32_t*>(unfit_.data());
  end_call_words(words_->on_device(0), expected, count, results, unfit, stream);
  if (!is_captured(stream)) last_.record(stream);
}

void Links::abort() {
  if (is_first_abort()) release_ = std::thread([this] { release_streams(); });
}

bool Links::is_first_abort() {
  return (*words_)[mailbox::kAborted].exchange(1) == 0 && communicator() != nullptr;
}

void Links::release_streams() {
  for (; !closing_; std::this_thread::sleep_for(kReleaseEvery)) communicator()->abort();
}

void Links::guard(double patience_s) {
  if (guard_ != nullptr) return;
  const auto give_up = [this] {
    if (is_first_abort()) release_streams();  // needs no other thread, which might not begin
  };
  guard_ = std::make_unique<Guard>([this] { return progress(); }, give_up, patience_s);
}

Progress Links::progress() const {
  const SharedWords& words = *words_;
  return {words[mailbox::kStarted].load(), words[mailbox::kCompleted].load(),
          words[mailbox::kStep].load()};
}

}  // namespace ringside
