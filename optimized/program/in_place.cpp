// One rank that owns every row in order: kernels work on the caller's arrays, and rows that they do
// not write are cleared apart. Only what backward kernels read of the softmax, and, where several
// items of keys add to dq, its sums pass through the workspace; those of dk and dv, where several
// parts of the query heads do. In deterministic calls, and where that is quicker, items take turns
// at these sums; where the family or the list of items knows none, a kernel of its own computes dq.
#include "optimized/program/in_place_arrays.h"
#include "optimized/program/stack_parts.h"

namespace ringside {
namespace {

DeviceScalars scalars(const DeviceMatrix& lse) {
  return {static_cast<float*>(lse.data), lse.row_stride, lse.head_stride};
}

// visit(operation, its tables) for the tiles of a pass; not where an array has no rows, which may
// lie nowhere.
template <typename Visit>
void for_each_launch(const StackParts& program, const PassParts& parts, Visit visit) {
  const MemberRows& rows = program.members[0];
  if (rows.q.home_of_global.size == 0 || rows.kv.home_of_global.size == 0) return;
  const auto& operations = parts.pass.hosted()[0].operations;
  for (size_t i = 0; i < operations.size(); ++i)
    if (operations[i].kind == OperationKind::compute) visit(operations[i], parts.operations[0][i]);
}

// Sums in float32 of rows of a stack, in a workspace.
struct Sums {
  DeviceMatrix matrix;
  int64_t bytes;
  int heads, dim;

  Sums(const RankStack& rows, int dim_, std::byte* at)
      : matrix{at, int64_t{rows.matrices[0].heads.size()} * dim_, dim_, rows.matrices[0].rows},
        bytes(rows.cells * dim_ * int64_t{sizeof(float)}),
        heads(rows.matrices[0].heads.size()),
        dim(dim_) {}
  const float* floats() const { return static_cast<const float*>(matrix.data); }
  move::Cleared::Zeros zeros() const { return {matrix.data, bytes}; }
  move::GlobalArray array() const { return {matrix, ElementType::float32, heads, dim}; }
};

void poison(const StackParts& parts, const RunsOn& on, int64_t bytes) {
  if (parts.options.poison == Poison::on && bytes > 0)
    RINGSIDE_CUDA(cudaMemsetAsync(on.workspace, 0xff, static_cast<size_t>(bytes), on.stream));
}

// The launches of a backward pass, behind the one that prepares what they read of the softmax.
class Gradients {
 public:
  Gradients(const StackParts& parts, const BackwardCall& call, const RunsOn& on,
            const move::OfSoftmax& softmax)
      : parts_(parts),
        call_(call),
        on_(on),
        softmax_(softmax),
        dq_(parts.home_q, parts.shape.head_dim_qk, on.workspace + parts.dq_in_place),
        dk_(parts.home_k, parts.shape.head_dim_qk, on.workspace + parts.dk_in_place),
        dv_(parts.home_k, parts.shape.head_dim_v, on.workspace + parts.dv_in_place) {
    const bool alone = parts.keys_in_one_item;
    in_turn_ = (call.deterministic || parts.turns_are_quicker) && !alone && parts.takes_turns;
    if (in_turn_) in_turn_ = all_take_turns();
    const bool in_any_order = !alone && !call.deterministic && !in_turn_;
    summed_ = in_any_order || (in_turn_ && !rounds_in_turn());
    in_parts_ = in_any_order && parts.head_parts > 1;
    first_stores_ = in_any_order && parts.first_keys_store;
    if (first_stores_) first_stores_ = all_first_may_store();
    in_fragments_ = summed_ && parts.family.backward_in_fragments != nullptr;
    if (in_fragments_) in_fragments_ = all_take_fragments();
  }

