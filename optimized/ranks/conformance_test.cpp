// Ranks with arrays of their own, in one process and in two, against the CPU: random plans, and
// capacities whose lengths come on the device. Every array lies between canaries, rows of nobody
// and workspaces hold NaN. Between ranks of a process messages are copies; two processes are two
// threads here, which exchange by peer copies. Skips without a device.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "optimized/links/mailbox.h"
#include "optimized/ranks/parts.h"
#include "optimized/ranks/test_ranks_case.h"
#include "optimized/tables/schedules/final_items.h"
#include "optimized/tables/schedules/last_sum.h"
#include "reference/execute/execute.h"

namespace ringside {
namespace {

using testing::ArraysOfRank;
using testing::expect_close;
using testing::Guarded;
using testing::has_device;
using testing::LayoutOnDevice;
using testing::Random;
using testing::RanksCase;
using testing::TypeInfo;

// Streams of one context may share a queue of the device, in which one that waits for a message can
// stand before the copy that brings it. Seen on a GPU: both threads had enqueued all they had, and
// nothing moved. So two processes in one context are for the interpreter, whose streams run at
// once; on a GPU they are real ones, in property_tests/group_cuda.
#ifdef RINGSIDE_INTERPRETED
constexpr int kMostProcesses = 2;
#else
constexpr int kMostProcesses = 1;
#endif

Hosting halves(int ranks, int processes, int mine) {
  Hosting hosting{std::vector<std::vector<int>>(processes), mine};
  for (int rank = 0; rank < ranks; ++rank)
    hosting.processes[rank * processes / ranks].push_back(rank);
  return hosting;
}

std::string words_path(int process) {
  return "/dev/shm/ringside_test_" + std::to_string(getpid()) + "_" + std::to_string(process);
}

// What a process has of a case.
class ProcessOfRanks {
 public:
  ProcessOfRanks(const RanksCase& ranks_case, const TypeInfo& type, const Hosting& hosting)
      : hosted(hosting.hosted()),
        program(program_of(ranks_case, type, hosting)),
        links(hosting.mine, static_cast<int>(hosting.processes.size()), words_path(hosting.mine)),
        max_logit(static_cast<size_t>(ranks_case.c.q.heads), ElementType::float32),
        x_(ranks_case),
        sinks_(x_.c.options.sinks, ElementType::float32),
        slopes_(x_.c.options.alibi_slopes, ElementType::float32) {
    links.reserve(program.workspace_bytes());
    for (size_t member = 0; member < hosted.size(); ++member)
      arrays.emplace_back(x_, hosted[member], type.type, program.kept_bytes()[member]);
  }

  void set_lengths(const PackedLayout& q, const PackedLayout& k, bool fit) const {
    const LayoutOnDevice of_q(q, x_.capacity->max_rows_q), of_k(k, x_.capacity->max_rows_k);
    program.set_lengths(of_q.layout(), of_k.layout(), stream_);
    EXPECT_EQ(program.lengths_fitted(stream_), fit);
    EXPECT_TRUE(program.lengths_fitted(stream_)) << "asked again";
  }

  void forward() {
    std::vector<RankForwardCall> calls;
    for (const ArraysOfRank& a : arrays)
      calls.push_back(
          {a.q.array(), a.k.array(), a.v.array(), a.out.array(), a.lse.array(), a.kept_place()});
    RankCallOptions of_call = options();
    of_call.max_logit = static_cast<float*>(max_logit.data());
    program.forward(calls, of_call, links, stream_);
    wait();
  }

  void backward() {
    std::vector<RankBackwardCall> calls;
    for (const ArraysOfRank& a : arrays)
      calls.push_back({a.dout.array(), a.q.array(), a.k.array(), a.v.array(), a.out.array(),
                       a.lse.array(), a.dq.array(), a.dk.array(), a.dv.array(),
                       static_cast<float*>(a.dsink.data()), a.kept_place()});
    program.backward(calls, options(), links, stream_);
    wait();
  }

  void rehearse() {
    program.make_room_to_rehearse();
    EXPECT_GT(program.rehearse(links, 2), 0);
    wait();
  }

  std::vector<int> hosted;  // ranks
  RankProgram program;
  Links links;
  std::vector<ArraysOfRank> arrays;
  Guarded max_logit;

  bool fitted() const { return program.lengths_fitted(stream_); }

 private:
  static RankProgram program_of(const RanksCase& x, const TypeInfo& type, const Hosting& hosting) {
    const bool score_options =
        x.c.options.softcap != 0 || !x.c.options.alibi_slopes.empty() || x.c.options.dropout.p != 0;
    const ProgramOptions options{x.c.q.dim,
                                 x.c.v.dim,
                                 type.type,
                                 score_options,
                                 static_cast<float>(x.c.options.softmax_scale),
                                 Poison::on,
                                 !x.c.options.sinks.empty()};
    return x.capacity ? RankProgram(*x.capacity, hosting, options, x.keep)
                      : RankProgram(x.plan, hosting, options, x.keep);
  }

  RankCallOptions options() const {
    const AttentionOptions& o = x_.c.options;
    RankCallOptions of_call;
    if (!o.sinks.empty()) of_call.sinks = static_cast<float*>(sinks_.data());
    of_call.options = {static_cast<float>(o.softcap),
                       o.alibi_slopes.empty() ? nullptr : static_cast<float*>(slopes_.data()),
                       o.dropout};
    of_call.deterministic = x_.deterministic;
    return of_call;
  }

  void wait() const {
    stream_.wait();
    EXPECT_EQ(links.words()[mailbox::kMismatch].load(), 0u) << "messages of another call";
  }

