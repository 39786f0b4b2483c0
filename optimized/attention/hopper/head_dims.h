// For which head dimensions kernels are compiled.
#pragma once

#include "optimized/attention/kernel.h"

namespace ringside::hopper {

// Head dimensions of q and k, and of v: multiples of 64, which shorter rows are padded to.
template <int Qk, int V>
struct HeadDims {
  static constexpr int kQk = Qk, kV = V;
};

// Of kernels that know score options: shapes that it holds, smaller ones, too.
using OptionDims = HeadDims<128, 128>;

// Calls function(HeadDims<..>{}) with the smallest compiled pair that holds the shape, of which no
// dimension is above 256.
template <typename Function>
auto with_head_dims(const AttentionShape& shape, Function function) {
  const int qk = shape.head_dim_qk, v = shape.head_dim_v, larger = qk > v ? qk : v;
  if (larger <= 64) return function(HeadDims<64, 64>{});
  if (larger <= 128) return function(HeadDims<128, 128>{});
  if (qk <= 192 && v <= 128) return function(HeadDims<192, 128>{});
  return function(HeadDims<256, 256>{});
}

}  // namespace ringside::hopper
