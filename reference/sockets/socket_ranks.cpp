#include "reference/sockets/socket_ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "reference/support/errors.h"
#include "reference/support/interrupt.h"
#include "reference/support/parallel.h"

namespace ringside {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = PeerError::Kind;
constexpr auto kListenEvery = std::chrono::milliseconds(20);  // for whoever interrupts

}  // namespace

class SocketRanks::Endpoint : public Communicator {
 public:
  Endpoint(SocketRanks& ranks, int rank) : ranks_(ranks), waiting_{rank, -1, {}} {}

  void connect(int peer, int fd) {
    require(stream_to(peer) == nullptr, "rank ", rank(), " has two sockets to rank ", peer,
            "; expected one");
    streams_.push_back(std::make_unique<SocketStream>(fd, rank(), peer));
  }

  void begin(int step) override {
    for (const auto& stream : streams_) stream->clear();
    posted_.clear();
    taken_.clear();
    place_ = ranks_.place_;
    place_.step = step;
    wait_for({});
  }

  void send(int to, std::span<const std::byte> data) override {
    if (SocketStream* stream = stream_to(to)) return stream->send(place_, data);
    require_hosted(to);
    posted_.push_back({to, {{place_, data.size()}, {data.begin(), data.end()}}});
  }

  void receive(int from, std::span<std::byte> data) override {
    if (SocketStream* stream = stream_to(from)) return stream->receive(place_, data);
    require_hosted(from);
    taken_.push_back({from, data});
  }

  // Letters are posted before anything waits, so that no rank of this process waits for another one
  // to have taken them.
  void end() override {
    post();
    exchange();
    for (const auto& [from, data] : taken_) take(from, data);
    wait_for({});
  }

  void abort(const std::string& why) override { ranks_.abort(why); }
  void shut_down() {
    for (const auto& stream : streams_) stream->shut_down();
  }
  const Waiting& waiting() const { return waiting_; }  // under the lock, as the next
  void forget_step() { waiting_ = {rank(), -1, {}}; }

 private:
  int rank() const { return waiting_.rank; }

  SocketStream* stream_to(int peer) {
    for (const auto& stream : streams_)
      if (stream->peer() == peer) return stream.get();
    return nullptr;
  }

  void require_hosted(int peer) {
    require(std::ranges::count(ranks_.hosted_, peer) == 1, "rank ", rank(),
            " has no socket to rank ", peer, "; expected one, or that this process hosts it");
  }

  void wait_for(std::vector<int> peers) {
    const std::lock_guard lock(ranks_.mutex_);
    ranks_.throw_if_aborted();
    waiting_.step = place_.step;
    waiting_.peers = std::move(peers);
  }

  void post() {
    const std::lock_guard lock(ranks_.mutex_);
    for (auto& [to, letter] : posted_) ranks_.letters_[{rank(), to}].push_back(std::move(letter));
    ranks_.changed_.notify_all();
  }

  void take(int from, std::span<std::byte> data) {
    std::unique_lock lock(ranks_.mutex_);
    auto& queue = ranks_.letters_[{from, rank()}];
    while (true) {
      const bool ready = ranks_.changed_.wait_for(
          lock, kListenEvery, [&] { return !queue.empty() || ranks_.aborted_.has_value(); });
      ranks_.throw_if_aborted();
      if (ready) break;
      lock.unlock();
      check_interrupt();
      lock.lock();
    }
    const Letter letter = std::move(queue.front());
    queue.pop_front();
    const MessageHeader expected{place_, data.size()};
    if (letter.header != expected)
      throw PeerError(difference(rank(), from, expected, letter.header), Kind::elsewhere, {from});
    std::ranges::copy(letter.data, data.begin());
  }

  void exchange() {
    const auto begin = Clock::now();
    std::vector<Clock::time_point> moved(streams_.size(), begin);
    while (true) {
      const std::vector<int> peers = move(moved);
      if (peers.empty()) return;
      wait_for(peers);
      sleep_until_some_can_move();
      check_interrupt();
    }
  }

  // Moves what can be moved; the peers of streams that have more. `moved` is when each last moved.
  std::vector<int> move(std::vector<Clock::time_point>& moved) {
    std::vector<int> busy, silent;
    const auto now = Clock::now();
    for (size_t i = 0; i < streams_.size(); ++i) {
      SocketStream& stream = *streams_[i];
      if (stream.move()) moved[i] = now;
      if (!stream.problem().empty()) fail(stream.problem(), Kind::elsewhere, {stream.peer()});
      if (!stream.sends() && !stream.receives()) continue;
      busy.push_back(stream.peer());
      if (now - moved[i] > ranks_.timeout_) silent.push_back(stream.peer());
    }
    if (!silent.empty()) fail_silent(silent);
    return busy;
  }

