// Ranks of several "processes", each a SocketRanks on a thread of its own, over socket pairs.
#include "reference/schedule/socket_ranks.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "reference/carry.h"
#include "reference/errors.h"
#include "reference/interrupt.h"
#include "reference/schedule/run_schedule.h"
#include "reference/schedule/virtual_ranks.h"
#include "reference/test_random_case.h"

namespace ringside {
namespace {

using std::chrono::milliseconds;
using testing::Random;

class Processes {  // which host these ranks; all are connected
 public:
  explicit Processes(const std::vector<std::vector<int>>& hosted,
                     milliseconds timeout = milliseconds(20000)) {
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

// --- whole passes

struct RankResult {
  RankOutput output;
  RankGradients gradients;

  std::vector<const std::vector<double>*> all() const {
    return {&output.out.data,   &output.lse.data,   &output.max_logit, &gradients.dq.data,
            &gradients.dk.data, &gradients.dv.data, &gradients.dsink};
  }
};

struct Problem {
  testing::Case c;
  Plan plan;
  PerRank q, k, v, dout;

  explicit Problem(Random& random)
      : c(random, testing::random_problem(random)), plan(testing::random_plan(random, c.problem)) {
    const auto q_shards = home_shards(plan, Operand::q), k_shards = home_shards(plan, Operand::kv);
    q = shard(plan.problem.layout_q, q_shards, c.q);
    k = shard(plan.problem.layout_k, k_shards, c.k);
    v = shard(plan.problem.layout_k, k_shards, c.v);
    dout = shard(plan.problem.layout_q, q_shards, c.dout);
  }
  RankResult run(int rank, Communicator& communicator) const {
    const RankInputs inputs{q[rank], k[rank], v[rank], c.options};
    RankResult result;
    const Schedule forward = make_schedule(plan, rank, Pass::forward);
    const Schedule backward = make_schedule(plan, rank, Pass::backward);
    result.output = attention_of_rank(plan, forward, inputs, communicator);
    result.gradients =
        attention_backward_of_rank(plan, backward, inputs, dout[rank], result.output, communicator);
    return result;
  }
};

std::vector<std::vector<int>> random_hosts(Random& random, int cp_size) {
  std::vector<std::vector<int>> hosted(1);
  for (int rank = 0; rank < cp_size; ++rank) {
    if (!hosted.back().empty() && random.coin()) hosted.emplace_back();
    hosted.back().push_back(rank);
  }
  return hosted;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() &&
         std::ranges::equal(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)));
}

TEST(SocketRanks, GiveTheBitsOfVirtualRanksHoweverTheyAreHosted) {
  Random random(67);
  for (int i = 0; i < 40; ++i) {
    const Problem problem(random);
    const int cp_size = problem.plan.cp_size();
    std::vector<RankResult> want(cp_size), got(cp_size);
    VirtualRanks ranks(cp_size);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < cp_size; ++rank)
      threads.emplace_back([&, rank] { want[rank] = problem.run(rank, ranks.of_rank(rank)); });
    for (std::thread& thread : threads) thread.join();
    Processes processes(random_hosts(random, cp_size));
    processes.run([&](int rank, Communicator& mine) { got[rank] = problem.run(rank, mine); });
    for (int rank = 0; rank < cp_size; ++rank)
      for (size_t x = 0; x < want[rank].all().size(); ++x)
        ASSERT_TRUE(same_bits(*want[rank].all()[x], *got[rank].all()[x])) << rank << " " << x;
  }
}

// --- messages

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
