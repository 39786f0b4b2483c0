// Products of weights with rows that are seen only in part.
//
// Weights are 0 where a pair is not seen, so that a dense product does, as long as every row of x
// is finite. 0 * inf and 0 * NaN are NaN, however: numbers that are not finite may meet the pairs
// that are seen and no others. What is finite goes through the same dense product all the same, so
// that results that meet no such number keep their bits.
#pragma once

#include <Eigen/Dense>
#include <cmath>

#include "reference/rows/mask.h"

namespace ringside {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <typename X>
bool all_finite(const X& x) {  // in vectors, as Eigen's allFinite is not
  return (x.array() * 0.0).sum() == 0;
}

template <typename X>
RowMajor finite_part(const X& x) {  // 0 for the rest
  return x.unaryExpr([](double value) { return std::isfinite(value) ? value : 0.0; });
}

template <typename Sum, typename Row>
void add_what_is_not_finite(Sum sum, double weight, const Row& row) {
  for (Eigen::Index d = 0; d < row.size(); ++d)
    if (!std::isfinite(weight) || !std::isfinite(row(d))) sum(d) += weight * row(d);
}

// sum += w x, where row i of w sees the rows seen(i), an Interval, of x.
template <typename X, typename Seen>
void add_over_keys(RowMajor& sum, const RowMajor& w, const X& x, Seen seen) {
  if (all_finite(x)) {
    const RowMajor rows = x;  // Eigen's order of sums depends on how its operands lie
    sum.noalias() += w * rows;
    return;
  }
  const RowMajor weights = finite_part(w), rows = finite_part(x);
  sum.noalias() += weights * rows;
  for (int i = 0; i < w.rows(); ++i)
    for (int j = seen(i).begin; j < seen(i).end; ++j)
      add_what_is_not_finite(sum.row(i), w(i, j), x.row(j));
}

// sum += w^T x: the same pairs, added up for each key.
template <typename X, typename Seen>
void add_over_queries(RowMajor& sum, const RowMajor& w, const X& x, Seen seen) {
  if (all_finite(x)) {
    const RowMajor rows = x;  // as above
    sum.noalias() += w.transpose() * rows;
    return;
  }
  const RowMajor weights = finite_part(w), rows = finite_part(x);
  sum.noalias() += weights.transpose() * rows;
  for (int i = 0; i < w.rows(); ++i)
    for (int j = seen(i).begin; j < seen(i).end; ++j)
      add_what_is_not_finite(sum.row(j), w(i, j), x.row(i));
}

}  // namespace ringside
