// Processes of any hosting played on the host: bytes move as their parcels say, and land where the
// schedule of each rank expects them.
#include "optimized/tables/schedules/process_pass.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

Hosting random_hosting(Random& random, int cp_size, int mine) {
  Hosting hosting;
  for (int rank = 0; rank < cp_size; ++rank)
    if (rank == 0 || random.coin())
      hosting.processes.push_back({rank});
    else
      hosting.processes.back().push_back(rank);
  hosting.mine = mine % static_cast<int>(hosting.processes.size());
  return hosting;
}

using Route = std::tuple<int, int, int>;  // round, from process, to process

TEST(ProcessPass, BothEndsOfAParcelAgreeInOrderPlaceAndSize) {
  Random random(71);
  for (int i = 0; i < 80; ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    Hosting hosting = random_hosting(random, plan.cp_size(), 0);
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      std::map<Route, std::vector<Rows>> sent, received;
      for (size_t p = 0; p < hosting.processes.size(); ++p) {
        hosting.mine = static_cast<int>(p);
        const ProcessPass mine(plan, hosting, pass, cell_sizes(pass, 16, 8, 2));
        for (size_t act = 0; act < mine.acts().size(); ++act) {
          const int number = mine.acts()[act].round;
          for (const Parcel& parcel : mine.round(act).sends) {
            EXPECT_NE(parcel.process, hosting.mine);
            EXPECT_EQ(parcel.here.bytes(), parcel.there.bytes());
            sent[{number, hosting.mine, parcel.process}].push_back(parcel.there);
          }
          for (const Parcel& parcel : mine.round(act).receives) {
            EXPECT_LE(parcel.here.offset + parcel.here.bytes(), mine.bytes());
            received[{number, parcel.process, hosting.mine}].push_back(parcel.here);
          }
        }
      }
      EXPECT_EQ(sent, received);
    }
  }
}

// Nobody sends into what outlives a pass, nor moves for it.
TEST(ProcessPass, WhatIsKeptLiesApartAndMovesNothingElse) {
  Random random(79);
  for (int i = 0; i < 40; ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    const Hosting hosting = random_hosting(random, plan.cp_size(), random.integer(0, 3));
    const CellSizes sizes = cell_sizes(Pass::forward, 16, 8, 2);
    const ProcessPass plain(plan, hosting, Pass::forward, sizes);
    const ProcessPass keeps(plan, hosting, Pass::forward, sizes, {KeepKv::yes});
    const ProcessPass reads(plan, hosting, Pass::backward, cell_sizes(Pass::backward, 16, 8, 2),
                            {KeepKv::yes});
    EXPECT_EQ(plain.bytes(), keeps.bytes());
    for (int member = 0; member < static_cast<int>(hosting.hosted().size()); ++member) {
      EXPECT_EQ(plain.kept_bytes(member), 0);
      EXPECT_EQ(keeps.kept_bytes(member), reads.kept_bytes(member));
      const Schedule& schedule = keeps.hosted()[member];
      for (int b = 0; b < static_cast<int>(schedule.buffers.size()); ++b) {
        const ScheduledBuffer& buffer = schedule.buffers[b];
        if (buffer.area == kCaller || !schedule.areas[buffer.area].kept) continue;
        const Rows rows = keeps.rows(member, {b, 0, buffer.rows, buffer.heads}, 1);
        EXPECT_LE(rows.offset + rows.bytes(), keeps.kept_bytes(member));
      }
    }
  }
}

TEST(ProcessPass, AreasBeginBehindTheHeader) {
  const Problem problem{PackedLayout({0, 64}), PackedLayout({0, 64}), Mask{}, 4, 4};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 2), {"p2p"});
  const Hosting hosting{{{0}, {1}}, 0};
  const CellSizes sizes = cell_sizes(Pass::forward, 8, 8, 2);
  const ProcessPass plain(plan, hosting, Pass::forward, sizes);
  const ProcessPass behind(plan, hosting, Pass::forward, sizes, {KeepKv::no, 32});
  EXPECT_EQ(behind.bytes(), plain.bytes() + 256);  // areas begin at multiples of it
  for (size_t act = 0; act < plain.acts().size(); ++act) {
    const auto &here = plain.round(static_cast<int>(act)).sends,
               &there = behind.round(static_cast<int>(act)).sends;
    for (size_t i = 0; i < here.size(); ++i)
      EXPECT_EQ(there[i].there.offset, here[i].there.offset + 256);
  }
}

TEST(ProcessPass, AloneItCopiesAndSendsNothing) {
  Random random(73);
  for (int i = 0; i < 40; ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    Hosting hosting{{{}}, 0};
    for (int rank = 0; rank < plan.cp_size(); ++rank) hosting.processes[0].push_back(rank);
    const ProcessPass alone(plan, hosting, Pass::backward, cell_sizes(Pass::backward, 16, 8, 2));
    size_t messages = 0, copies = 0;
    for (const Schedule& schedule : alone.hosted())
      for (const Operation& op : schedule.operations) messages += op.sends.size();
    for (size_t act = 0; act < alone.acts().size(); ++act) {
      copies += alone.round(act).copies.size();
      EXPECT_TRUE(alone.round(act).sends.empty() && alone.round(act).receives.empty());
    }
    EXPECT_EQ(copies, messages);
    EXPECT_EQ(alone.staging_bytes(), 0);
  }
}

TEST(ProcessPass, RanksOfAProcessShareNoMemory) {
  const Problem problem{PackedLayout({0, 64}), PackedLayout({0, 64}), Mask{}, 4, 4};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 4), {"p2p"});
  const Hosting hosting{{{0, 1, 2}, {3}}, 0};
  const ProcessPass pass(plan, hosting, Pass::forward, cell_sizes(Pass::forward, 8, 8, 2));
  const auto results = [&](int member) {  // where they begin, and their bytes
    const int buffer = pass.hosted()[member].home_query_sums;
    return pass.rows(member, {buffer, 0, 16, {0, 4}}, 0);
  };
  for (int member = 0; member < 2; ++member)
    EXPECT_GE(results(member + 1).offset, results(member).offset + results(member).bytes());
}

// Head slices are what an all-to-all sends: rows apart from each other.
TEST(ProcessPass, StagesWhatIsNotDense) {
  Problem problem{PackedLayout({0, 64}), PackedLayout({0, 64}), Mask{}, 4, 4};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 2), {"a2a"});
  const Hosting hosting{{{0}, {1}}, 0};
  const ProcessPass forward(plan, hosting, Pass::forward, cell_sizes(Pass::forward, 8, 8, 2));
  EXPECT_EQ(forward.staging_bytes(), 3 * 32 * 2 * 8 * 2);  // q, k, v: 32 rows of two heads
  const Plan ring = build_plan(problem, place(problem, "zigzag", 2), {"p2p"});
  const ProcessPass dense(ring, hosting, Pass::forward, cell_sizes(Pass::forward, 8, 8, 2));
  EXPECT_EQ(dense.staging_bytes(), 0);
}

}  // namespace
}  // namespace ringside
