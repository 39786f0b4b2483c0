// What every attention kernel family takes, and the table in which they are listed.
//
// A kernel family is a folder with a forward and a backward launch for some element types, head
// dimensions and devices. Launches are asynchronous on the caller's stream, allocate nothing and
// copy nothing to the host. Results are merged into float32 accumulators, so that the steps of a
// plan need no further pass:
//
//   out, lse   merged (partial.h): a row that the launch does not see keeps what it had, but for
//              the rounding of lse
//   dq, dk, dv added to
//
// A pair that is not seen is not computed: infinities and NaN in q, k, v, dout, lse and delta reach
// results through the pairs that are seen alone, by IEEE arithmetic. There a weight may round to 0.
//
// Where one launch is all there is, a family may write final results in the operands' type instead,
// rows of its items only: see Accumulate::only. Of several, items may say so (kAloneBehind).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "optimized/device/properties.h"
#include "optimized/device/types.h"
#include "optimized/tables/accumulator_tiles.h"
#include "optimized/tables/work_list.h"
#include "reference/attention/philox.h"

namespace ringside {

struct AttentionShape {
  int num_heads = 1, num_kv_heads = 1;    // resident ones
  int first_head = 0, first_kv_head = 0;  // global numbers of resident head 0: head h (global) uses
  int group_size = 1;                     // kv head h / group_size (global)
  int head_dim_qk = 0, head_dim_v = 0;
  float softmax_scale = 1;
  ElementType type = ElementType::float32;  // of q, k, v, dout
};

// What lies between q.k and the softmax, and between the softmax and v: attention_options.h. Only
// families that say so (KernelFamily::score_options) are given other values than these. Sinks are
// not here: the executor merges them, once, or the one launch that there is (final_sinks).
struct ScoreOptions {
  float softcap = 0;                    // 0: none
  const float* alibi_slopes = nullptr;  // [num_heads of the problem], by global head; or none
  Dropout dropout;

  bool empty() const { return softcap == 0 && alibi_slopes == nullptr && dropout.p == 0; }
};

// What a launch finds in its results, and what it leaves there.
enum class Accumulate : uint8_t {
  merge,  // results of launches before it, in float32: it goes on from them, unless an item says
          // that there are none (kAloneBefore)
  start,  // zeros, and lse -inf, or nothing of meaning where a family starts anew (KernelFamily):
          // they need not be read. Others may come after it
  only,   // nothing of meaning, and nobody comes after: results are final, in shape.type
};

struct ForwardArguments {
  AttentionShape shape;
  DeviceMatrix q, k, v;  // resident buffers
  DeviceMatrix out;      // float32 [rows_q, heads, head_dim_v], merged into
  // Where items that say so leave final results, in shape.type, of a family that knows these: the
  // launch is `merge` or `start`, and leaves out of their rows as it was, or anything. Or none.
  DeviceMatrix final_out{};
  DeviceScalars lse;  // [rows_q, heads], merged into
  WorkList work;      // items are query blocks of at most the family's forward_rows()
  ScoreOptions options;
  // [num_heads of the problem] merged into final results, `only` and families that say so; or none
  const float* sinks = nullptr;
  int32_t* max_logit = nullptr;  // [num_heads of the problem] raised to ordered_key(score); or none
  // Of out; where it lies in tiles, it has all heads, and row_stride is their cells.
  AccumulatorLayout layout = AccumulatorLayout::rows;
  Accumulate accumulate = Accumulate::merge;  // into out and lse
  void* workspace = nullptr;                  // forward_workspace_bytes(), which hold anything
  int sm_margin = 0;  // multiprocessors that a grid which stays on them leaves to other kernels
};

struct BackwardArguments {
  AttentionShape shape;
  DeviceMatrix q, k, v, dout;
  DeviceScalars lse;                    // [rows_q, heads] of the merged result
  DeviceScalars delta;                  // [rows_q, heads] dout . out of the merged result
  DeviceMatrix dq, dk, dv;              // float32, added to
  DeviceMatrix final_dk{}, final_dv{};  // as final_out: of items that say so; or none
  WorkList queries;            // items are query blocks: for dq, where it is computed apart
  WorkList keys;               // items are key blocks
  bool deterministic = false;  // bit-equal results from run to run
  ScoreOptions options;
  Accumulate accumulate = Accumulate::merge;  // into dk and dv; dq is added to, or, where this is
                                              // `only` and the launch deterministic, final, too
  // Of `only`: no query meets two items of keys. So each dq has one writer, which writes it final,
  // and `deterministic` need not be asked for.
  bool one_item_of_keys = false;
  void* workspace = nullptr;  // backward_workspace_bytes(), which hold anything
  // Where items of keys may have up to backward_whole_key_rows(), each of one segment of queries:
  // float32 [rows_q, heads, head_dim_qk], neighbours, which hold anything. Or none.
  DeviceMatrix carried{};
  // Of a launch of items_in_turn() that a family says it takes: [rows_q, heads], zeros. Such a
  // launch is deterministic, and sums dq up in float32, whatever `accumulate` is, where anything
  // may lie: rows that meet no item keep it.
  unsigned* turns = nullptr;
  // Of such a launch of a family that rounds_in_turn, or none: where final dq go, of rows that meet
  // items; what dq then hold, nobody asks.
  DeviceMatrix final_dq{};
  // Of a launch that a family says it takes so: [sequences, key heads x head_parts], zeros. Items
  // that begin their document's keys store dq, which holds anything, and others add to it behind
  // them (OperationTables::first_keys_ahead): rows that meet no item keep what they had.
  unsigned* first_stored = nullptr;
  // Of sums of dq, of a launch that a family says it takes so: they lack softmax_scale then.
  AccumulatorLayout dq_layout = AccumulatorLayout::rows;  // or fragments
  // In so many parts a launch may take the query heads that share a key head, each adding to dk and
  // dv: `accumulate` is merge. At most backward_head_parts().
  int head_parts = 1;
  // Of how many key heads, as many times as their query heads have parts, items are taken at a
  // time; 0: all.
  int heads_at_a_time = 2;
  // Of a list by document whose lengths only the device knows: of so many at most. Or none.
  const int32_t* most_heads = nullptr;
  int sm_margin = 0;  // as in ForwardArguments
};

struct KernelFamily {
  using BytesOfShape = int64_t (*)(const AttentionShape& shape);
  using TrueOfShape = bool (*)(const AttentionShape& shape);
  static bool always(const AttentionShape&) { return true; }
  static bool never(const AttentionShape&) { return false; }

