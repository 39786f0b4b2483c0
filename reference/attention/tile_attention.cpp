#include "reference/attention/tile_attention.h"

#include <Eigen/Dense>
#include <algorithm>
#include <vector>

#include "reference/attention/partial.h"
#include "reference/attention/score_model.h"
#include "reference/attention/seen_product.h"
#include "reference/support/interrupt.h"

namespace ringside::RINGSIDE_CPU_LEVEL {  // once for each level of processor: cpu_kernels.h
namespace {

constexpr int kBlockQ = 64, kBlockK = 128;  // scores of a block stay in the second-level cache
constexpr double kNegInf = -std::numeric_limits<double>::infinity();

using Matrix = RowMajor;
using Vector = Eigen::VectorXd;
template <typename Scalar>
using Rows = Eigen::Map<std::conditional_t<std::is_const_v<Scalar>, const Matrix, Matrix>, 0,
                        Eigen::OuterStride<>>;

template <typename Scalar>
Rows<Scalar> rows(const HeadRows<Scalar>& x, int begin, int count) {
  return Rows<Scalar>(x.row(begin), count, x.dim, Eigen::OuterStride<>(x.stride));
}

// Some query rows of a tile and, for each, the interval of key rows it sees.
class Block {
 public:
  Block(const TileTask& task, int begin, int end)
      : first(begin), q_row(task.tile.q.row + begin), size(end - begin), visible_(size) {
    bool none_yet = true;
    for (int i = 0; i < size; ++i) {
      visible_[i] = visible_rows(task.problem, task.tile, begin + i);
      if (visible_[i].size() == 0) continue;
      keys_.begin = none_yet ? visible_[i].begin : std::min(keys_.begin, visible_[i].begin);
      keys_.end = none_yet ? visible_[i].end : std::max(keys_.end, visible_[i].end);
      none_yet = false;
    }
  }

  // visit(keys) for blocks of key rows that together hold all that some row sees.
  template <typename Visit>
  void for_each_key_block(Visit visit) const {
    for (int begin = keys_.begin; begin < keys_.end; begin += kBlockK) {
      check_interrupt(int64_t{kBlockQ} * kBlockK);
      visit(Interval{begin, std::min(begin + kBlockK, keys_.end)});
    }
  }

  // What row i sees of a key block, counted from the block's first key.
  Interval seen(int i, Interval keys) const {
    const int begin = std::clamp(visible_[i].begin, keys.begin, keys.end) - keys.begin;
    const int end = std::clamp(visible_[i].end, keys.begin, keys.end) - keys.begin;
    return {begin, std::max(begin, end)};
  }

  int first, q_row, size;  // the first row, counted in tile.q and in the resident buffer

 private:
  std::vector<Interval> visible_;
  Interval keys_;
};

template <typename Visit>  // visit(block) for the valid query rows of the task
void for_each_block(const TileTask& task, Visit visit) {
  const int valid = task.tile.q.rows_below(task.problem.layout_q.len(task.tile.q.seq));
  const int end = std::min(task.q_rows.end, valid);
  for (int begin = task.q_rows.begin; begin < end; begin += kBlockQ) {
    check_interrupt(kBlockQ);
    visit(Block(task, begin, std::min(begin + kBlockQ, end)));
  }
}

using Row = Eigen::Ref<Eigen::RowVectorXd>;

// The score model along one query row of a tile, whose keys have the rows first, first+1, ...
class RowModel {
 public:
  RowModel(const TileTask& task, int i)  // i counts in tile.q
      : k_(task.tile.k),
        q_(task.tile.q.position(i)),
        model_{task.options,
               {task.problem.mask, task.problem.layout_q.len(task.tile.q.seq),
                task.problem.layout_k.len(task.tile.q.seq)},
               task.options.softmax_scale,
               task.options.alibi_slope(task.head),
               task.tile.q.seq,
               task.head} {}

  // Turns softmax_scale * q.k into scores. By which factors they change with q.k, in `slopes`.
  void finish(Row scores, int first, double* slopes) const {
    if (model_.only_scales()) {
      if (slopes) std::fill_n(slopes, scores.size(), model_.scale);
      return;
    }
    double slope;
    for (Eigen::Index j = 0; j < scores.size(); ++j)
      scores(j) = model_.score(scores(j), q_, key(first, j), slopes ? slopes + j : &slope);
  }

  // Zeroes what dropout drops and divides the rest by the chance to stay.
  void drop(Row weights, int first) const {
    if (model_.options.dropout.p == 0) return;
    for (Eigen::Index j = 0; j < weights.size(); ++j)
      weights(j) = model_.kept(weights(j), q_, key(first, j));
  }

 private:
  int key(int first, Eigen::Index j) const { return k_.position(first + static_cast<int>(j)); }

  const Segment& k_;
  int q_;
  ScoreModel<double, AttentionOptions> model_;
};

// Turns scores into exp(score - shift): nothing for a score of -inf, something for every other one,
// so that an infinite value stays infinite where a weight would round to 0. NaN shifts make NaNs.
void to_weights(Row scores, double shift) {
  if (!std::isnan(shift) && scores.minCoeff<Eigen::PropagateNumbers>() == kNegInf) {
    for (double& x : scores)
      x = x == kNegInf ? 0.0 : std::max(std::exp(x - shift), kLeastWeight);  // NaN stays
  } else {
    scores = (scores.array() - shift).exp();
    for (Eigen::Index j = 0; j < scores.size(); ++j)
      scores.data()[j] = scores.data()[j] < kLeastWeight ? kLeastWeight : scores.data()[j];
  }
}

// The online softmax of a block of rows: out and sum are relative to exp(top).
struct RunningSoftmax {
  Vector top, sum;
  Matrix out;

