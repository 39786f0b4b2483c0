// Ranks of several "processes", each a SocketRanks on a thread of its own, over socket pairs.
#include "reference/sockets/socket_ranks.h"

#include <gtest/gtest.h>

#include <thread>

#include "reference/sockets/test_processes.h"
#include "reference/support/errors.h"
#include "reference/support/interrupt.h"

namespace ringside {
namespace {

using std::chrono::milliseconds;
using testing::Processes;

std::span<const std::byte> bytes(const std::vector<double>& x) {
  return std::as_bytes(std::span(x));
}
std::span<std::byte> bytes(std::vector<double>& x) { return std::as_writable_bytes(std::span(x)); }

void send(SocketRanks& process, int rank, int to, const std::vector<double>& x, int step = 0) {
  Communicator& mine = process.of_rank(rank);
  mine.begin(step);
  mine.send(to, bytes(x));
  mine.end();
}

void receive(SocketRanks& process, int rank, int from, std::vector<double>& x, int step = 0) {
  Communicator& mine = process.of_rank(rank);
  mine.begin(step);
  mine.receive(from, bytes(x));
  mine.end();
}

template <typename Error, typename Act>
std::string what(Act act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nholds no: " << part;
}

TEST(SocketRanks, MessagesBeyondAnyBufferCrossWithoutWaitingForEachOther) {
  Processes processes({{0}, {1, 2}});
  std::vector<std::vector<double>> got(3);
  processes.run([&](int rank, Communicator& mine) {
    const int peers[2] = {(rank + 1) % 3, (rank + 2) % 3};
    const std::vector<double> sent(1 << 19, rank);
    std::vector<double> received[2] = {std::vector<double>(1 << 19), std::vector<double>(1 << 19)};
    mine.begin(0);
    for (const int peer : peers) mine.send(peer, bytes(sent));
    for (const int i : {0, 1}) mine.receive(peers[i], bytes(received[i]));
    mine.end();
    for (const auto& x : received) got[rank].insert(got[rank].end(), {x.front(), x.back()});
  });
  EXPECT_EQ(got[0], (std::vector<double>{1, 1, 2, 2}));
  EXPECT_EQ(got[1], (std::vector<double>{2, 2, 0, 0}));
  EXPECT_EQ(got[2], (std::vector<double>{0, 0, 1, 1}));
}

TEST(SocketRanks, TheNthSendMeetsTheNthReceiveAndMayBeEmpty) {
  for (const auto& hosted : {std::vector<std::vector<int>>{{0, 1}}, {{0}, {1}}}) {
    Processes processes(hosted);
    std::vector<std::vector<double>> got{{0}, {}, {0, 0}};
    processes.run([&](int rank, Communicator& mine) {
      const std::vector<std::vector<double>> sent{{1}, {}, {2, 3}};
      mine.begin(0);
      for (const int i : {0, 1, 2})
        if (rank == 0)
          mine.send(1, bytes(sent[i]));
        else
          mine.receive(0, bytes(got[i]));
      mine.end();
    });
    EXPECT_EQ(got, (std::vector<std::vector<double>>{{1}, {}, {2, 3}}));
  }
}

TEST(SocketRanks, AMessageOfAnotherSizeNamesBothEnds) {
  for (const auto& hosted : {std::vector<std::vector<int>>{{0, 1}}, {{0}, {1}}}) {
    Processes processes(hosted);
    SocketRanks &first = processes[0], &last = processes[hosted.size() - 1];
    first.start(5, 7), last.start(5, 7);
    send(first, 0, 1, {1, 2}, 3);
    std::vector<double> x(1);
    const std::string text = what<PeerError>([&] { receive(last, 1, 0, x, 3); });
    expect_part(text,
                "rank 0 sends 16 bytes in step 3 of call 5; rank 1 expected 8 bytes in step 3");
    EXPECT_EQ(x[0], 0);
  }
}

TEST(SocketRanks, AMessageOfAnotherPlaceIsRefused) {
  const auto refusal = [](uint64_t call, uint64_t kind, int step) {
    Processes processes({{0}, {1}});
    processes[0].start(5, 7), processes[1].start(call, kind);
    send(processes[0], 0, 1, {1});
    std::vector<double> x(1);
    return what<PeerError>([&] { receive(processes[1], 1, 0, x, step); });
  };
  expect_part(refusal(6, 7, 0), "step 0 of call 5; rank 1 expected 8 bytes in step 0 of call 6.");
  expect_part(refusal(5, 7, 1), "step 0 of call 5; rank 1 expected 8 bytes in step 1 of call 5.");
  expect_part(refusal(5, 8, 0), "of another kind");
}

TEST(SocketRanks, AnEndedPeerIsNamed) {
  Processes processes({{0}, {1}});
  processes.end(1);
  std::vector<double> x(1);
  try {
    receive(processes[0], 0, 1, x, 4);
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_EQ(error.ranks, std::vector<int>{1});
    EXPECT_EQ(error.kind, PeerError::Kind::elsewhere);
    EXPECT_EQ(processes[0].waiting()[0].step, 4);
    expect_part(error.what(), "rank 1 closed its connection to rank 0");
  }
}

TEST(SocketRanks, ASilentPeerIsNamedAfterTheTimeout) {
  Processes processes({{0}, {1}, {2}}, milliseconds(150));
  send(processes[2], 2, 0, {1}, 2);
  std::vector<double> x(1), y(1);
  Communicator& mine = processes[0].of_rank(0);
  mine.begin(2);
  mine.receive(1, bytes(x));
  mine.receive(2, bytes(y));
  const auto begin = std::chrono::steady_clock::now();
  try {
    mine.end();
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_EQ(error.ranks, std::vector<int>{1});
    EXPECT_EQ(error.kind, PeerError::Kind::silent);
    expect_part(error.what(), "rank 0 heard nothing of rank 1 for 0.15 s");
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(150));
  EXPECT_EQ(processes[0].waiting()[0].peers, std::vector<int>{1});
}

TEST(SocketRanks, AnAbortEndsAllThatWait) {
  Processes processes({{0, 1}, {2}});
  std::string heard[3];
  std::thread of_2([&] {
    std::vector<double> x(1);
    heard[2] = what<PeerError>([&] { receive(processes[1], 2, 0, x); });
  });
  const auto wait = [&](int rank) {  // for the other process, for a rank of this one
    std::vector<double> x(1);
    heard[rank] = what<Aborted>([&] { receive(processes[0], rank, rank == 0 ? 2 : 0, x); });
  };
  std::thread of_0(wait, 0), of_1(wait, 1);
  std::this_thread::sleep_for(milliseconds(50));
  processes[0].abort("enough");
  processes[0].abort("more than enough");
  of_0.join(), of_1.join(), of_2.join();
  EXPECT_EQ(heard[0], "enough");
  EXPECT_EQ(heard[1], "enough");
  expect_part(heard[2], "rank 0 closed its connection to rank 2");
  EXPECT_EQ(what<Aborted>([&] { processes[0].of_rank(0).begin(0); }), "enough");
}

TEST(SocketRanks, TheReasonOfTheRankThatFailedComesOut) {
  Processes processes({{0, 1, 2}});
  const auto run = [&](int rank) {
    if (rank == 1) throw InvalidArgument("rank 1 has had enough");
    std::vector<double> x(1);
    receive(processes[0], rank, 1, x);
  };
  EXPECT_EQ(what<InvalidArgument>([&] { processes[0].run(run); }), "rank 1 has had enough");
}

TEST(SocketRanks, WaitingIsInterrupted) {
  for (const auto& hosted : {std::vector<std::vector<int>>{{0, 1}}, {{0}, {1}}}) {
    Processes processes(hosted);
    const InterruptScope scope([] { return true; });
    std::vector<double> x(1);
    EXPECT_THROW(receive(processes[0], 0, 1, x), Interrupted);
  }
}

TEST(SocketRanks, ARankWithoutASocketIsRefused) {
  Processes processes({{0}, {1}});
  expect_part(what<InvalidArgument>([&] { send(processes[0], 0, 2, {1}); }),
              "rank 0 has no socket to rank 2; expected one");
  expect_part(what<InvalidArgument>([&] { processes[0].of_rank(1); }),
              "rank 1 is not one of those");
}

}  // namespace
}  // namespace ringside