  const char* name;
  bool (*supports)(const AttentionShape& shape, const DeviceProperties& device);
  int (*forward_rows)(const AttentionShape& shape);  // query rows of a forward item
  int (*backward_query_rows)(const AttentionShape& shape);
  int (*backward_key_rows)(const AttentionShape& shape);
  cudaError_t (*forward)(const ForwardArguments& arguments, cudaStream_t stream);
  cudaError_t (*backward)(const BackwardArguments& arguments, cudaStream_t stream);
  TrueOfShape score_options = never;  // whether it knows softcap, ALiBi and dropout
  TrueOfShape final_sinks = never;    // whether it merges sinks into final results
  bool final_results = false;         // whether it knows Accumulate::only, and final items
  bool starts_anew = false;           // whether Accumulate::start stores in all rows of its items
  bool by_document = false;           // whether forward items of a document go together: ItemOrder
  bool tiled_results = false;         // whether it knows AccumulatorLayout::tiles, and prefers them
  // What a launch needs besides its arguments, of the caller's memory, at multiples of 256 bytes;
  // null: nothing. Launches on one stream may share it.
  BytesOfShape forward_workspace_bytes = nullptr;
  BytesOfShape backward_workspace_bytes = nullptr;
  // Key rows of a backward item of BackwardArguments::one_item_of_keys, where a family knows
  // `carried`; null: no more than of others.
  int (*backward_whole_key_rows)(const AttentionShape& shape) = nullptr;
  // BackwardArguments::head_parts that make launches quicker, sums included: as many as there are
  // query heads to a key head, where it knows parts; null: 1.
  int (*backward_head_parts)(const AttentionShape& shape) = nullptr;
  // Whether it takes such a launch with `turns`; null: none.
  bool (*backward_in_turn)(const BackwardArguments& arguments) = nullptr;
  // Likewise of one with `first_stored`.
  bool (*backward_first_stores)(const BackwardArguments& arguments) = nullptr;
  // Likewise of one that sums dq up in fragments, and is quicker so.
  bool (*backward_in_fragments)(const BackwardArguments& arguments) = nullptr;
  int heads_at_a_time = 1;  // key heads that backward launches of long documents run best with
  TrueOfShape rounds_in_turn = never;  // whether launches with `turns` know `final_dq`
  // Whether launches with any arguments that it knows take an array of so many heads where it lies;
  // null: all that begin at multiples of 16 bytes, as their rows and heads do.
  bool (*takes_array)(const DeviceMatrix& matrix, ElementType type, int heads) = nullptr;
  int64_t most_rows = INT64_MAX;  // of an array
};

std::span<const KernelFamily> kernel_families();  // the preferred one first

// The preferred family for a shape, and arrays of so many rows, on a device; nullptr if there is
// none.
const KernelFamily* find_family(const AttentionShape& shape, const DeviceProperties& device,
                                bool with_score_options, int64_t rows = 0);
// Likewise among some.
const KernelFamily* find_family(std::span<const KernelFamily> families, const AttentionShape& shape,
                                const DeviceProperties& device, bool with_score_options,
                                int64_t rows = 0);

// The families, a folder each; families.cpp lists them.
KernelFamily float32_family();
KernelFamily mma_family();     // bfloat16 and float16 on the tensor cores
KernelFamily hopper_family();  // the same on compute capability 9.0

}  // namespace ringside