  RunningSoftmax(int rows, int dim)
      : top(Vector::Constant(rows, kNegInf)),
        sum(Vector::Zero(rows)),
        out(Matrix::Zero(rows, dim)) {}

  // Turns the scores of row i into exp(score - top) and rescales what came before.
  void absorb(int i, Row scores) {
    const double new_top = larger(top(i), scores.maxCoeff<Eigen::PropagateNaN>());
    const double rescale =
        top(i) == new_top ? 1 : std::max(std::exp(top(i) - new_top), kLeastWeight);  // NaN stays
    to_weights(scores, new_top == kNegInf ? 0.0 : new_top);
    sum(i) = sum(i) * rescale + scores.sum();
    if (rescale != 1) out.row(i) *= rescale;
    top(i) = new_top;
  }

  double lse(int i) const { return std::isinf(top(i)) ? top(i) : top(i) + std::log(sum(i)); }
};

// Sets a row to 0 outside the interval it sees and returns what is inside.
Row inside(Matrix& block, int i, Interval seen) {
  block.row(i).head(seen.begin).setZero();
  block.row(i).tail(block.cols() - seen.end).setZero();
  return block.row(i).segment(seen.begin, seen.size());
}

void merge_row(const RunningSoftmax& softmax, int i, double* out, double* lse) {
  const auto w = merge_weights(*lse, softmax.lse(i));
  const double b = softmax.sum(i) == 0 ? 0.0 : w.b / softmax.sum(i);  // 0: saw nothing but -inf
  for (Eigen::Index d = 0; d < softmax.out.cols(); ++d)
    out[d] = w.a * out[d] + b * softmax.out(i, d);
  *lse = w.lse;
}

// One row of the backward pass between its two pairs of matrix products.
struct RowGradient {
  RowModel model;
  int first;  // key row
  double lse, delta;

  // p: from softmax_scale * q.k to the weights that meet v. ds: from dout.v to the gradient of q.k.
  void from_products(Row p, Row ds) const {
    Eigen::RowVectorXd slopes(p.size());
    model.finish(p, first, slopes.data());
    to_weights(p, lse);
    model.drop(ds, first);
    ds = p.array() * (ds.array() - delta) * slopes.array();
    model.drop(p, first);
  }
};

}  // namespace

void tile_forward(const TileTask& task, const ForwardBuffers& x) {
  Matrix scores;
  for_each_block(task, [&](const Block& block) {
    RunningSoftmax softmax(block.size, x.v.dim);
    const auto q = rows(x.q, block.q_row, block.size);
    block.for_each_key_block([&](Interval keys) {
      const int k_row = task.tile.k.row + keys.begin;
      scores.resize(block.size, keys.size());
      scores.noalias() = task.options.softmax_scale * q * rows(x.k, k_row, keys.size()).transpose();
      for (int i = 0; i < block.size; ++i) {
        const Interval seen = block.seen(i, keys);
        Row row = inside(scores, i, seen);
        if (seen.size() == 0) continue;
        const RowModel model(task, block.first + i);
        model.finish(row, keys.begin + seen.begin, nullptr);
        softmax.absorb(i, row);
        model.drop(row, keys.begin + seen.begin);
      }
      add_over_keys(softmax.out, scores, rows(x.v, k_row, keys.size()),
                    [&](int i) { return block.seen(i, keys); });
    });
    *x.max_logit = larger(*x.max_logit, softmax.top.maxCoeff<Eigen::PropagateNaN>());
    for (int i = 0; i < block.size; ++i)
      merge_row(softmax, i, x.out.row(block.q_row + i), x.lse.row(block.q_row + i));
  });
}

void tile_backward(const TileTask& task, const BackwardBuffers& x) {
  Matrix p, ds, term;
  // Eigen rounds a product by the alignment of its destination: ours is always aligned, so that
  // results never depend on where memory happens to lie.
  const auto add = [&term](auto into, auto add_product) {
    term.setZero(into.rows(), into.cols());
    add_product(term);
    into += term;
  };
  for_each_block(task, [&](const Block& block) {
    const auto q = rows(x.q, block.q_row, block.size);
    const auto dout = rows(x.dout, block.q_row, block.size);
    auto dq = rows(x.dq, block.q_row, block.size);
    block.for_each_key_block([&](Interval keys) {
      const int k_row = task.tile.k.row + keys.begin;
      const auto k = rows(x.k, k_row, keys.size());
      const auto v = rows(x.v, k_row, keys.size());
      p.resize(block.size, keys.size());
      ds.resize(block.size, keys.size());
      p.noalias() = task.options.softmax_scale * q * k.transpose();
      ds.noalias() = dout * v.transpose();
      for (int i = 0; i < block.size; ++i) {
        const Interval seen = block.seen(i, keys);
        Row p_row = inside(p, i, seen), ds_row = inside(ds, i, seen);
        if (seen.size() == 0) continue;
        const RowGradient row{RowModel(task, block.first + i), keys.begin + seen.begin,
                              *x.lse.row(block.q_row + i), *x.delta.row(block.q_row + i)};
        row.from_products(p_row, ds_row);
      }
      const auto seen = [&](int i) { return block.seen(i, keys); };
      add(dq, [&](Matrix& sum) { add_over_keys(sum, ds, k, seen); });
      add(rows(x.dk, k_row, keys.size()), [&](Matrix& sum) { add_over_queries(sum, ds, q, seen); });
      add(rows(x.dv, k_row, keys.size()),
          [&](Matrix& sum) { add_over_queries(sum, p, dout, seen); });
    });
  });
}

}  // namespace ringside::RINGSIDE_CPU_LEVEL
