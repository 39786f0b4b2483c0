#include <utility>

#include "optimized/links/mailbox.h"
#include "optimized/links/max_logit.h"
#include "optimized/program/walk.h"

namespace ringside {
namespace {

class Forward : public Walk {
 public:
  Forward(const ProgramParts& parts, std::vector<RankForwardCall> calls,
          const RankCallOptions& options, const RunsOn& on)
      : Walk(parts, parts.forward, options, on), calls_(std::move(calls)) {
    for (RankForwardCall& call : calls_) {
      if (links_ != nullptr) require_all_dense(call);
      for (move::GlobalArray* x : {&call.q, &call.k}) x->home_dim = parts.shape.head_dim_qk;
      for (move::GlobalArray* x : {&call.v, &call.out}) x->home_dim = parts.shape.head_dim_v;
    }
    finals_ = options.sinks == nullptr;
  }

  void run_all() {
    for (size_t member = 0; member < calls_.size(); ++member)
      require_kept(member, calls_[member].kept);
    begin();
    if (options_.max_logit != nullptr)
      move::start_max_logit(options_.max_logit, parts_.problem.num_heads, stream_);
    for (size_t member = 0; member < calls_.size(); ++member) start(member);
    run();
    std::vector<Spoilable> results;
    std::vector<Emptied> empty;
    constexpr auto kNothing = Emptied::Value::minus_infinity;
    for (size_t member = 0; member < calls_.size(); ++member) {
      finish(static_cast<int>(member));
      results.push_back(spoilable(calls_[member].out));
      results.push_back(spoilable(calls_[member].lse));
      empty.push_back(emptied(calls_[member].out));
      empty.push_back(emptied(calls_[member].lse, kNothing));
      results.push_back({calls_[member].kept, pass_.pass.kept_bytes(static_cast<int>(member))});
    }
    if (options_.max_logit != nullptr) {
      move::finish_max_logit(options_.max_logit, parts_.problem.num_heads, stream_);
      exchange_logits();
      results.push_back({options_.max_logit, parts_.bytes_of_logits()});
      empty.push_back({options_.max_logit, parts_.bytes_of_logits(), kNothing});
    }
    agree_on_lengths(Pass::forward, empty);
    end(results);
  }

 protected:
  std::byte* caller(int member, Payload payload, int array) const override {
    const RankForwardCall& call = calls_[member];
    const MemberPlaces& places = pass_.places[member];
    if (payload == Payload::queries) return home(call.q, places.q);
    return array == 0 ? home(call.k, places.k) : home(call.v, places.v);
  }

  std::byte* kept(int member) const override { return calls_[member].kept; }

  void compute(int member, const Operation& op, const OperationTables& tables) const override {
    if (tables.forward.items.size == 0) return;
    const int dim_qk = parts_.shape.head_dim_qk, dim_v = parts_.shape.head_dim_v;
    RINGSIDE_CUDA(
        parts_.family.forward({.shape = shape_of(member, op),
                               .q = matrix(member, op.queries, 0, dim_qk),
                               .k = matrix(member, op.keys, 0, dim_qk),
                               .v = matrix(member, op.keys, 1, dim_v),
                               .out = matrix(member, op.query_sums, 0, dim_v),
                               .final_out = final_place(member, op.query_sums, calls_[member].out),
                               .lse = DeviceScalars::by_row(floats(member, op.query_sums, 1),
                                                            shape_of(member, op).num_heads),
                               .work = parts_.work_list(tables.forward),
                               .options = options_.options,
                               .max_logit = reinterpret_cast<int32_t*>(options_.max_logit),
                               .layout = parts_.layout,
                               .accumulate = tables.starts ? Accumulate::start : Accumulate::merge,
                               .workspace = at(pass_.of_family),
                               .sm_margin = parts_.options.sm_margin},
                              stream_));
  }

 private:
  static void require_all_dense(const RankForwardCall& call) {
    require_dense(call.q, "q"), require_dense(call.k, "k"), require_dense(call.v, "v");
    require_dense(call.out, "out");
  }

  // Every process tells all others its largest scores, and takes the largest of all.
  void exchange_logits() const {
    if (communicator() == nullptr) return;
    tell_all(mailbox::kLogits, options_.max_logit, parts_.bytes_of_logits(), 0);
    take_larger_logits({reinterpret_cast<const float*>(at(0)), parts_.num_processes, links_->mine(),
                        parts_.problem.num_heads},
                       options_.max_logit, stream_);
  }

  void start(size_t member) const {
    const RankForwardCall& call = calls_[member];
    const MemberRows& rows = parts_.members[member];
    const MemberPlaces& places = pass_.places[member];
    bring_home(parts_.row_map(rows.q), call.q, places.q);
    bring_home(parts_.row_map(rows.kv), call.k, places.k);
    bring_home(parts_.row_map(rows.kv), call.v, places.v);
  }

  void finish(int member) const {
    const RankForwardCall& call = calls_[member];
    const move::RowMap rows = parts_.row_map(parts_.members[member].q);
    const int home = hosted()[member].home_query_sums;
    float *out = floats(member, home, 0), *lse = floats(member, home, 1);
    if (options_.sinks != nullptr)
      move::merge_sinks(rows, {options_.sinks, parts_.problem.num_heads}, {out, lse},
                        parts_.shape.head_dim_v, parts_.layout, stream_);
    if (!all_final(member))
      move::unshard(rows_through_sums(member, parts_.members[member].q), {out, parts_.layout},
                    call.out, stream_);
    move::unshard_lse(rows, lse, call.lse, stream_);
  }

  std::vector<RankForwardCall> calls_;
};

}  // namespace

void run_forward(const ProgramParts& parts, std::vector<RankForwardCall> calls,
                 const RankCallOptions& options, const RunsOn& on) {
  Forward(parts, std::move(calls), options, on).run_all();
}

}  // namespace ringside
