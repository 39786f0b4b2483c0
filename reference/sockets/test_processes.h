// Several "processes" in a test: each a SocketRanks on a thread of its own, over socket pairs.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "reference/sockets/socket_ranks.h"

namespace ringside::testing {

class Processes {  // which host these ranks; all are connected
 public:
  explicit Processes(const std::vector<std::vector<int>>& hosted,
                     std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    std::vector<std::vector<SocketRanks::Link>> links(hosted.size());
    for (size_t a = 0; a < hosted.size(); ++a)
      for (size_t b = a + 1; b < hosted.size(); ++b)
        for (const int rank : hosted[a])
          for (const int peer : hosted[b]) {
            int ends[2];
            EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
            links[a].push_back({rank, peer, ends[0]});
            links[b].push_back({peer, rank, ends[1]});
          }
    for (size_t p = 0; p < hosted.size(); ++p)
      processes_.push_back(std::make_unique<SocketRanks>(hosted[p], links[p], timeout));
    for (const auto& of_process : links)
      for (const auto& link : of_process) close(link.fd);  // processes have their own
  }
  SocketRanks& operator[](size_t p) { return *processes_[p]; }
  void end(size_t p) { processes_[p].reset(); }

  // run(rank, communicator) on every rank of every process.
  template <typename Run>
  void run(Run run) {
    std::vector<std::thread> threads;
    for (const auto& process : processes_)
      threads.emplace_back([&run, &p = *process] {
        p.start(1, 7);
        p.run([&](int rank) { run(rank, p.of_rank(rank)); });
      });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<SocketRanks>> processes_;
};

}  // namespace ringside::testing
