// The keywords of attention() besides its arrays.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "bindings/core/arrays.h"
#include "reference/attention_options.h"

namespace ringside::bindings {

struct OptionsArgument {
  std::optional<double> softmax_scale;  // none: 1/sqrt(head_dim_qk)
  double softcap = 0;
  std::optional<DoubleArray> sink, alibi_slopes;  // one number, or one a head
  double dropout_p = 0;
  uint64_t dropout_seed = 0;
  std::pair<int, int> dropout_origin;  // see Dropout::first_seq, first_q

  AttentionOptions resolve(int num_heads, int head_dim_qk) const;  // checks everything
};

}  // namespace ringside::bindings
