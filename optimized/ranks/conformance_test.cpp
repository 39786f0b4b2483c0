// Ranks with arrays of their own, in one process and in two, against the CPU: random plans, and
// capacities whose lengths come on the device. Every array lies between canaries, rows of nobody
// and workspaces hold NaN. Between ranks of a process messages are copies; two processes are two
// threads here, which exchange by peer copies. Skips without a device.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <tuple>

#include "optimized/ranks/test_ranks_run.h"
#include "optimized/tables/schedules/final_items.h"
#include "optimized/tables/schedules/last_sum.h"

namespace ringside {
namespace {

using testing::Found;
using testing::halves;
using testing::has_device;
using testing::ProcessOfRanks;
using testing::Random;
using testing::RanksCase;
using testing::RanksRun;
using testing::TypeInfo;
using testing::words_path;

// Streams of one context may share a queue of the device, in which one that waits for a message can
// stand before the copy that brings it. Seen on a GPU: both threads had enqueued all they had, and
// nothing moved. So two processes in one context are for the interpreter, whose streams run at
// once; on a GPU they are real ones, in property_tests/group_cuda.
#ifdef RINGSIDE_INTERPRETED
constexpr int kMostProcesses = 2;
#else
constexpr int kMostProcesses = 1;
#endif

struct Seed {
  TypeInfo type;
  unsigned seed;
  int processes;
};
void PrintTo(const Seed& s, std::ostream* out) {
  *out << s.type.name << ", seed " << s.seed << ", " << s.processes << " processes";
}

class Ranks : public ::testing::TestWithParam<Seed> {};

void expect_nothing(RanksRun& run) {
  run.expect_forward(Found::nothing);
  run.expect_backward(Found::nothing);
}

void expect_agreement(const Seed& of) {
  const auto& [type, seed, processes] = of;
  Random random(500 + 10 * processes + seed);
  const int cases = std::getenv("RINGSIDE_FEW_CASES") != nullptr ? 3 : 8;  // under sanitizers
  for (int i = 0; i < cases; ++i) {
    const RanksCase ranks_case(random, type);
    const Plan& plan = ranks_case.plan;
    if (plan.cp_size() < processes) continue;
    RanksRun run(ranks_case, type, processes);
    SCOPED_TRACE("case " + std::to_string(i) + " by " + run.family() + ": " + plan.partition +
                 " over " + plan.comm + ", cp_size " + std::to_string(plan.cp_size()) +
                 (ranks_case.keep == KeepKv::yes ? ", keys kept" : "") +
                 (ranks_case.capacity ? ", lengths on the device" : ""));
    if (ranks_case.capacity && random.coin()) {
      run.set_lengths_that_do_not_fit();
      expect_nothing(run);
    }
    const PackedLayout& layout = ranks_case.problem.layout_q;
    if (ranks_case.capacity && processes > 1 && layout.cu_seqlens().back() > 0) {
      run.set_lengths_that_differ();
      expect_nothing(run);
      run.expect_fitted(false);
    }
    if (i % 2 == 0) run.rehearse();
    if (ranks_case.capacity) run.set_lengths();
    run.expect_forward(Found::results);
    run.expect_backward(Found::results);
    if (ranks_case.capacity) run.expect_fitted(true);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST_P(Ranks, AgreeWithTheCpu) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  expect_agreement(GetParam());
}

std::vector<Seed> seeds() {
  std::vector<Seed> all;
  for (int processes = 1; processes <= kMostProcesses; ++processes)
    for (const TypeInfo& type : {testing::kFloat32, testing::kFloat16, testing::kBFloat16})
      for (unsigned seed = 0; seed < 3; ++seed) all.push_back({type, seed, processes});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Random, Ranks, ::testing::ValuesIn(seeds()));

// Whether a rank's last sums are of some rows of a buffer, not of all of them in order.
bool adds_to_some_rows(const Plan& plan) {
  for (const Schedule& schedule : make_schedules(plan, Pass::backward)) {
    for (const LastSum last = last_sum(schedule); const LastSum::Term& term : last.terms)
      for (int row = 0; row < static_cast<int>(term.row_of.size()); ++row)
        if (term.row_of[row] != kNobody && term.row_of[row] != row) return true;
  }
  return false;
}

TEST(RankProgram, AddsWhatComesBackLastToTheRowsThatItIsOf) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  Random random(77);
  int found = 0;
  for (int i = 0; i < 1000 && found < 2; ++i) {
    const RanksCase ranks_case(random, testing::kFloat32);
    if (ranks_case.capacity || !adds_to_some_rows(ranks_case.plan)) continue;
    RanksRun run(ranks_case, testing::kFloat32, 1);
    run.expect_forward(Found::results);
    run.expect_backward(Found::results);
    ++found;
  }
  EXPECT_EQ(found, 2);
}

// What three others send is added up where it lies, not in order of rows.
TEST(RankProgram, AddsUpWhatOthersSendWhereItLies) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  const PackedLayout layout{{0, 160, 640}};
  const Problem problem{layout, layout, Mask::sliding_window(200, 0), 2, 1};
  const Plan plan = build_plan(problem, place(problem, "whole_pack_zigzag", 4), {"fetch"});
  size_t most = 0;
  bool moves = false;
  for (const Schedule& schedule : make_schedules(plan, Pass::backward))
    for (const LastSum last = last_sum(schedule); const LastSum::Term& term : last.terms) {
      most = std::max(most, last.terms.size());
      for (int row = 0; row < static_cast<int>(term.row_of.size()); ++row)
        moves |= term.row_of[row] != kNobody && term.row_of[row] != row;
    }
  EXPECT_EQ(most, 3);
  EXPECT_TRUE(moves);
  Random random(33);
  for (const TypeInfo& type : {testing::kFloat32, testing::kBFloat16})
    for (int processes = 1; processes <= kMostProcesses; ++processes) {
      const RanksCase ranks_case(random, type, problem, plan, 64);
      RanksRun run(ranks_case, type, processes);
      SCOPED_TRACE(run.family());
      run.expect_forward(Found::results);
      run.expect_backward(Found::results);
    }
}

// Two ranks, the first of which has two documents of queries: it holds the keys of one, and those
// of the other come. So all rows are final, and no launch goes on from another.
Plan of_rows_that_meet_one_step_each(Problem& problem) {
  const PackedLayout q{{0, 8, 16, 32}}, k{{0, 16, 24, 32}};
  problem = {q, k, Mask::full(), 2, 2};
  return build_plan(problem, place(problem, "whole_pack", 2), {"p2p"});
}

TEST(RankProgram, GoesOnFromNothingWhereNobodyWasBefore) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  Problem problem;
  const Plan plan = of_rows_that_meet_one_step_each(problem);
  const Schedule schedule = make_schedule(plan, 0, Pass::forward);
  std::vector<HostWorkList> lists;
  int later = 0;  // items of launches that do not come first
  for (size_t i = 0; i < schedule.operations.size(); ++i) {
    const Operation& op = schedule.operations[i];
    lists.emplace_back();
    if (op.kind != OperationKind::compute) continue;
    lists[i] = query_items(problem, {{&plan.tile_lists[op.tiles], 0, 0}}, 128);
    later += finds_nothing(schedule, static_cast<int>(i)) ? 0 : lists[i].items.size();
  }
  EXPECT_TRUE(tell_final_items(schedule, lists).sums_unused);
  EXPECT_EQ(later, 1);
  Random random(31);
  for (const TypeInfo& type : {testing::kBFloat16, testing::kFloat16})
    for (const int dim : {64, 128, 192}) {
      const RanksCase ranks_case(random, type, problem, plan, dim);
      for (int processes = 1; processes <= kMostProcesses; ++processes) {
        RanksRun run(ranks_case, type, processes);
        SCOPED_TRACE(run.family());
        run.expect_forward(Found::results);
        run.expect_backward(Found::results);
      }
    }
}

