// The options of attention() on their way in. Each struct that holds them has its reason:
//
//   ringside.Options   Python: what a user says, in whichever library's numbers and arrays
//   OptionsArgument    that, as C++ types: legal numbers, while nobody knows yet how many heads and
//                      dimensions the arrays will have
//   AttentionOptions   resolved for these: what the CPU computes with (reference/)
//   CallOptions        OptionsArgument for a GPU: what is per head lies there and is not read here
//                      (bindings/cuda/program.cpp)
//   ProgramOptions     of those the ones that a program is made for (optimized/program/)
//   ScoreOptions       of those the ones that come with each call, as a kernel takes them
//                      (optimized/attention/)
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "bindings/core/arrays.h"
#include "reference/attention/attention_options.h"

namespace ringside::bindings {

struct OptionsArgument {                // as ringside._core has it, too
  std::optional<double> softmax_scale;  // none: 1/sqrt(head_dim_qk)
  double softcap = 0;
  std::optional<DoubleArray> sink, alibi_slopes;  // one number, or one a head
  double dropout_p = 0;
  uint64_t dropout_seed = 0;
  std::pair<int, int> dropout_origin;  // see Dropout::first_seq, first_q

  void check() const;  // what can be said without knowing the arrays
  AttentionOptions resolve(int num_heads, int head_dim_qk) const;  // checks what is per head
};

}  // namespace ringside::bindings
