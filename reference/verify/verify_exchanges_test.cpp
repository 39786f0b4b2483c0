// A proved plan with ONE message made wrong must be refused, and the error must name it.
#include <gtest/gtest.h>

#include <utility>

#include "reference/test_support/test_errors.h"
#include "reference/transport/transport.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

using testing::expect_error;

// One sequence over 3 ranks, of 2 rows as a rule; 3 query and 3 kv heads; everybody sees all.
Plan all_seen_plan(const std::string& comm, int tokens = 6) {
  const PackedLayout layout({0, tokens});
  const Problem problem{layout, layout, Mask::full(), 3, 3};
  return build_plan(problem, place(problem, "contiguous", 3), {comm});
}

Step& step_at(Plan& plan, int rank, int i) { return plan.steps_of_rank[rank][i]; }
std::vector<Message>& sends(Plan& plan, int rank, int i) {
  return step_at(plan, rank, i).before.sends;
}
std::vector<Message>& receives(Plan& plan, int rank, int i) {
  return step_at(plan, rank, i).before.receives;
}

struct WrongMessage {
  const char* name;
  const char* comm;
  void (*apply)(Plan&);
  std::vector<const char*> parts;  // of the message
};
void PrintTo(const WrongMessage& wrong, std::ostream* text) { *text << wrong.name; }

class CorruptExchange : public ::testing::TestWithParam<WrongMessage> {};

TEST_P(CorruptExchange, IsRefusedByName) {
  const auto& [name, comm, apply, parts] = GetParam();
  Plan plan = all_seen_plan(comm);
  ASSERT_NO_THROW(verify(plan));
  apply(plan);
  for (const char* part : parts) expect_error<PlanError>([&] { verify(plan); }, {part});
}

TEST(ByPosition, AnyReceiveMayLand) {
  for (const char* comm : {"p2p", "all_gather", "a2a"}) {
    Plan plan = all_seen_plan(comm);
    for (int rank = 0; rank < 3; ++rank)
      for (int i = 0; i < plan.num_steps(); ++i)
        for (Message& m : receives(plan, rank, i)) m.row = kByPosition;
    EXPECT_NO_THROW(verify(plan)) << comm;
  }
}