  // What has to be 0 ahead of the launches: sums and words that they add to, and rows that they do
  // not write, of dk and dv, and of dq or the sums that become dq, unless all of these are 0.
  move::Cleared cleared() const {
    move::Cleared all;
    const bool in_any_order = summed_ && !in_turn_ && !first_stores_;
    if (in_any_order) all.zeros[0] = dq_.zeros();
    if (first_stores_)
      all.zeros[0] = {on_.workspace + parts_.first_in_place, parts_.bytes_of_first_words()};
    if (in_turn_)
      all.zeros[0] = {on_.workspace + parts_.turns_in_place,
                      parts_.home_q.cells * int64_t{sizeof(unsigned)}};
    if (in_parts_) all.zeros[1] = dk_.zeros(), all.zeros[2] = dv_.zeros();
    if (parts_.every_row_is_seen) return all;
    all.unseen = parts_.unseen_rows();
    all.rows_q = parts_.members[0].q.home_of_global.size;
    all.rows_k = parts_.members[0].kv.home_of_global.size;
    if (!in_any_order) all.of_queries = summed_ ? dq_.array() : call_.dq;
    if (!in_parts_) all.of_keys[0] = call_.dk, all.of_keys[1] = call_.dv;
    return all;
  }

  void compute() const {
    for_each_launch(parts_, parts_.backward, [&](const auto& operation, const auto& tables_of) {
      RINGSIDE_CUDA(parts_.family.backward(arguments_of(operation, tables_of), on_.stream));
    });
  }

  // Sums to the caller's arrays.
  void finish(const move::RowMap& q_rows, const move::RowMap& k_rows) const {
    if (summed_) move::unshard(q_rows, sums_of_dq(), call_.dq, on_.stream);
    if (in_parts_) {
      move::unshard(k_rows, dk_.floats(), call_.dk, on_.stream);
      move::unshard(k_rows, dv_.floats(), call_.dv, on_.stream);
    }
  }

 private:
  // Where many items wait for each other, the last would wait longer than a conversion takes.
  bool rounds_in_turn() const { return parts_.turns_are_quicker; }
  // takes(tables, the arguments that a launch would be given) of all launches, of which there are.
  template <typename Takes>
  bool all_launches(Takes takes) const {
    bool all = true, any = false;
    for_each_launch(parts_, parts_.backward, [&](const auto& operation, const auto& tables_of) {
      all = all && takes(tables_of, arguments_of(operation, tables_of)), any = true;
    });
    return all && any;
  }
  bool all_take_turns() const {
    int launches = 0;  // whose turns are counted together
    return all_launches([&](const OperationTables& tables_of, const BackwardArguments& arguments) {
      return ++launches == 1 &&
             tables_of.keys_in_turn.items.size == tables_of.backward_keys.items.size &&
             parts_.family.backward_in_turn(arguments);
    });
  }
  bool all_take_fragments() const {
    return all_launches([&](const OperationTables&, const BackwardArguments& arguments) {
      return parts_.family.backward_in_fragments(arguments);
    });
  }
  move::HomeSums sums_of_dq() const {
    if (!in_fragments_) return dq_.floats();
    return {dq_.floats(), AccumulatorLayout::fragments, parts_.shape.softmax_scale};
  }
  bool all_first_may_store() const {
    return all_launches([&](const OperationTables& tables_of, const BackwardArguments& arguments) {
      return tables_of.first_keys_ahead && parts_.family.backward_first_stores(arguments);
    });
  }

  BackwardArguments arguments_of(const Operation& op, const OperationTables& tables_of) const {
    const bool alone = parts_.keys_in_one_item;
    std::byte* turns = on_.workspace + parts_.turns_in_place;
    std::byte* first = on_.workspace + parts_.first_in_place;
    const AttentionShape shape = parts_.shape_of(parts_.backward.pass.hosted()[0], op);
    const int head_parts = in_parts_ ? parts_.head_parts : 1;
    const bool by_lengths = parts_.any_lengths && tables_of.keys_by_document && !in_turn_;
    return {.shape = shape,
            .q = call_.q.matrix,
            .k = call_.k.matrix,
            .v = call_.v.matrix,
            .dout = call_.dout.matrix,
            .lse = softmax_.lse,
            .delta = softmax_.delta,
            .dq = summed_ || in_turn_ ? dq_.matrix : call_.dq.matrix,
            .dk = in_parts_ ? dk_.matrix : call_.dk.matrix,
            .dv = in_parts_ ? dv_.matrix : call_.dv.matrix,
            .queries = parts_.work_list(tables_of.backward_queries),
            .keys = parts_.work_list(in_turn_ ? tables_of.keys_in_turn : tables_of.backward_keys),
            .deterministic = call_.deterministic && !alone,
            .options = call_.options,
            .accumulate = in_parts_ ? Accumulate::merge : Accumulate::only,
            .one_item_of_keys = alone,
            .workspace = on_.workspace + parts_.backward.of_family,
            .carried = parts_.carries_dq ? dq_.matrix : DeviceMatrix{},
            .turns = in_turn_ ? reinterpret_cast<unsigned*>(turns) : nullptr,
            .final_dq = in_turn_ && rounds_in_turn() ? call_.dq.matrix : DeviceMatrix{},
            .first_stored = first_stores_ ? reinterpret_cast<unsigned*>(first) : nullptr,
            .dq_layout = in_fragments_ ? AccumulatorLayout::fragments : AccumulatorLayout::rows,
            .head_parts = head_parts,
            .heads_at_a_time =
                in_turn_ ? parts_.heads_in_turn(rounds_in_turn())
                         : parts_.heads_at_a_time(tables_of, shape.num_kv_heads * head_parts, true),
            .most_heads = by_lengths ? parts_.lengths.most_heads : nullptr,
            .sm_margin = parts_.options.sm_margin};
  }

