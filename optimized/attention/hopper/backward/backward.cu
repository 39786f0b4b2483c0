// Attention backward for Hopper: bfloat16 and float16. What a launch is given; kernel.cuh has the
// kernel.
//
// Key blocks of 128 rows outside, query blocks of 64 inside. A block of threads stays on its
// multiprocessor and takes items (a key block, one key head) from a queue. One warp walks over the
// query blocks that see the item, across segments and the query heads of the group, and leaves
// notes of them, by which others have the copy engine bring them. Two groups of four warps consume,
// 64 keys each: dk and dv stay in their registers, and leave by the copy engine where they are
// final, dk from where the item's keys were. With head dimensions of 192 and 128 there are
// registers for scores of half a block at a time (consume/halves.cuh); above, key blocks have 64
// rows, and each group owns one of dk and dv (consume/split.cuh). dq = dS K is added up in global
// memory by the copy engine, in float32; where the item is all that its queries meet, it is final
// at once. Such an item may have several key blocks, one after the other, through which dq is
// carried in float32. Where dk and dv are added to, too, an item may have a part of the query heads
// of its key head.
//
// Sums of dq lie as registers hold them, if the launch says so: who rounds them puts columns in
// order, and scales them. They come in any order. Where the launch says so (first_stored), the item
// that begins a document's keys stores, and others wait until all of that is in memory: dq need not
// begin as zeros. Or items take turns (tables/sums/item_turns.h): a word of each block of queries
// and head counts the items that have added to it, of which the first one stores what there is, and
// the sender waits for its turn. The others compute on meanwhile: what is behind is a place for dq.
// The last one may have the sums brought, as they are carried within an item, and leave final dq.
// Where bits must be the same and there are no turns, another kernel computes dq.
#include <algorithm>

#include "optimized/attention/dropped.h"
#include "optimized/attention/hopper/backward/launch.h"
#include "optimized/attention/hopper/kernels.h"
#include "optimized/attention/hopper/machine/tensor_map.h"
#include "optimized/attention/mma/kernels.h"
#include "optimized/device/processors.h"

