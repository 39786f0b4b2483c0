// What every attention kernel family takes, and the table in which they are listed.
//
// A kernel family is one .cu file with a forward and a backward launch for some element types and
// head dimensions. Launches are asynchronous on the caller's stream, allocate nothing and copy
// nothing to the host. Results are merged into float32 accumulators, so that the steps of a plan
// need no further pass:
//
//   out, lse   merged (partial.h): a row that the launch does not see keeps what it had, but for
//              the rounding of lse
//   dq, dk, dv added to
//
// A pair that the mask hides is not computed, whatever its operands hold; a pair that is seen is
// IEEE arithmetic, with weights of exactly 0 for scores of -inf, and NaN in lse and out where a
// score is NaN. lse is +inf where a score is. A weight so small that it is rounded to 0 makes NaN
// of infinity.
//
// Where one launch is all there is, a family may write final results in the operands' type instead,
// rows of its items only: see `is_final`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "optimized/work_list.h"
#include "reference/philox.h"

namespace ringside {

enum class ElementType : int8_t { float32, float16, bfloat16 };

struct DeviceMatrix {  // one operand, [rows, heads, dim], dim contiguous
  void* data = nullptr;
  int64_t row_stride = 0;  // in elements; may exceed 2^31 bytes in total
  int64_t head_stride = 0;
};

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
// not here: the executor merges them, once.
struct ScoreOptions {
  float softcap = 0;                    // 0: none
  const float* alibi_slopes = nullptr;  // [num_heads of the problem], by global head; or none
  Dropout dropout;

  bool empty() const { return softcap == 0 && alibi_slopes == nullptr && dropout.p == 0; }
};

struct ForwardArguments {
  AttentionShape shape;
  DeviceMatrix q, k, v;  // resident buffers
  DeviceMatrix out;      // float32 [rows_q, heads, head_dim_v], merged into
  float* lse = nullptr;  // float32 [rows_q, heads], merged into
  WorkList work;         // items are query blocks of at most the family's forward_rows()
  ScoreOptions options;
  int32_t* max_logit = nullptr;  // [num_heads of the problem] raised to ordered_key(score); or none
  bool out_in_tiles = false;     // out lies as tiled_rows.h says: all heads, row_stride their cells
  bool is_first = false;         // out holds zeros, lse -inf: they need not be read
  bool is_final = false;         // likewise, and out is written in shape.type
};

struct BackwardArguments {
  AttentionShape shape;
  DeviceMatrix q, k, v, dout;
  const float* lse = nullptr;    // [rows_q, heads] of the merged result
  const float* delta = nullptr;  // [rows_q, heads] dout . out of the merged result
  DeviceMatrix dq, dk, dv;       // float32, added to
  WorkList queries;              // items are query blocks: for dq, where it is computed apart
  WorkList keys;                 // items are key blocks
  bool deterministic = false;    // bit-equal results from run to run
  ScoreOptions options;
  bool is_first = false;  // dk and dv are zeros: they may be written instead of added to
  bool is_final = false;  // dk, dv and, where deterministic, dq are written in shape.type
  // Likewise, and so is dq, by the one item of keys that each query meets; deterministic then.
  bool is_alone = false;
};

struct KernelFamily {
  const char* name;
  bool (*supports)(const AttentionShape& shape);
  int (*forward_rows)(const AttentionShape& shape);  // query rows of a forward item
  int (*backward_query_rows)(const AttentionShape& shape);
  int (*backward_key_rows)(const AttentionShape& shape);
  cudaError_t (*forward)(const ForwardArguments& arguments, cudaStream_t stream);
  cudaError_t (*backward)(const BackwardArguments& arguments, cudaStream_t stream);
  bool score_options = false;  // whether it knows softcap, ALiBi and dropout
  bool final_results = false;  // whether it knows `is_final`
  bool tiled_results = false;  // whether it knows `out_in_tiles`, and prefers it
};

int processors_of_device();  // the current one's

std::span<const KernelFamily> kernel_families();  // the preferred one first

// The preferred family for a shape; nullptr if there is none.
const KernelFamily* find_family(const AttentionShape& shape, bool with_score_options);

// The families, one a pair of .cu files; kernel_families.cpp lists them.
KernelFamily float32_family();
KernelFamily mma_family();  // bfloat16 and float16 on the tensor cores

}  // namespace ringside
