#include <algorithm>
#include <utility>

#include "optimized/program/walk.h"

namespace ringside {
namespace {

class Backward : public Walk {
 public:
  Backward(const ProgramParts& parts, std::vector<RankBackwardCall> calls,
           const RankCallOptions& options, const RunsOn& on)
      : Walk(parts, parts.backward, options, on), calls_(std::move(calls)) {
    for (RankBackwardCall& call : calls_) {
      if (links_ != nullptr) require_all_dense(call);
      for (move::GlobalArray* x : {&call.q, &call.k, &call.dq, &call.dk})
        x->home_dim = parts.shape.head_dim_qk;
      for (move::GlobalArray* x : {&call.v, &call.dv, &call.dout})
        x->home_dim = parts.shape.head_dim_v;
    }
    // Else a kernel of its own computes dq, over all items of keys at once.
    finals_ = !options.deterministic;
    for (size_t member = 0; member < calls_.size(); ++member)
      if (has_final(static_cast<int>(member)))
        require_dense(calls_[member].dk, "dk"), require_dense(calls_[member].dv, "dv");
  }

  void run_all() {
    for (size_t member = 0; member < calls_.size(); ++member)
      require_kept(member, calls_[member].kept);
    for (size_t member = 0; member < calls_.size(); ++member)
      in_fragments_.push_back(all_take_fragments(static_cast<int>(member)));
    begin();
    for (size_t member = 0; member < calls_.size(); ++member) start(member);
    run();
    std::vector<Spoilable> results;
    std::vector<Emptied> empty;
    for (size_t member = 0; member < calls_.size(); ++member) {
      finish(static_cast<int>(member));
      const RankBackwardCall& call = calls_[member];
      for (const move::GlobalArray* x : {&call.dq, &call.dk, &call.dv})
        results.push_back(spoilable(*x)), empty.push_back(emptied(*x));
      const int64_t of_sinks = parts_.problem.num_heads * int64_t{sizeof(float)};
      if (options_.sinks != nullptr)
        results.push_back({call.dsink, of_sinks}), empty.push_back({call.dsink, of_sinks});
    }
    agree_on_lengths(Pass::backward, empty);
    end(results);
  }

 protected:
  std::byte* caller(int member, Payload payload, int array) const override {
    const RankBackwardCall& call = calls_[member];
    const MemberPlaces& places = pass_.places[member];
    if (payload == Payload::keys)
      return array == 0 ? home(call.k, places.k) : home(call.v, places.v);
    if (array == 0) return home(call.q, places.q);
    if (array == 1) return home(call.dout, places.dout);
    return at(array == 2 ? places.lse : places.delta);
  }

  std::byte* kept(int member) const override { return calls_[member].kept; }

  void compute(int member, const Operation& op, const OperationTables& tables) const override {
    if (tables.backward_keys.items.size == 0) return;
    BackwardArguments arguments = arguments_of(member, op, tables);
    if (in_fragments_[member]) arguments.dq_layout = AccumulatorLayout::fragments;
    arguments.sm_margin = parts_.options.sm_margin;
    RINGSIDE_CUDA(parts_.family.backward(arguments, stream_));
  }

 private:
  BackwardArguments arguments_of(int member, const Operation& op,
                                 const OperationTables& tables) const {
    const int dim_qk = parts_.shape.head_dim_qk, dim_v = parts_.shape.head_dim_v;
    const AttentionShape shape = shape_of(member, op);
    const RankBackwardCall& call = calls_[member];
    const bool by_lengths = parts_.any_lengths && tables.keys_by_document;
    const int head_parts = options_.deterministic ? 1 : tables.head_parts;
    return {
        .shape = shape,
        .q = matrix(member, op.queries, 0, dim_qk),
        .k = matrix(member, op.keys, 0, dim_qk),
        .v = matrix(member, op.keys, 1, dim_v),
        .dout = matrix(member, op.queries, 1, dim_v),
        .lse = DeviceScalars::by_row(floats(member, op.queries, 2), shape.num_heads),
        .delta = DeviceScalars::by_row(floats(member, op.queries, 3), shape.num_heads),
        .dq = matrix(member, op.query_sums, 0, dim_qk),
        .dk = matrix(member, op.key_sums, 0, dim_qk),
        .dv = matrix(member, op.key_sums, 1, dim_v),
        .final_dk = final_place(member, op.key_sums, call.dk),
        .final_dv = final_place(member, op.key_sums, call.dv),
        .queries = parts_.work_list(tables.backward_queries),
        .keys = parts_.work_list(tables.backward_keys),
        .deterministic = options_.deterministic,
        .options = options_.options,
        .accumulate = tables.starts ? Accumulate::start : Accumulate::merge,
        .workspace = at(pass_.of_family),
        .head_parts = head_parts,
        .heads_at_a_time = parts_.heads_at_a_time(tables, shape.num_kv_heads * head_parts, false),
        .most_heads = by_lengths ? parts_.lengths.most_heads : nullptr};
  }