// Whoever is to make the other calls does not, and nobody looks.
TEST(RankProgram, GivesUpWhereTheOtherProcessDoesNotCome) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  const PackedLayout layout{{0, 40, 130}};
  const Problem problem{layout, layout, Mask::causal(), 2, 2};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 2), {"p2p"});
  Random random(35);
  for (const TypeInfo& type : {testing::kFloat32, testing::kBFloat16}) {
    const RanksCase ranks_case(random, type, problem, plan, 64);
    const RanksRun run(ranks_case, type, 2);
    SCOPED_TRACE(run.family());
    run.expect_given_up(0.3);
  }
}

// Ranks of padding, and of queries that see no key: launches that add to dq there are none.
TEST(RankProgram, LeavesZerosWhereARankSeesNothing) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  const PackedLayout short_ones({0, 2, 5}, {0, 16, 32}), q{{0, 32}}, k{{0, 4}};
  const Problem problems[] = {{short_ones, short_ones, Mask::causal(), 2, 2},
                              {q, k, Mask::sliding_window(3, 0), 2, 2}};
  Random random(34);
  for (const Problem& problem : problems) {
    const Plan plan = build_plan(problem, place(problem, "zigzag", 4), {"p2p"});
    const std::vector<Schedule> schedules = make_schedules(plan, Pass::backward);
    EXPECT_TRUE(std::ranges::any_of(schedules, [&](const Schedule& schedule) {
      return std::ranges::all_of(schedule.operations, [&](const Operation& op) {
        return op.kind != OperationKind::compute || plan.tile_lists[op.tiles].empty();
      });
    }));
    for (const TypeInfo& type : {testing::kBFloat16, testing::kFloat16})
      for (const int dim : {8, 13, 64, 128}) {
        const RanksCase ranks_case(random, type, problem, plan, dim);
        RanksRun run(ranks_case, type, 1);
        SCOPED_TRACE(std::to_string(dim) + " by " + run.family());
        run.expect_forward(Found::results);
        run.expect_backward(Found::results);
      }
  }
}

