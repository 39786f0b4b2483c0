#include "reference/tile_attention.h"

#include <Eigen/Dense>
#include <algorithm>
#include <vector>

#include "reference/partial.h"

namespace ringside {
namespace {

constexpr int kBlockQ = 64, kBlockK = 128;  // scores of a block stay in the second-level cache
constexpr double kNegInf = -std::numeric_limits<double>::infinity();

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
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
      : q_row(task.tile.q.row + begin), size(end - begin), visible_(size) {
    bool first = true;
    for (int i = 0; i < size; ++i) {
      visible_[i] = visible_rows(task.problem, task.tile, begin + i);
      if (visible_[i].size() == 0) continue;
      keys_.begin = first ? visible_[i].begin : std::min(keys_.begin, visible_[i].begin);
      keys_.end = first ? visible_[i].end : std::max(keys_.end, visible_[i].end);
      first = false;
    }
  }

  // visit(keys) for blocks of key rows that together hold all that some row sees.
  template <typename Visit>
  void for_each_key_block(Visit visit) const {
    for (int begin = keys_.begin; begin < keys_.end; begin += kBlockK)
      visit(Interval{begin, std::min(begin + kBlockK, keys_.end)});
  }

  // What row i sees of a key block, counted from the block's first key.
  Interval seen(int i, Interval keys) const {
    const int begin = std::clamp(visible_[i].begin, keys.begin, keys.end) - keys.begin;
    const int end = std::clamp(visible_[i].end, keys.begin, keys.end) - keys.begin;
    return {begin, std::max(begin, end)};
  }

  int q_row, size;  // rows of the resident q buffer

 private:
  std::vector<Interval> visible_;
  Interval keys_;
};

template <typename Visit>  // visit(block) for the valid query rows of the task
void for_each_block(const TileTask& task, Visit visit) {
  const int valid = task.tile.q.rows_below(task.problem.layout_q.len(task.tile.q.seq));
  const int end = std::min(task.q_rows.end, valid);
  for (int begin = task.q_rows.begin; begin < end; begin += kBlockQ)
    visit(Block(task, begin, std::min(begin + kBlockQ, end)));
}

// The online softmax of a block of rows: out and sum are relative to exp(top).
struct RunningSoftmax {
  Vector top, sum;
  Matrix out;

  RunningSoftmax(int rows, int dim)
      : top(Vector::Constant(rows, kNegInf)),
        sum(Vector::Zero(rows)),
        out(Matrix::Zero(rows, dim)) {}

  // Turns scores into exp(score - top), 0 outside `seen`, and rescales what came before.
  void absorb(int i, Eigen::Ref<Eigen::RowVectorXd> scores, Interval seen) {
    auto inside = scores.segment(seen.begin, seen.size()).array();
    scores.head(seen.begin).setZero();
    scores.tail(scores.size() - seen.end).setZero();
    if (seen.size() == 0) return;
    const double new_top = std::max(top(i), inside.maxCoeff());
    const double rescale = std::exp(top(i) - new_top);
    inside = (inside - new_top).exp();
    sum(i) = sum(i) * rescale + inside.sum();
    if (rescale != 1) out.row(i) *= rescale;
    top(i) = new_top;
  }
};

void merge_row(const RunningSoftmax& softmax, int i, double* out, double* lse) {
  if (softmax.sum(i) == 0) return;  // saw nothing
  const auto w = merge_weights(*lse, softmax.top(i) + std::log(softmax.sum(i)));
  const double b = w.b / softmax.sum(i);
  for (Eigen::Index d = 0; d < softmax.out.cols(); ++d)
    out[d] = w.a * out[d] + b * softmax.out(i, d);
  *lse = w.lse;
}

}  // namespace

void tile_forward(const TileTask& task, const ForwardBuffers& x) {
  Matrix scores;
  for_each_block(task, [&](const Block& block) {
    RunningSoftmax softmax(block.size, x.v.dim);
    const auto q = rows(x.q, block.q_row, block.size);
    block.for_each_key_block([&](Interval keys) {
      const int k_row = task.tile.k.row + keys.begin;
      scores.resize(block.size, keys.size());
      scores.noalias() = task.softmax_scale * q * rows(x.k, k_row, keys.size()).transpose();
      for (int i = 0; i < block.size; ++i) softmax.absorb(i, scores.row(i), block.seen(i, keys));
      softmax.out.noalias() += scores * rows(x.v, k_row, keys.size());
    });
    for (int i = 0; i < block.size; ++i)
      merge_row(softmax, i, x.out.row(block.q_row + i), x.lse.row(block.q_row + i));
  });
}

void tile_backward(const TileTask& task, const BackwardBuffers& x) {
  Matrix p, ds, term;
  // Eigen rounds a product by the alignment of its destination: ours is always aligned, so that
  // results never depend on where memory happens to lie.
  const auto add = [&term](auto&& into, const auto& product) {
    term.noalias() = product;
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
      p.noalias() = task.softmax_scale * q * k.transpose();
      ds.noalias() = dout * v.transpose();
      for (int i = 0; i < block.size; ++i) {
        const Interval seen = block.seen(i, keys);
        const double lse = *x.lse.row(block.q_row + i), delta = *x.delta.row(block.q_row + i);
        const auto inside = [&](Matrix& m) {
          return m.row(i).segment(seen.begin, seen.size()).array();
        };
        for (Matrix* m : {&p, &ds}) {
          m->row(i).head(seen.begin).setZero();
          m->row(i).tail(keys.size() - seen.end).setZero();
        }
        inside(p) = (inside(p) - lse).exp();
        inside(ds) = task.softmax_scale * inside(p) * (inside(ds) - delta);
      }
      add(dq, ds * k);
      add(rows(x.dk, k_row, keys.size()), ds.transpose() * q);
      add(rows(x.dv, k_row, keys.size()), p.transpose() * dout);
    });
  });
}

}  // namespace ringside