const WrongMessage kWrongMessages[] = {
    // Messages without a partner.
    {"ASendIsMissing",
     "p2p",
     [](Plan& p) { sends(p, 1, 1).clear(); },
     {"rank 2 step 1 receives from 1", "what meets it is: rank 1 step 2 sends to 2"}},
    {"ASendIsMissingInTheLastStep",
     "p2p",
     [](Plan& p) { sends(p, 1, 2).clear(); },
     {"rank 2 step 2 receives from 1", "deadlock"}},
    {"AReceiveIsMissing",
     "p2p",
     [](Plan& p) { receives(p, 1, 1).clear(); },
     {"rank 1 step 1: the resident kv buffer has 6 rows x heads, of which only 0 arrive"}},
    {"AReceiveIsMissingInTheLastStep",
     "p2p",
     [](Plan& p) {
       receives(p, 1, 2).clear();
       step_at(p, 1, 2).kv = {};
       step_at(p, 1, 2).tiles = 0;
     },
     {"rank 0 step 2 sends to 1", "deadlock"}},
    {"BothEndsAreMissing",
     "p2p",
     [](Plan& p) {
       sends(p, 0, 1).clear();
       receives(p, 1, 1).clear();
     },
     {"rank 1 step 1: the resident kv buffer has 6 rows x heads, of which only 0 arrive"}},
    {"ASendToOneselfIsMissing",
     "all_gather",
     [](Plan& p) { sends(p, 2, 0).pop_back(); },
     {"rank 2 step 0 receives from 2", "deadlock"}},
    {"AReceiveFromOneselfIsMissing",
     "all_gather",
     [](Plan& p) { receives(p, 2, 0).pop_back(); },
     {"rank 2 step 0 sends to 2", "deadlock"}},
    {"ASendTwice",
     "p2p",
     [](Plan& p) { sends(p, 0, 1).push_back(sends(p, 0, 1)[0]); },
     {"rank 0 step 1 sends to 1"}},
    {"AMessageTwice",
     "p2p",
     [](Plan& p) {
       sends(p, 0, 1).push_back(sends(p, 0, 1)[0]);
       receives(p, 1, 1).push_back(receives(p, 1, 1)[0]);
     },
     {"rank 1 step 1 receives from 0", "onto rows that peer 0 fills too"}},
    // The wrong partner.
    {"PeersAreSwapped",
     "all_gather",
     [](Plan& p) { std::swap(receives(p, 1, 0)[0].peer, receives(p, 1, 0)[2].peer); },
     {"rank 1 step 0 receives from 2", "row 0 claims global row 0 but global row 4 arrives"}},
    {"ASendGoesTheOtherWay",
     "p2p",
     [](Plan& p) { sends(p, 0, 1)[0].peer = 2; },
     {"rank 0 step 1 sends to 2", "deadlock"}},
    {"AReceiveWaitsForTheOther",
     "p2p",
     [](Plan& p) { receives(p, 0, 1)[0].peer = 1; },
     {"rank 0 step 1 receives from 1", "deadlock"}},
    {"ASendToOneselfUnreceived",
     "p2p",
     [](Plan& p) { sends(p, 0, 1)[0].peer = 0; },
     {"rank 0 step 1 sends to 0", "deadlock"}},
    {"APeerThatIsNoRank",
     "p2p",
     [](Plan& p) { sends(p, 0, 1)[0].peer = 3; },
     {"rank 0 step 1 sends to 3", "there are 3 ranks"}},
    {"ANegativePeer",
     "p2p",
     [](Plan& p) { receives(p, 2, 1)[0].peer = -1; },
     {"rank 2 step 1 receives from -1", "there are 3 ranks"}},
    {"TheWholeRingReversed",
     "p2p",
     [](Plan& p) {
       for (int rank = 0; rank < 3; ++rank)
         for (int i = 1; i < 3; ++i) {
           sends(p, rank, i)[0].peer = (rank + 2) % 3;
           receives(p, rank, i)[0].peer = (rank + 1) % 3;
         }
     },
     {"rank 0 step 1 receives from 1", "claims global row 4 but global row 2 arrives"}},
    {"OneStepOfTheRingReversed",
     "p2p",
     [](Plan& p) {
       for (int rank = 0; rank < 3; ++rank) {
         sends(p, rank, 2)[0].peer = (rank + 2) % 3;
         receives(p, rank, 2)[0].peer = (rank + 1) % 3;
       }
     },
     {"rank 0 step 2 receives from 1", "claims global row 2 but global row 0 arrives"}},
    // The wrong block.
    {"ASendOfTheWrongRow",
     "all_gather",
     [](Plan& p) { ++sends(p, 1, 0)[0].row; },
     {"rank 1 step 0 sends to 0", "rows [1, 3)", "the buffer has 2 rows"}},
    {"AReceiveIntoTheWrongRow",
     "all_gather",
     [](Plan& p) { ++receives(p, 1, 0)[0].row; },
     {"rank 1 step 0 receives from 0", "row 1 claims global row 1 but global row 0 arrives"}},
    {"AReceiveBeforeTheBuffer",
     "all_gather",
     [](Plan& p) { receives(p, 1, 0)[0].row = -2; },
     {"rank 1 step 0 receives from 0", "rows [-2, 0)", "the buffer has 6 rows"}},
    // By position.
    {"ASendByPosition",
     "all_gather",
     [](Plan& p) { sends(p, 1, 0)[0].row = kByPosition; },
     {"rank 1 step 0 sends to 0: kv 2 rows by position", "only a receive can do without a row"}},
    {"ARowByPositionThatTheBufferDoesNotHold",
     "all_gather",
     [](Plan& p) {
       p.shards.push_back({{0, 1, 1, 0, 5}});
       step_at(p, 1, 0).kv.shard = static_cast<int>(p.shards.size()) - 1;
       receives(p, 1, 0)[0].row = kByPosition;
       receives(p, 1, 0)[1].row = 1, receives(p, 1, 0)[2].row = 3;
     },
     {"rank 1 step 0 receives from 0", "global row 0 arrives, which the buffer does not hold"}},
    {"ByPositionOntoRowsOfAnother",
     "all_gather",
     [](Plan& p) {
       sends(p, 1, 0)[0].rows = receives(p, 0, 0)[1].rows = 1;
       receives(p, 0, 0)[1].row = kByPosition;
       sends(p, 1, 0).push_back(sends(p, 1, 0)[0]);
       receives(p, 0, 0).push_back(receives(p, 0, 0)[1]);
     },
     {"rank 0 step 0 receives from 1", "onto rows that peer 1 fills too"}},
    {"FewerRowsByPosition",
     "all_gather",
     [](Plan& p) {
       sends(p, 1, 0)[0].rows = receives(p, 0, 0)[1].rows = 1;
       receives(p, 0, 0)[1].row = kByPosition;
     },
     {"rank 0 step 0: the resident kv buffer has 18 rows x heads, of which only 15 arrive"}},
    {"FewerRowsSent",
     "all_gather",
     [](Plan& p) { sends(p, 1, 0)[0].rows = 1; },
     {"rank 0 step 0 receives from 1", "rows [2, 4)", "what meets it is: rank 1 step 0 sends to 0",
      "rows [0, 1)"}},
    {"FewerRowsAtBothEnds",
     "all_gather",
     [](Plan& p) { sends(p, 1, 0)[0].rows = receives(p, 0, 0)[1].rows = 1; },
     {"rank 0 step 0: the resident kv buffer has 18 rows x heads, of which only 15 arrive"}},
    {"NoRows",
     "all_gather",
     [](Plan& p) { sends(p, 1, 0)[0].rows = receives(p, 0, 0)[1].rows = 0; },
     {"step 0", "rows ["}},
    {"FewerHeadsSent",
     "all_gather",
     [](Plan& p) {
       sends(p, 1, 0)[0].heads = {0, 2};
     },
     {"rank 0 step 0 receives from 1", "heads [0, 3)", "what meets it is", "heads [0, 2)"}},
    {"FewerHeadsAtBothEnds",
     "all_gather",
     [](Plan& p) {
       sends(p, 1, 0)[0].heads = receives(p, 0, 0)[1].heads = {0, 2};
     },
     {"rank 0 step 0", "has 18 rows x heads, of which only 16 arrive"}},
    {"HeadsThatTheSenderLacks",
     "p2p",
     [](Plan& p) {
       sends(p, 0, 1)[0].heads = {1, 4};
     },
     {"rank 0 step 1 sends to 1", "heads [1, 4)", "holds heads [0, 3)"}},
    {"HeadsThatTheReceiverLacks",
     "a2a",
     [](Plan& p) {
       receives(p, 1, 0)[0].heads = {0, 1};
     },
     {"rank 1 step 0 receives from 0", "heads [0, 1)", "holds heads [1, 2)"}},
    {"OtherHeadsSent",
     "a2a",
     [](Plan& p) {
       sends(p, 0, 0)[2].heads = {2, 3};
     },
     {"rank 1 step 0 receives from 0", "what meets it is: rank 0 step 0 sends to 1",
      "heads [2, 3)"}},
    {"TwoPeersOntoTheSameRows",
     "all_gather",
     [](Plan& p) {
       receives(p, 0, 0)[2].row = 2;  // where rank 1's rows lie
     },
     {"rank 0 step 0 receives from 2", "claims global row 2 but global row 4 arrives"}},
    {"AnotherOperandSent",
     "a2a",
     [](Plan& p) { sends(p, 0, 0)[2].operand = Operand::kv; },
     {"rank 0 step 0 sends to 1: kv rows", "the other end never comes: deadlock"}},
    // What the exchange is called.
    {"MessagesWithoutAKind",
     "p2p",
     [](Plan& p) { p.steps_of_rank[1][1].before.kind = ExchangeKind::none; },
     {"rank 1 step 1 names its exchange none and has 1 sends and 1 receives"}},
    {"AKindWithoutMessages",
     "p2p",
     [](Plan& p) { p.steps_of_rank[1][0].before.kind = ExchangeKind::ring_shift; },
     {"rank 1 step 0 names its exchange ring_shift and has 0 sends and 0 receives"}},
    {"RanksThatDisagreeOnTheKind",
     "p2p",
     [](Plan& p) { p.steps_of_rank[1][1].before.kind = ExchangeKind::all_gather; },
     {"rank 1 step 1 names its exchange all_gather, another rank ring_shift"}},
    {"ARingWithTwoNeighbours",
     "a2a",
     [](Plan& p) {
       for (auto& steps : p.steps_of_rank) steps[0].before.kind = ExchangeKind::ring_shift;
     },
     {"rank 0 step 0 is a ring_shift with more than one neighbour on a side"}},
    // The wrong time.
    {"AMessageCrossesSteps",
     "p2p",
     [](Plan& p) {
       receives(p, 1, 2).insert(receives(p, 1, 2).begin(), receives(p, 1, 1)[0]);
       receives(p, 1, 1).clear();
     },
     {"rank 1 step 1: the resident kv buffer has 6 rows x heads, of which only 0 arrive"}},
    {"AMessageComesAStepTooLate",
     "p2p",
     [](Plan& p) {
       receives(p, 1, 2).insert(receives(p, 1, 2).begin(), receives(p, 1, 1)[0]);
       receives(p, 1, 1).clear();
       step_at(p, 1, 1).kv = {};
       step_at(p, 1, 1).tiles = 0;
       sends(p, 1, 2).clear();
     },
     {"rank 1 step 2 receives from 0", "what meets it is: rank 0 step 1 sends to 1"}},
    {"TwoStepsSwappedOnOneRank",
     "p2p",
     [](Plan& p) { std::swap(step_at(p, 1, 1), step_at(p, 1, 2)); },
     {"rank 1 step 1 receives from 0", "claims global row 4 but global row 0 arrives"}},
    {"OneRankStartsLate",
     "p2p",
     [](Plan& p) {
       for (int rank = 0; rank < 3; ++rank) {  // the others compute first, then exchange
         const Step idle = step_at(p, rank, rank == 1 ? 0 : 2);
         auto& steps = p.steps_of_rank[rank];
         steps.insert(rank == 1 ? steps.begin() + 1 : steps.end(), idle);
         Step& added = rank == 1 ? steps[1] : steps.back();
         added.before = {};
         added.tiles = 0;
       }
     },
     {"receives from", "what meets it is"}},
    // What buffers claim.
    {"ABufferClaimsOtherRows",
     "p2p",
     [](Plan& p) { step_at(p, 1, 1).kv.shard = p.home_kv[2].shard; },
     {"rank 1 step 1 receives from 0", "row 0 claims global row 4 but global row 0 arrives"}},
    {"ABufferAppearsFromNowhere",
     "p2p",
     [](Plan& p) { step_at(p, 1, 0).kv.shard = p.home_kv[2].shard; },
     {"rank 1 step 0: the resident kv buffer has 6 rows x heads, of which only 0 arrive"}},
    {"AQueryBufferAppearsFromNowhere",
     "p2p",
     [](Plan& p) { step_at(p, 2, 1).q.shard = p.home_q[0].shard; },
     {"rank 2 step 1: the resident q buffer has 6 rows x heads, of which only 0 arrive"}},
    {"ABufferSlicesItsHeads",
     "p2p",
     [](Plan& p) {
       step_at(p, 0, 0).kv.heads = {0, 2};
     },
     {"rank 0 step 0: the resident kv buffer has 4 rows x heads, of which only 0 arrive"}},
    {"ABufferSentOnAfterItIsGone",
     "p2p",
     [](Plan& p) {
       step_at(p, 1, 1).kv = {};
       step_at(p, 1, 1).tiles = 0;
       receives(p, 1, 1).clear();
       sends(p, 0, 1).clear();
     },
     {"rank 1 step 2 sends to 2", "the buffer has 0 rows"}},
};

