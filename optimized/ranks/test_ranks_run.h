// A case of ranks run by processes, each a thread here, and what they leave beside the CPU's.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "optimized/links/mailbox.h"
#include "optimized/ranks/parts.h"
#include "optimized/ranks/test_ranks_case.h"
#include "reference/execute/execute.h"

namespace ringside::testing {

inline Hosting halves(int ranks, int processes, int mine) {
  Hosting hosting{std::vector<std::vector<int>>(processes), mine};
  for (int rank = 0; rank < ranks; ++rank)
    hosting.processes[rank * processes / ranks].push_back(rank);
  return hosting;
}

inline std::string words_path(int process) {
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

  // By the first process alone: it waits for the others until its links give up.
  void expect_given_up(double patience_s) const {
    ProcessOfRanks& alone = *processes_[0];
    alone.links.guard(patience_s);
    std::atomic<bool> has_ended = false;
    std::thread call([&] {
      alone.forward();
      has_ended = true;
    });
    const auto ends = [&] {
      for (int i = 0; i < 200 && !has_ended; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return has_ended.load();
    };
    if (!ends()) {
      ADD_FAILURE() << "it waits for ever";
      alone.links.abort();
      if (!ends()) std::_Exit(1);  // nor does that free it
    }
    call.join();
    EXPECT_EQ(alone.links.words()[mailbox::kAborted].load(), 1u);
    for (size_t member = 0; member < alone.hosted.size(); ++member) {
      const Tensor out = alone.arrays[member].out.read(), lse = alone.arrays[member].lse.read();
      EXPECT_TRUE(std::all_of(out.data.begin(), out.data.end(), is_nan));
      EXPECT_TRUE(std::all_of(lse.data.begin(), lse.data.end(), is_nan));
    }
  }

  void expect_fitted(bool fitted) const {
    for (const auto& p : processes_) EXPECT_EQ(p->fitted(), fitted);
  }

 private:
  static bool is_nan(double x) { return std::isnan(x); }

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
    return ringside::testing::error_of_scores(x_.c.q, x_.c.k, x_.c.options, family());
  }

  const RanksCase& x_;
  TypeInfo type_;
  AttentionOutput want_;
  std::vector<std::unique_ptr<ProcessOfRanks>> processes_;
  Tensor out_, lse_;  // as the ranks found them
};

}  // namespace ringside::testing
