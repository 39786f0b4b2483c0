// What keeps its shape for any lengths, and what does not.
#include "optimized/tables/capacity.h"

#include <gtest/gtest.h>

#include "reference/partition/partition.h"
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

}  // namespace
}  // namespace ringside
