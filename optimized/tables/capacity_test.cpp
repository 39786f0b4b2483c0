// What keeps its shape for any lengths, and what does not.
#include "optimized/tables/capacity.h"

#include <gtest/gtest.h>

#include "reference/partition/partition.h"
#include "reference/schedule/schedule.h"
#include "reference/support/errors.h"
#include "reference/test_support/test_errors.h"

namespace ringside {
namespace {

using testing::expect_error;

Capacity capacity(const char* partition, const char* comm) {
  Capacity c;
  c.partition = partition;
  c.comm.name = comm;
  c.comm.a2a_size = c.comm.name == "a2a+p2p" ? 2 : 0;
  c.cp_size = 4;
  c.max_rows_q = c.max_rows_k = 64;
  return c;
}

TEST(StandInPlan, IsOfAClosedFormThatMovesWholeBuffers) {
  int refused = 0;
  for (const NamedPartition& p : partitions())
    for (const NamedTransport& t : transports()) try {
        EXPECT_EQ(stand_in_plan(capacity(p.name, t.name)).comm, t.name);
        EXPECT_TRUE(p.rule.is_closed_form() && t.moves_whole_buffers) << p.name << t.name;
      } catch (const Unsupported&) {
        EXPECT_FALSE(p.rule.is_closed_form() && t.moves_whole_buffers) << p.name << t.name;
        ++refused;
      }
  EXPECT_EQ(refused, 10) << "balanced over five transports, and fetch of five partitions";
}

TEST(StandInPlan, NamesTheNearest) {
  expect_error<Unsupported>([] { stand_in_plan(capacity("balanced", "p2p")); },
                            {"partition=\"balanced\"", "Nearest supported: partition=\"zigzag\""});
  expect_error<Unsupported>([] { stand_in_plan(capacity("zigzag", "fetch")); },
                            {"comm=\"fetch\"", "Nearest supported: comm=\"all_gather\""});
}

// Whatever the stand-in plan's rows look like: a copy of its own puts what was gathered in place,
// and one collects what goes home.
TEST(StandInPlan, NoMessageLandsWhereRowsOfRanksAreGathered) {
  for (const NamedPartition& p : partitions())
    for (const char* comm : {"all_gather", "a2a", "a2a+p2p"}) {
      if (!p.rule.is_closed_form()) continue;
      Capacity c = capacity(p.name, comm);
      c.num_heads = c.num_kv_heads = 4;
      const Plan plan = stand_in_plan(c);
      for (const Pass pass : {Pass::forward, Pass::backward})
        for (const Schedule& schedule : make_schedules(plan, pass)) {
          int gathered = 0;
          for (const Operation& op : schedule.operations) {
            const bool rings = c.comm.a2a_size == 2 && op.step > 0;  // whole buffers go on
            for (const auto* messages : {&op.sends, &op.receives})
              for (const ScheduledMessage& m : *messages)
                EXPECT_TRUE(rings || m.block.rows <= rank_rows(c, 64)) << p.name << comm;
            gathered += op.kind != OperationKind::exchange && !op.runs.empty();
          }
          EXPECT_GE(gathered, 2) << p.name << comm << schedule.rank;
        }
    }
}

}  // namespace
}  // namespace ringside