// Documents that a rank has alone are final at once, unless their query heads are taken apart: then
// dk and dv are summed up.
TEST(RankProgram, SumsUpWhatIsTakenApart) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  const PackedLayout layout{{0, 1'100, 2'200}};
  const Problem problem{layout, layout, Mask::causal(), 4, 1};
  const Plan plan = build_plan(problem, place(problem, "whole_pack", 2), {"p2p"});
  Random random(35);
  for (const auto& [dim, deterministic] :
       {std::pair{64, false}, {64, true}, {128, false}}) {  // the last one with options
    RanksCase ranks_case(random, testing::kBFloat16, problem, plan, dim);
    ranks_case.deterministic = deterministic;
    if (dim == 128)
      ranks_case.c.options.softcap = 3, ranks_case.c.options.alibi_slopes = {0.1, 0.2, 0.05, 0};
    RanksRun run(ranks_case, testing::kBFloat16, 1);
    SCOPED_TRACE(std::to_string(dim) + " by " + run.family());
    run.expect_forward(Found::results);
    run.expect_backward(Found::results);
  }
}

// Scores far beyond the cap come before others, and behind them, in launches that go on.
TEST(RankProgram, CapsScoresOfRowsThatGoOn) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  const PackedLayout layout{{0, 300, 700}};
  const Problem problem{layout, layout, Mask::causal(), 2, 1};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 2), {"p2p"});
  Random random(36);
  for (const TypeInfo& type : {testing::kFloat16, testing::kBFloat16})
    for (const auto& [far_rank, cap] : {std::pair{0, 2.}, {0, 10.}, {1, 2.}, {1, 50.}}) {
      RanksCase ranks_case(random, type, problem, plan, 128);
      ranks_case.c.options.softcap = cap;
      ranks_case.for_each_row(far_rank, Operand::kv, [&](int, int key) {
        std::for_each_n(ranks_case.c.k.at(key, 0), 128, [](double& x) { x *= 16; });
      });
      std::fill_n(ranks_case.c.k.at(310, 0), 128, 0);
      RanksRun run(ranks_case, type, 1);
      SCOPED_TRACE(concat(type.name, ", far keys of rank ", far_rank, ", a cap of ", cap));
      run.expect_forward(Found::results);
    }
}