  const StackParts& parts_;
  const BackwardCall& call_;
  const RunsOn& on_;
  const move::OfSoftmax softmax_;
  const Sums dq_, dk_, dv_;    // where they are needed
  bool in_turn_ = false;       // items add to dq one after the other
  bool summed_ = false;        // dq, in float32, which are rounded behind the launches
  bool first_stores_ = false;  // sums, which need not begin as zeros
  bool in_fragments_ = false;  // sums, as kernels hold them
  bool in_parts_ = false;      // items have parts of the query heads: dk and dv are summed, too
};

}  // namespace

void StackParts::forward_in_place(const ForwardCall& given, const RunsOn& on) const {
  require(given.sinks == nullptr || options.sinks, "sinks, which the program was not made for");
  const ForwardCall call = as_taken(given, family);
  poison(*this, on, forward.end);
  if (call.max_logit != nullptr)
    move::start_max_logit(call.max_logit, problem.num_heads, on.stream);
  for_each_launch(*this, forward, [&](const Operation& op, const OperationTables& tables_of) {
    RINGSIDE_CUDA(family.forward({.shape = shape_of(forward.pass.hosted()[0], op),
                                  .q = call.q.matrix,
                                  .k = call.k.matrix,
                                  .v = call.v.matrix,
                                  .out = call.out.matrix,
                                  .lse = scalars(call.lse.matrix),
                                  .work = work_list(tables_of.forward),
                                  .options = call.options,
                                  .sinks = call.sinks,
                                  .max_logit = reinterpret_cast<int32_t*>(call.max_logit),
                                  .accumulate = Accumulate::only,
                                  .workspace = on.workspace + forward.of_family,
                                  .sm_margin = options.sm_margin},
                                 on.stream));
  });
  if (call.max_logit != nullptr)
    move::finish_max_logit(call.max_logit, problem.num_heads, on.stream);
  if (!every_row_is_seen)
    move::clear_unseen_results(unseen_rows(), call.out, call.lse, call.sinks, rows_q(), on.stream);
}

void StackParts::backward_in_place(const BackwardCall& given, const RunsOn& on) const {
  require(given.sinks == nullptr || options.sinks, "sinks, which the program was not made for");
  const BackwardCall call = as_taken(given, family);
  poison(*this, on, backward.end);
  const move::RowMap q_rows = row_map(members[0].q);
  const auto by_head = [&](int64_t offset) {
    return DeviceScalars::by_head(reinterpret_cast<float*>(on.workspace + offset),
                                  home_q.matrices[0].rows);
  };
  const MemberPlaces& places = backward.places[0];
  const move::OfSoftmax softmax{by_head(places.delta), by_head(places.lse)};
  const Gradients gradients(*this, call, on, softmax);
  move::shard_softmax(q_rows, call.dout, call.out, call.lse, softmax, gradients.cleared(),
                      on.stream);
  if (call.sinks != nullptr)
    move::sink_gradients(q_rows, unseen_rows(), {call.sinks, problem.num_heads}, softmax,
                         call.dsink, on.stream);
  gradients.compute();
  gradients.finish(q_rows, row_map(members[0].kv));
}

}  // namespace ringside