namespace ringside::hopper {
namespace backward_detail {
namespace {

Dq dq_of(const BackwardArguments& a) {
  if (a.deterministic && a.turns == nullptr) return Dq::none;
  if (a.one_item_of_keys || a.final_dq.data != nullptr) return Dq::store;
  return a.dq_layout == AccumulatorLayout::rows ? Dq::add : Dq::add_fragments;
}

// What the launch leaves, of which dq_of() says the type.
const DeviceMatrix& left_dq(const BackwardArguments& a) {
  return a.final_dq.data != nullptr ? a.final_dq : a.dq;
}
// Sums on their way to what is left, if there are some.
const DeviceMatrix& carried_dq(const BackwardArguments& a) {
  return a.final_dq.data != nullptr ? a.dq : a.carried;
}

MapShape shape_of_dq(const BackwardArguments& a) {
  const AttentionShape& s = a.shape;
  return {dq_of(a) == Dq::store ? s.type : ElementType::float32, s.head_dim_qk, s.num_heads};
}

MapShape shape_of_carried(const AttentionShape& s) {
  return {ElementType::float32, s.head_dim_qk, s.num_heads};
}

// Where the launch leaves final dk and dv, if it does.
struct FinalKeys {
  const DeviceMatrix *dk = nullptr, *dv = nullptr;
};
FinalKeys final_keys(const BackwardArguments& a) {
  if (a.accumulate == Accumulate::only) return {&a.dk, &a.dv};
  return a.final_dk.data != nullptr ? FinalKeys{&a.final_dk, &a.final_dv} : FinalKeys{};
}

bool make_maps(Maps& maps, const BackwardArguments& a) {
  const AttentionShape& s = a.shape;
  return make_map(maps.q, a.q, {s.type, s.head_dim_qk, s.num_heads}) &&
         make_map(maps.dout, a.dout, {s.type, s.head_dim_v, s.num_heads}) &&
         make_map(maps.k, a.k, {s.type, s.head_dim_qk, s.num_kv_heads}) &&
         make_map(maps.v, a.v, {s.type, s.head_dim_v, s.num_kv_heads}) &&
         (dq_of(a) == Dq::none || make_map(maps.dq, left_dq(a), shape_of_dq(a))) &&
         (carried_dq(a).data == nullptr ||
          make_map(maps.carried, carried_dq(a), shape_of_carried(s))) &&
         (final_keys(a).dk == nullptr ||
          (make_map(maps.dk, *final_keys(a).dk, {s.type, s.head_dim_qk, s.num_kv_heads}) &&
           make_map(maps.dv, *final_keys(a).dv, {s.type, s.head_dim_v, s.num_kv_heads})));
}

Parameters parameters_of(const BackwardArguments& a, const Maps& maps) {
  const int heads = a.shape.num_kv_heads * a.head_parts;
  const int at_a_time = a.heads_at_a_time > 0 ? std::min(a.heads_at_a_time, heads) : heads;
  return {.maps = maps,
          .shape = a.shape,
          .lse = a.lse,
          .delta = a.delta,
          .work = a.keys,
          .order = {heads, at_a_time},
          .most_heads = a.most_heads,
          .head_parts = a.head_parts,
          .taken = static_cast<unsigned*>(a.workspace),
          .dropped = static_cast<int32_t*>(a.workspace) + 1,
          .turns = a.turns,
          .first_stored = a.first_stored,
          .dk = a.dk,
          .dv = a.dv,
          .is_first = a.accumulate == Accumulate::start,
          .flags = a.accumulate == Accumulate::only ? kFinal : 0,
          .has_final = a.final_dk.data != nullptr};
}

cudaError_t differentiate_keys(const BackwardArguments& a, cudaStream_t stream) {
  const int64_t items = int64_t{a.keys.max_items} * a.shape.num_kv_heads * a.head_parts;
  if (items == 0) return cudaSuccess;
  Maps maps{};
  if (!make_maps(maps, a)) return cudaErrorInvalidValue;
  const cudaError_t error =
      cudaMemsetAsync(a.workspace, 0, backward_workspace_bytes(a.shape), stream);
  if (error != cudaSuccess) return error;
  const dim3 grid(blocks_that_stay(items, a.sm_margin));
  const Parameters parameters = parameters_of(a, maps);
  static_assert(kQueries == kDroppedQueries);
  const auto launch = [&] {
    if (!a.options.empty()) {
      using Dims = OptionDims;
      const OptionParameters with_options{parameters, score_numbers(a.shape, a.options)};
      const Dq dq = dq_of(a);
      return with_options.scores.only_cap() && has_instance(Options::softcap, dq)
                 ? launch_backward<Dims, Options::softcap>(with_options, dq, grid, stream)
                 : launch_backward<Dims, Options::all>(with_options, dq, grid, stream);
    }
    return with_head_dims(a.shape, [&](auto dims) {
      return launch_backward<decltype(dims), Options::none>(parameters, dq_of(a), grid, stream);
    });
  };
  const cudaError_t launched = launch();
  return launched != cudaSuccess
             ? launched
             : add_dropped(a, backward_key_rows(a.shape), parameters.dropped, stream);
}

}  // namespace
}  // namespace backward_detail

int backward_key_rows(const AttentionShape& shape) {
  return with_head_dims(
      shape, [](auto dims) -> int { return backward_detail::Tuning<decltype(dims)>::kKeys; });
}
int backward_whole_key_rows(const AttentionShape& shape) {
  return with_head_dims(shape, [](auto dims) -> int {
    return backward_detail::BackwardShape<decltype(dims)>::kWholeKeys;
  });
}
int backward_head_parts(const AttentionShape& shape) {
  return with_head_dims(shape, [&](auto dims) {
    using Shape = backward_detail::BackwardShape<decltype(dims)>;
    return Shape::kSplit ? 1 : shape.group_size;
  });
}
int64_t backward_workspace_bytes(const AttentionShape&) { return 2 * sizeof(unsigned); }

bool takes(const BackwardArguments& a) {
  const AttentionShape& s = a.shape;
  const int64_t most = kRaggedRows;
  const DeviceMatrix& dq = backward_detail::left_dq(a);
  const bool rows_fit = a.q.rows <= most && a.dout.rows <= most && dq.rows <= most &&
                        a.k.rows <= most && a.v.rows <= most;
  const ElementType result =
      a.accumulate == Accumulate::only ? s.type : ElementType::float32;  // of dk and dv
  const int64_t entries = int64_t{a.keys.max_items} * s.num_kv_heads * a.head_parts;
  return rows_fit && entries < kMostEntries && (knows_options(s) || a.options.empty()) &&
         fits_a_map(a.q, {s.type, s.head_dim_qk, s.num_heads}) &&
         fits_a_map(a.dout, {s.type, s.head_dim_v, s.num_heads}) &&
         fits_a_map(a.k, {s.type, s.head_dim_qk, s.num_kv_heads}) &&
         fits_a_map(a.v, {s.type, s.head_dim_v, s.num_kv_heads}) &&
         fits_a_map(a.dk, {result, s.head_dim_qk, s.num_kv_heads}) &&
         fits_a_map(a.dv, {result, s.head_dim_v, s.num_kv_heads}) &&
         (a.final_dk.data == nullptr ||
          (fits_a_map(a.final_dk, {s.type, s.head_dim_qk, s.num_kv_heads}) &&
           fits_a_map(a.final_dv, {s.type, s.head_dim_v, s.num_kv_heads}))) &&
         (backward_detail::dq_of(a) == backward_detail::Dq::none ||
          fits_a_map(dq, backward_detail::shape_of_dq(a))) &&
         (a.final_dq.data == nullptr ||
          fits_a_map(a.dq, backward_detail::shape_of_carried(a.shape)));
}

bool first_may_store(const BackwardArguments& a) {
  return takes(a) && adds(backward_detail::dq_of(a)) && a.turns == nullptr;
}
bool in_fragments(const BackwardArguments& a) {
  const AttentionShape& s = a.shape;
  return takes(a) && adds(backward_detail::dq_of(a)) && takes_turns(s) &&
         s.head_dim_qk % kFragment == 0;
}

bool takes_turns(const AttentionShape& shape) {
  return with_head_dims(shape, [](auto dims) -> bool {
    return backward_detail::BackwardShape<decltype(dims)>::kTakesTurns;
  });
}
bool rounds_in_turn(const AttentionShape& shape) {
  return with_head_dims(shape, [](auto dims) -> bool {
    return backward_detail::BackwardShape<decltype(dims)>::kCarries;
  });
}

cudaError_t backward(const BackwardArguments& arguments, cudaStream_t stream) {
  if (arguments.one_item_of_keys && arguments.accumulate != Accumulate::only)
    return cudaErrorInvalidValue;
  if (arguments.head_parts != 1 && arguments.accumulate != Accumulate::merge)
    return cudaErrorInvalidValue;
  const bool in_turn = arguments.turns != nullptr;
  if (arguments.final_dk.data != nullptr &&
      (arguments.accumulate == Accumulate::only || arguments.head_parts != 1 || in_turn ||
       arguments.deterministic))
    return cudaErrorInvalidValue;
  if (in_turn && (arguments.accumulate != Accumulate::only || !takes_turns(arguments.shape)))
    return cudaErrorInvalidValue;
  if (in_turn && (arguments.one_item_of_keys || arguments.dq.data == nullptr))
    return cudaErrorInvalidValue;
  if (arguments.final_dq.data != nullptr && !(in_turn && rounds_in_turn(arguments.shape)))
    return cudaErrorInvalidValue;
  if (arguments.first_stored != nullptr && !first_may_store(arguments))
    return cudaErrorInvalidValue;
  if (arguments.dq_layout != AccumulatorLayout::rows && !in_fragments(arguments))
    return cudaErrorInvalidValue;
  const cudaError_t error = backward_detail::differentiate_keys(arguments, stream);
  if (error != cudaSuccess || !arguments.deterministic || in_turn) return error;
  return arguments.options.empty() ? mma::backward_queries(arguments, stream)
                                   : backward_queries_with_options(arguments, stream);
}

}  // namespace ringside::hopper