// A number that is none, of a row in the middle of a block: who does not see it keeps his results,
// final ones and those that go on.
TEST(RankProgram, KeepsWhatIsNotANumberToThoseWhoSeeIt) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  Random random(32);
  for (const std::string comm : {"p2p", "fetch"}) {  // all rows are final where documents are whole
    const PackedLayout layout{{0, 300, 600}};
    const Problem problem{layout, layout, Mask::causal(), 2, 2};
    const std::string partition = comm == "p2p" ? "zigzag" : "whole_pack";
    const Plan plan = build_plan(problem, place(problem, partition, 2), {comm});
    for (const int dim : {64, 128})
      for (const bool of_keys : {true, false}) {
        RanksCase ranks_case(random, testing::kBFloat16, problem, plan, dim);
        *(of_keys ? ranks_case.c.v : ranks_case.c.dout).at(400, 1) = NAN;
        RanksRun run(ranks_case, testing::kBFloat16, 1);
        SCOPED_TRACE(comm + " by " + run.family() + (of_keys ? ", of a value" : ", of a gradient"));
        run.expect_forward(Found::results);
        run.expect_backward(Found::results);
      }
  }
}

// Each query head adds to dk and dv of the key head that it shares, final rows or not.
TEST(RankProgram, SumsUpWhatQueryHeadsOfAKeyHeadAdd) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  Random random(34);
  const PackedLayout layout{{0, 300, 620}, {0, 300, 640}};
  for (const auto& [partition, comm, dim] : {std::tuple{"zigzag", "p2p", 64},
                                             {"zigzag", "all_gather", 128},
                                             {"whole_pack", "fetch", 128},
                                             {"whole_pack_zigzag", "fetch", 128}}) {
    const Problem problem{layout, layout, Mask::causal(), 8, 2};
    const Plan plan = build_plan(problem, place(problem, partition, 2), {comm});
    for (int processes = 1; processes <= kMostProcesses; ++processes) {
      const RanksCase ranks_case(random, testing::kBFloat16, problem, plan, dim);
      RanksRun run(ranks_case, testing::kBFloat16, processes);
      SCOPED_TRACE(std::string(partition) + " over " + comm + " by " + run.family());
      run.expect_forward(Found::results);
      run.expect_backward(Found::results);
    }
  }
}

TEST(RankProgram, RefusesKeptKeysThatTilesCannotRead) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  const PackedLayout layout{{0, 160}};
  const Problem problem{layout, layout, Mask::causal(), 2, 2};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 2), {"p2p"});
  Random random(35);
  RanksCase ranks_case(random, testing::kBFloat16, problem, plan, 64);
  ranks_case.keep = KeepKv::yes;
  ProcessOfRanks process(ranks_case, testing::kBFloat16, halves(2, 1, 0));
  unlink(words_path(0).c_str());
  process.program.attach(process.links, 1);
  EXPECT_NO_THROW(process.forward());
  for (const int from : {-1, 8}) {  // nowhere; not at a multiple of 16 bytes
    process.arrays[1].kept_from = from;
    EXPECT_THROW(process.forward(), InvalidArgument);
    EXPECT_THROW(process.backward(), InvalidArgument);
  }
}

TEST(RankProgram, OfAPlanKnowsItsLengths) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  const Problem problem{{{0, 3}, {0, 3}}, {{0, 3}, {0, 3}}, Mask::causal()};
  const Plan plan = build_plan(problem, place(problem, "zigzag", 2), {"p2p"});
  const RankProgram program(plan, halves(2, 1, 0), {8, 8, ElementType::float32});
  EXPECT_THROW(program.set_lengths({}, {}, nullptr), InvalidArgument);
  EXPECT_THROW(program.lengths_fitted(nullptr), InvalidArgument);
}

}  // namespace
}  // namespace ringside