INSTANTIATE_TEST_SUITE_P(Each, CorruptExchange, ::testing::ValuesIn(kWrongMessages),
                         [](const auto& corruption) { return corruption.param.name; });

TEST(VerifyExchanges, CountsMessages) {
  EXPECT_EQ(verify_exchanges(all_seen_plan("p2p")), 6);
  EXPECT_EQ(verify_exchanges(all_seen_plan("all_gather")), 9);
  EXPECT_EQ(verify_exchanges(all_seen_plan("a2a")), 18);
}

// The first and the last row of four are those that come, two between them have changed places.
TEST(VerifyExchanges, LooksAtEachRowOfAMessage) {
  Plan plan = all_seen_plan("p2p", 12);
  ASSERT_NO_THROW(verify_exchanges(plan));
  Shard claimed;
  for (const int pos : {0, 2, 1, 3}) append(claimed, 0, pos, 1, 1);
  plan.shards.push_back(claimed);
  step_at(plan, 1, 1).kv.shard = static_cast<int>(plan.shards.size()) - 1;
  expect_error<PlanError>([&] { verify_exchanges(plan); },
                          {"row 1 claims global row 2 but global row 1 arrives"});
}

// A group of messages is posted at once, so a ring in which all send first is no deadlock; two
// ranks of which each waits for a message that the other would send one step later is one.
TEST(VerifyExchanges, FindsACircleOfWaiting) {
  Plan plan = all_seen_plan("p2p");
  for (const int rank : {0, 1, 2}) {
    sends(plan, rank, 1).swap(sends(plan, rank, 2));
    sends(plan, rank, 1).clear();
  }
  expect_error<PlanError>([&] { verify_exchanges(plan); },
                          {"rank 0 step 1 receives from 2", "deadlock"});
}

}  // namespace
}  // namespace ringside