  void fail_silent(const std::vector<int>& silent) {
    std::string who;
    for (const int peer : silent) who += concat(who.empty() ? "" : ", ", peer);
    fail(concat("rank ", rank(), " heard nothing of rank ", who, " for ",
                static_cast<double>(ranks_.timeout_.count()) / 1000, " s"),
         Kind::silent, silent);
  }

  [[noreturn]] void fail(const std::string& what, Kind kind, std::vector<int> peers) {
    {
      const std::lock_guard lock(ranks_.mutex_);
      ranks_.throw_if_aborted();  // which closes sockets
    }
    throw PeerError(what, kind, std::move(peers));
  }

  void sleep_until_some_can_move() {
    std::vector<pollfd> all{{ranks_.wake_[0], POLLIN, 0}};
    for (const auto& stream : streams_) {
      const int events = (stream->sends() ? POLLOUT : 0) | (stream->receives() ? POLLIN : 0);
      if (events != 0) all.push_back({stream->fd(), static_cast<short>(events), 0});
    }
    poll(all.data(), all.size(), static_cast<int>(kListenEvery.count()));
  }

  SocketRanks& ranks_;
  Waiting waiting_;
  MessagePlace place_;
  std::vector<std::unique_ptr<SocketStream>> streams_;
  std::vector<std::pair<int, Letter>> posted_;
  std::vector<std::pair<int, std::span<std::byte>>> taken_;
};

SocketRanks::SocketRanks(const std::vector<int>& hosted, const std::vector<Link>& links,
                         std::chrono::milliseconds timeout)
    : hosted_(hosted), timeout_(timeout) {
  for (const int rank : hosted) endpoints_.push_back(std::make_unique<Endpoint>(*this, rank));
  for (const auto& [rank, peer, fd] : links)
    static_cast<Endpoint&>(of_rank(rank)).connect(peer, fd);
  require(pipe(wake_) == 0, "this process has no descriptors left; expected two more. Close some");
  for (const int end : wake_) fcntl(end, F_SETFD, FD_CLOEXEC);
}

SocketRanks::~SocketRanks() {
  for (const int end : wake_) close(end);
}

void SocketRanks::start(uint64_t call, uint64_t kind) {
  const std::lock_guard lock(mutex_);
  place_ = {call, kind, 0};
  for (const auto& endpoint : endpoints_) endpoint->forget_step();
}

Communicator& SocketRanks::of_rank(int rank) {
  const auto found = std::ranges::find(hosted_, rank);
  require(found != hosted_.end(), "rank ", rank, " is not one of those that this process hosts");
  return *endpoints_[found - hosted_.begin()];
}

void SocketRanks::run(const std::function<void(int)>& run) {
  std::atomic<size_t> next{0};
  std::vector<std::exception_ptr> own(hosted_.size());  // reasons
  std::exception_ptr of_others;
  try {
    run_together(static_cast<int>(hosted_.size()), [&] {
      const size_t i = next++;
      try {
        run(hosted_[i]);
      } catch (const Aborted&) {
        throw;
      } catch (const PeerError& error) {
        own[i] = std::current_exception();
        lose(error);
      } catch (const std::exception& error) {
        own[i] = std::current_exception();
        abort(error.what());
      }
    });
  } catch (...) {
    of_others = std::current_exception();
  }
  for (const auto& reason : own)
    if (reason) std::rethrow_exception(reason);
  if (of_others) std::rethrow_exception(of_others);
}

void SocketRanks::abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  aborted_ = why;
  const char wake = 1;
  [[maybe_unused]] const auto written = write(wake_[1], &wake, 1);  // never full
  changed_.notify_all();
  for (const auto& endpoint : endpoints_) endpoint->shut_down();
}

std::optional<std::string> SocketRanks::aborted() const {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

void SocketRanks::throw_if_aborted() const {
  if (aborted_) throw Aborted(*aborted_);
}

void SocketRanks::lose(const PeerError& error) {
  {
    const std::lock_guard lock(mutex_);
    if (!lost_) lost_ = error;
  }
  abort(error.what());
}

std::optional<PeerError> SocketRanks::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

std::vector<SocketRanks::Waiting> SocketRanks::waiting() const {
  const std::lock_guard lock(mutex_);
  std::vector<Waiting> all;
  for (const auto& endpoint : endpoints_) all.push_back(endpoint->waiting());
  return all;
}

}  // namespace ringside