  // Whether all of a member's launches may leave sums of dq so, which nobody else adds to or moves.
  bool all_take_fragments(int member) const {
    if (parts_.family.backward_in_fragments == nullptr) return false;
    const Schedule& schedule = hosted()[member];
    const int sums = schedule.home_query_sums;
    bool any = false;  // without launches, rows may be no fragments
    for (size_t i = 0; i < schedule.operations.size(); ++i) {
      const Operation& op = schedule.operations[i];
      const OperationTables& tables = pass_.operations[member][i];
      const auto moves = [&](const ScheduledMessage& message) {
        return message.block.buffer == sums;
      };
      if (op.kind == OperationKind::clear) continue;
      if (op.kind != OperationKind::compute) {
        if (op.from.buffer == sums || op.to.buffer == sums ||
            std::ranges::any_of(op.sends, moves) || std::ranges::any_of(op.receives, moves))
          return false;
      } else if (tables.backward_keys.items.size > 0) {
        any = true;
        if (op.query_sums != sums ||
            !parts_.family.backward_in_fragments(arguments_of(member, op, tables)))
          return false;
      }
    }
    return any;
  }

  static void require_all_dense(const RankBackwardCall& call) {
    require_dense(call.q, "q"), require_dense(call.k, "k"), require_dense(call.v, "v");
    require_dense(call.dout, "dout");
  }

  void start(size_t member) const {
    const RankBackwardCall& call = calls_[member];
    const move::RowMap q = parts_.row_map(parts_.members[member].q);
    const move::RowMap kv = parts_.row_map(parts_.members[member].kv);
    const MemberPlaces& places = pass_.places[member];
    bring_home(q, call.q, places.q), bring_home(q, call.dout, places.dout);
    bring_home(kv, call.k, places.k), bring_home(kv, call.v, places.v);
    const auto by_row = [&](int64_t place) {  // which may be moved
      return DeviceScalars::by_row(reinterpret_cast<float*>(at(place)), call.out.heads);
    };
    const move::OfSoftmax softmax{by_row(places.delta), by_row(places.lse)};
    move::shard_softmax(q, call.dout, call.out, call.lse, softmax, {}, stream_);
    if (options_.sinks == nullptr) return;
    const move::Sinks sinks{options_.sinks, parts_.problem.num_heads};
    if (parts_.is_stacked)
      move::sink_gradients(q, parts_.unseen_rows(), sinks, softmax, call.dsink, stream_);
    else
      move::sink_gradients(parts_.row_map(parts_.members[member].seeing), sinks, softmax,
                           call.dsink, stream_);
  }

  void finish(int member) const {
    const RankBackwardCall& call = calls_[member];
    const move::RowMap q = parts_.row_map(parts_.members[member].q);
    const Schedule& schedule = hosted()[member];
    const float* dq = floats(member, schedule.home_query_sums, 0);
    if (in_fragments_[member])
      move::unshard(q, {dq, AccumulatorLayout::fragments, parts_.shape.softmax_scale}, call.dq,
                    stream_);
    else
      move::unshard(q, dq, call.dq, stream_);
    if (all_final(member)) return;
    const move::RowMap kv = rows_through_sums(member, parts_.members[member].kv);
    const auto leave = [&](int array, const move::GlobalArray& to) {
      move::unshard(kv, floats(member, schedule.home_key_sums, array), to, stream_,
                    added(member, array));
    };
    leave(0, call.dk), leave(1, call.dv);
  }
  move::Added added(int member, int array) const {
    const AddedAtEnd* at_end = added_at_end(member);
    if (at_end == nullptr) return {};
    move::Added found;
    for (const AddedAtEnd::Term& term : at_end->terms) {
      const int from = hosted()[member].operations[term.operation].from.buffer;
      found.terms[found.count++] = {floats(member, from, array), parts_.tables.at(term.of_home),
                                    term.begins};
    }
    return found;
  }

  std::vector<RankBackwardCall> calls_;
  std::vector<bool> in_fragments_;  // each member's sums of dq, as kernels hold them
};

}  // namespace

void run_backward(const ProgramParts& parts, std::vector<RankBackwardCall> calls,
                  const RankCallOptions& options, const RunsOn& on) {
  Backward(parts, std::move(calls), options, on).run_all();
}

}  // namespace ringside
