#include "optimized/links/nccl_communicator.h"

#include <set>

#include "optimized/device/error.h"
#include "optimized/links/mailbox.h"
#include "optimized/links/shared_words.h"

namespace ringside {
namespace {

constexpr int kBytes = 0;  // ncclInt8

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclLibrary& library, const NcclUniqueId& id,
                                   int processes, int mine)
    : library_(library),
      processes_(processes),
      mine_(mine),
      words_(mailbox::size(processes) * int64_t{sizeof(uint32_t)}) {
  NcclConfig config;
  NcclComm comm = nullptr;
  library_.check(library_.comm_init_rank_config(&comm, processes, id, mine, &config),
                 "ncclCommInitRankConfig");
  comm_ = comm;
}

NcclCommunicator::~NcclCommunicator() { abort(); }

void NcclCommunicator::connect(std::byte* two_bytes, cudaStream_t stream) {
  for (int i = 1; i < processes_; ++i) {
    begin(mailbox::kRounds, stream);
    send((mine_ + i) % processes_, {two_bytes, 1, 1, 1}, {});
    receive((mine_ + processes_ - i) % processes_, {two_bytes + 1, 1, 1, 1});
    end();
  }
  RINGSIDE_CUDA(cudaStreamSynchronize(stream));
}

uint32_t* NcclCommunicator::arrived(int process, int round) const {
  return round < mailbox::kRounds ? word(mailbox::arrived(process, round)) : nullptr;
}

void NcclCommunicator::begin(int round, cudaStream_t stream) {
  round_ = round, stream_ = stream, taken_ = 0;
  sent_.clear(), received_.clear();
}

std::byte* NcclCommunicator::dense_place(const DeviceRows& rows) {
  if (rows.dense()) return rows.data;
  std::byte* place = staging_ + taken_;
  taken_ += (static_cast<int64_t>(rows.bytes()) + 255) / 256 * 256;
  require(taken_ <= room_, "a staging area of ", room_, " bytes; expected ", taken_);
  return place;
}

void NcclCommunicator::send(int process, const DeviceRows& from, const Rows&) {
  sent_.push_back({process, from, dense_place(from)});
}
void NcclCommunicator::receive(int process, const DeviceRows& to) {
  received_.push_back({process, to, dense_place(to)});
}

void NcclCommunicator::end() {
  const auto in_rows = [](const Message& m) {
    return DeviceRows{m.dense, m.given.width, m.given.width, m.given.rows};
  };
  for (const Message& m : sent_)
    if (m.dense != m.given.data) copy_rows(m.given, in_rows(m), stream_);
  if (round_ < mailbox::kRounds)
    write_word(word(mailbox::ready(mine_, round_)), mailbox::token(call_, round_), stream_);
  library_.check(library_.group_start(), "ncclGroupStart");
  int result = exchange_tokens();
  for (const Message& m : sent_)
    if (result == 0)
      result = library_.send(m.dense, m.given.bytes(), kBytes, m.process, comm(), stream_);
  for (const Message& m : received_)
    if (result == 0)
      result = library_.receive(m.dense, m.given.bytes(), kBytes, m.process, comm(), stream_);
  const int ended = library_.group_end();
  library_.check(result, "ncclSend or ncclRecv");
  library_.check(ended, "ncclGroupEnd");
  for (const Message& m : received_)
    if (m.dense != m.given.data) copy_rows(in_rows(m), m.given, stream_);
}

// Ahead of the rows, so that tokens meet tokens whatever the calls are.
int NcclCommunicator::exchange_tokens() const {
  if (round_ >= mailbox::kRounds) return 0;
  std::set<int> to, from;
  for (const Message& m : sent_) to.insert(m.process);
  for (const Message& m : received_) from.insert(m.process);
  const uint32_t* own = word(mailbox::ready(mine_, round_));
  int result = 0;
  for (const int process : to)
    if (result == 0) result = library_.send(own, sizeof(*own), kBytes, process, comm(), stream_);
  for (const int process : from)
    if (result == 0)
      result = library_.receive(arrived(process, round_), sizeof(*own), kBytes, process, comm(),
                                stream_);
  return result;
}

NcclComm NcclCommunicator::comm() const {
  const NcclComm comm = comm_;
  if (comm == nullptr) throw NcclError("the communicator was aborted");
  return comm;
}

void NcclCommunicator::abort() {
  if (const NcclComm comm = comm_.exchange(nullptr)) static_cast<void>(library_.comm_abort(comm));
}

}  // namespace ringside
