#include "reference/schedule/run/virtual_ranks.h"

#include <algorithm>
#include <utility>

#include "reference/support/errors.h"

namespace ringside {

class VirtualRanks::Endpoint : public Communicator {
 public:
  Endpoint(VirtualRanks& ranks, int rank) : ranks_(ranks), rank_(rank) {}

  void begin(int) override {
    sends_.clear();
    receives_.clear();
  }
  void send(int to, std::span<const std::byte> data) override { sends_.push_back({to, data}); }
  void receive(int from, std::span<std::byte> data) override { receives_.push_back({from, data}); }

  void end() override {
    std::unique_lock lock(ranks_.mutex_);
    const auto taken = std::make_unique<bool[]>(sends_.size());
    for (size_t i = 0; i < sends_.size(); ++i)
      ranks_.sent_[rank_][sends_[i].first].push_back({sends_[i].second, &taken[i]});
    ranks_.changed_.notify_all();
    for (const auto& [from, data] : receives_) take(lock, from, data);
    for (size_t i = 0; i < sends_.size(); ++i) wait(lock, [&] { return taken[i]; });
  }

  void abort(const std::string& why) override {
    const std::lock_guard lock(ranks_.mutex_);
    if (!ranks_.aborted_) ranks_.aborted_ = why;
    ranks_.changed_.notify_all();
  }

 private:
  template <typename Ready>
  void wait(std::unique_lock<std::mutex>& lock, Ready ready) {
    ranks_.changed_.wait(lock, [&] { return ready() || ranks_.aborted_; });
    if (ranks_.aborted_) {
      for (auto& queue : ranks_.sent_[rank_]) queue.clear();  // their data may go
      throw Aborted(*ranks_.aborted_);
    }
  }

  void take(std::unique_lock<std::mutex>& lock, int from, std::span<std::byte> data) {
    auto& queue = ranks_.sent_[from][rank_];
    wait(lock, [&] { return !queue.empty(); });
    const Posted posted = queue.front();
    queue.pop_front();
    require(posted.data.size() == data.size(), "rank ", rank_, " receives ", data.size(),
            " bytes from rank ", from, ", which sends ", posted.data.size());
    std::copy(posted.data.begin(), posted.data.end(), data.begin());
    *posted.taken = true;
    ranks_.changed_.notify_all();
  }

  VirtualRanks& ranks_;
  int rank_;
  std::vector<std::pair<int, std::span<const std::byte>>> sends_;
  std::vector<std::pair<int, std::span<std::byte>>> receives_;
};

VirtualRanks::VirtualRanks(int cp_size) : sent_(cp_size, std::vector<std::deque<Posted>>(cp_size)) {
  for (int rank = 0; rank < cp_size; ++rank)
    endpoints_.push_back(std::make_unique<Endpoint>(*this, rank));
}
VirtualRanks::~VirtualRanks() = default;

Communicator& VirtualRanks::of_rank(int rank) { return *endpoints_[rank]; }

}  // namespace ringside
