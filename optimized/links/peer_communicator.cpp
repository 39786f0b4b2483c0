#include "optimized/links/peer_communicator.h"

#include <utility>

#include "optimized/links/mailbox.h"
#include "reference/support/errors.h"

namespace ringside {

PeerCommunicator::PeerCommunicator(int mine, std::vector<Peer> peers)
    : mine_(mine), peers_(std::move(peers)), sent_(peers_.size()), receives_(peers_.size()) {}

uint32_t* PeerCommunicator::arrived(int process, int round) const {
  return peers_[mine_].words->on_device(mailbox::arrived(process, round));
}

void PeerCommunicator::begin(int round, cudaStream_t stream) {
  require(round < mailbox::kRounds, "round ", round, " of ", mailbox::kRounds);
  round_ = round, stream_ = stream;
  for (auto& sent : sent_) sent.clear();
  receives_.assign(peers_.size(), false);
}

void PeerCommunicator::send(int process, const DeviceRows& from, const Rows& to) {
  sent_[process].push_back({from, to});
}
void PeerCommunicator::receive(int process, const DeviceRows&) { receives_[process] = true; }

// All say first that they are ready, so that nobody waits for one who waits.
void PeerCommunicator::end() {
  const int count = static_cast<int>(peers_.size());
  const uint32_t token = mailbox::token(call_, round_);
  for (int process = 0; process < count; ++process)
    if (receives_[process])
      write_word(peers_[process].words->on_device(mailbox::ready(mine_, round_)), token, stream_);
  for (int i = 1; i < count; ++i) send_all((mine_ + i) % count);
  for (int process = 0; process < count; ++process)
    if (receives_[process]) wait_for_word(arrived(process, round_), stream_);
}

// The word is put back before the receiver can write it again: it waits for these rows first.
void PeerCommunicator::send_all(int process) {
  if (sent_[process].empty()) return;
  const Peer& peer = peers_[process];
  uint32_t* ready = peers_[mine_].words->on_device(mailbox::ready(process, round_));
  wait_for_word(ready, stream_);
  write_word(ready, 0, stream_);
  for (const auto& [from, to] : sent_[process]) copy_rows(from, at(peer.workspace, to), stream_);
  write_word(peer.words->on_device(mailbox::arrived(mine_, round_)), mailbox::token(call_, round_),
             stream_);
}

void PeerCommunicator::abort() {
  const SharedWords& own = *peers_[mine_].words;
  for (int64_t i = mailbox::kHeader; i < own.size(); ++i) {
    uint32_t nothing = 0;
    own[i].compare_exchange_strong(nothing, 1);
  }
}

}  // namespace ringside
