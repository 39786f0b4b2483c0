// Dense [rows, heads, dim] arrays of float64 in row-major order (THD), and what can be moved of
// them.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "reference/rows/mask.h"

namespace ringside {

struct TensorView {
  const double* data = nullptr;
  int rows = 0, heads = 0, dim = 0;

  const double* at(int row, int head) const {
    return data + (static_cast<std::ptrdiff_t>(row) * heads + head) * dim;
  }
};

struct Tensor {
  int rows = 0, heads = 0, dim = 0;
  std::vector<double> data;

  Tensor() = default;
  Tensor(int rows_, int heads_, int dim_, double fill)
      : rows(rows_),
        heads(heads_),
        dim(dim_),
        data(static_cast<std::size_t>(rows_) * heads_ * dim_, fill) {}

  double* at(int row, int head) {
    return data.data() + (static_cast<std::ptrdiff_t>(row) * heads + head) * dim;
  }
  const double* at(int row, int head) const { return const_cast<Tensor*>(this)->at(row, head); }
  operator TensorView() const { return {data.data(), rows, heads, dim}; }
};

// What memory holds before anything arrived: whoever reads it, shows it.
inline constexpr double kPoison = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kNegInf = -std::numeric_limits<double>::infinity();

// One tensor a rank, in that rank's own memory.
using PerRank = std::vector<Tensor>;

// Merges the partial result of one row and head into another (partial.h).
void merge_cell(double* out, double* lse, int dim, const double* other_out, double other_lse);

// A partial result of every resident query row; see partial.h.
struct Partial {
  Tensor out;  // [rows, heads, head_dim_v]
  Tensor lse;  // [rows, heads, 1]

  Partial(int rows, int heads, int head_dim_v)
      : out(rows, heads, head_dim_v, 0.0), lse(rows, heads, 1, kNegInf) {}

  // Adds what another rank or tile saw of one row and head; see merge_cell().
  void merge(int row, int head, const double* other_out, double other_lse);
};

}  // namespace ringside
