// For which head dimensions kernels are compiled.
#pragma once

#include "optimized/attention/kernel.h"

namespace ringside::hopper {

// Head dimensions of q and k, and of v: multiples of 64, which shorter rows are padded to.
template <int Qk, int V>
struct HeadDims {
  static constexpr int kQk = Qk, kV = V;
};

template <typename Dims>
bool fits_in(const AttentionShape& shape) {
  return shape.head_dim_qk <= Dims::kQk && shape.head_dim_v <= Dims::kV;
}

// Of kernels that know softcap or dropout, and of those that know options backward: for all shapes
// that it holds.
using OptionDims = HeadDims<128, 128>;

// Calls function(HeadDims<..>{}) with the smallest compiled pair that holds the shape, of which no
// dimension is above 256.
template <typename Function>
auto with_head_dims(const AttentionShape& shape, Function function) {
  if (fits_in<HeadDims<64, 64>>(shape)) return function(HeadDims<64, 64>{});
  if (fits_in<HeadDims<128, 128>>(shape)) return function(HeadDims<128, 128>{});
  if (fits_in<HeadDims<192, 128>>(shape)) return function(HeadDims<192, 128>{});
  if (fits_in<HeadDims<192, 192>>(shape)) return function(HeadDims<192, 192>{});
  return function(HeadDims<256, 256>{});
}

}  // namespace ringside::hopper