  const RanksCase& x_;
  Guarded sinks_, slopes_;
  PrivateStream stream_;  // two processes on one stream would wait for each other
};

enum class Found { results, nothing };  // nothing: what an empty batch has

class RanksRun {
 public:
  RanksRun(const RanksCase& ranks_case, const TypeInfo& type, int processes)
      : x_(ranks_case), type_(type), want_(attention(x_.plan, x_.c.inputs())) {
    for (int mine = 0; mine < processes; ++mine)
      processes_.push_back(
          std::make_unique<ProcessOfRanks>(x_, type, halves(x_.plan.cp_size(), processes, mine)));
    meet();
    for (const auto& process : processes_) process->program.attach(process->links, 1);
  }

  const char* family() const { return processes_[0]->program.family(); }

  void set_lengths() const {
    for (const auto& p : processes_) p->set_lengths(x_.problem.layout_q, x_.problem.layout_k, true);
  }
  void set_lengths_that_do_not_fit() const {
    const std::vector<int32_t> valid{0, x_.capacity->max_rows_q + 1};
    for (const auto& p : processes_)
      p->set_lengths(PackedLayout(valid, valid), PackedLayout(valid, valid), false);
  }
  // Of the last process, where all others have those of the batch.
  void set_lengths_that_differ() const {
    set_lengths();
    std::vector<int32_t> shorter = x_.problem.layout_q.cu_seqlens();
    for (size_t i = 1; i < shorter.size(); ++i) shorter[i] -= shorter.back() > 0 ? 1 : 0;
    for (int32_t& x : shorter) x = std::max(x, 0);
    const PackedLayout q(shorter, x_.problem.layout_q.cu_seqlens_padded());
    processes_.back()->set_lengths(q, x_.problem.layout_k, true);
  }

  void rehearse() const {
    in_all([](ProcessOfRanks& p) { p.rehearse(); });
  }

  void expect_forward(Found found) {
    in_all([](ProcessOfRanks& p) { p.forward(); });
    out_ = want_.out, lse_ = want_.lse;
    for_each_rank([&](int rank, const ArraysOfRank& a) {
      const Tensor out = a.out.read(), lse = a.lse.read();
      expect_part("out", found, want_.out, rank, Operand::q, 0, out);
      expect_part("lse", found, want_.lse, rank, Operand::q, -INFINITY, lse);
      x_.for_each_row(rank, Operand::q, [&](int row, int global) {  // backward is of these
        std::copy_n(out.at(row, 0), out.heads * out.dim, out_.at(global, 0));
        std::copy_n(lse.at(row, 0), lse.heads, lse_.at(global, 0));
      });
    });
    std::vector<double> logits = want_.max_logit;
    if (found == Found::nothing) logits.assign(logits.size(), -INFINITY);
    for (const auto& p : processes_)
      expect_close("max_logit", type_, logits, p->max_logit.read(), error_of_scores());
  }

  void expect_backward(Found found) {
    in_all([](ProcessOfRanks& p) { p.backward(); });
    const AttentionGradients want =
        attention_backward(x_.plan, x_.c.inputs(), x_.c.dout, {out_, lse_, {}});
    std::vector<double> dsink(want.dsink.size(), 0);
    for_each_rank([&](int rank, const ArraysOfRank& a) {
      expect_part("dq", found, want.dq, rank, Operand::q, 0, a.dq.read());
      expect_part("dk", found, want.dk, rank, Operand::kv, 0, a.dk.read());
      expect_part("dv", found, want.dv, rank, Operand::kv, 0, a.dv.read());
      const std::vector<double> own = a.dsink.read();
      for (size_t head = 0; head < dsink.size(); ++head) dsink[head] += own[head];
    });
    const std::vector<double> nothing(dsink.size(), 0);
    expect_close("dsink", type_, found == Found::nothing ? nothing : want.dsink, dsink);
  }

  void expect_fitted(bool fitted) const {
    for (const auto& p : processes_) EXPECT_EQ(p->fitted(), fitted);
  }

 private:
  void meet() const {
    const int count = static_cast<int>(processes_.size());
    std::vector<std::string> paths;
    for (int process = 0; process < count; ++process) paths.push_back(words_path(process));
    for (const auto& p : processes_)
      if (count > 1) p->links.meet_peers(paths);
    for (int a = 0; a < count; ++a)
      for (int b = 0; b < count; ++b)
        if (a != b) processes_[a]->links.reach_workspace(b, processes_[b]->links);
    for (const std::string& path : paths) unlink(path.c_str());
  }

  // At once: each waits for the others.
  void in_all(const std::function<void(ProcessOfRanks&)>& run) const {
    std::vector<std::thread> threads;
    for (const auto& p : processes_) threads.emplace_back([&run, &p] { run(*p); });
    for (std::thread& thread : threads) thread.join();
  }

  template <typename Visit>
  void for_each_rank(Visit visit) const {
    for (const auto& p : processes_)
      for (size_t member = 0; member < p->hosted.size(); ++member)
        visit(p->hosted[member], p->arrays[member]);
  }

  void expect_part(const char* name, Found found, const Tensor& want, int rank, Operand side,
                   double of_nobody, const Tensor& got) const {
    Tensor own = x_.part(want, rank, side, of_nobody);
    if (found == Found::nothing) std::fill(own.data.begin(), own.data.end(), of_nobody);
    const bool of_scores = std::string_view(name) == "lse";
    expect_close(name, type_, own.data, got.data, of_scores ? error_of_scores() : 0);
  }
  double error_of_scores() const {
    return testing::error_of_scores(x_.c.q, x_.c.k, x_.c.options.softmax_scale);
  }

  const RanksCase& x_;
  TypeInfo type_;
  AttentionOutput want_;
  std::vector<std::unique_ptr<ProcessOfRanks>> processes_;
  Tensor out_, lse_;  // as the ranks found them
};

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
