// One tile of one head, on the CPU: the arithmetic of attention between some resident query rows
// and some resident key rows, forward and backward.
//
// Padding rows and keys outside the visible interval are never read. Scores outside it count as
// -inf.
#pragma once

#include <cstddef>

#include "reference/attention/attention_options.h"
#include "reference/plan/plan.h"

namespace ringside {

template <typename Scalar>  // double or const double
struct HeadRows {           // one head of a [rows, heads, dim] buffer
  Scalar* data = nullptr;
  std::ptrdiff_t stride = 0;  // elements from one row to the next
  int dim = 0;

  Scalar* row(int i) const { return data + i * stride; }
  HeadRows from(int row) const { return {data + row * stride, stride, dim}; }
};
using In = HeadRows<const double>;
using Out = HeadRows<double>;

struct TileTask {
  const Problem& problem;
  const Tile& tile;
  Interval q_rows;  // which rows of tile.q, counted from its first
  const AttentionOptions& options;
  int head;  // the query head, numbered globally
};

struct ForwardBuffers {  // rows are rows of the resident buffers
  In q, k, v;
  Out out, lse;       // merged into
  double* max_logit;  // raised to the largest score
};
void tile_forward(const TileTask& task, const ForwardBuffers& x);

struct BackwardBuffers {
  In q, k, v, dout;
  In lse, delta;   // of the merged result: delta_i = dout_i . out_i
  Out dq, dk, dv;  // added to
};
void tile_backward(const TileTask& task, const BackwardBuffers& x);

}  // namespace ringside
