#include "reference/oracle.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "reference/interrupt.h"

namespace ringside::oracle::RINGSIDE_CPU_LEVEL {  // once for each level: cpu_kernels.h
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;
using Allowed = Eigen::Array<bool, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename M>
using Rows = Eigen::Map<M, 0, Eigen::OuterStride<>>;  // [tokens, dim] of one head of one sequence

constexpr double kNegInf = -std::numeric_limits<double>::infinity();
constexpr int kPairsOfBlock = 1 << 20;  // dense at a time: some megabytes, a tenth of a second

struct Block {  // some queries of one sequence, which meet all its keys
  int seq, first, size;
};

template <typename Scalar>  // data: [rows, heads, dim]; Scalar is double or const double
auto rows_of(Scalar* data, const PackedLayout& layout, Block rows, int head, int heads, int dim) {
  using M = std::conditional_t<std::is_const_v<Scalar>, const Matrix, Matrix>;
  const auto row = static_cast<Eigen::Index>(layout.row_begin(rows.seq)) + rows.first;
  return Rows<M>(data + (row * heads + head) * dim, rows.size, dim,
                 Eigen::OuterStride<>(heads * dim));
}

Block all_of(const PackedLayout& layout, int seq) { return {seq, 0, layout.len(seq)}; }

Allowed allowed_pairs(const Attention& a, Block block) {
  const int len_q = a.layout_q.len(block.seq), len_k = a.layout_k.len(block.seq);
  Allowed allowed(block.size, len_k);
  for (int i = 0; i < block.size; ++i)
    for (int k = 0; k < len_k; ++k) allowed(i, k) = a.mask.allows(block.first + i, k, len_q, len_k);
  return allowed;
}

// One head of some queries.
struct Head {
  const Attention& a;
  Block block;
  int head;
  int kv_head = head / (a.num_heads / a.num_kv_heads);

  template <typename Scalar>
  auto q(Scalar* x) const {
    return rows_of(x, a.layout_q, block, head, a.num_heads, a.head_dim_qk);
  }
  template <typename Scalar>
  auto k(Scalar* x) const {
    return rows_of(x, a.layout_k, all_of(a.layout_k, block.seq), kv_head, a.num_kv_heads,
                   a.head_dim_qk);
  }
  template <typename Scalar>
  auto v(Scalar* x) const {
    return rows_of(x, a.layout_k, all_of(a.layout_k, block.seq), kv_head, a.num_kv_heads,
                   a.head_dim_v);
  }
  template <typename Scalar>
  auto out(Scalar* x) const {
    return rows_of(x, a.layout_q, block, head, a.num_heads, a.head_dim_v);
  }
  template <typename Scalar>
  auto lse(Scalar* x) const {
    using V = std::conditional_t<std::is_const_v<Scalar>, const Vector, Vector>;
    const auto first = static_cast<Eigen::Index>(head) * a.layout_q.num_rows();
    return Eigen::Map<V>(x + first + a.layout_q.row_begin(block.seq) + block.first, block.size);
  }

  double sink() const { return a.options.sinks.empty() ? kNegInf : a.options.sinks[head]; }

  Matrix capped(const Arrays& x) const {  // softmax_scale * q.k, soft-capped
    const Matrix s = a.options.softmax_scale * (q(x.q) * k(x.k).transpose());
    const double cap = a.options.softcap;
    return cap == 0 ? s : Matrix(cap * (s.array() / cap).tanh());
  }

  Matrix scores(const Arrays& x) const {
    const int len_q = a.layout_q.len(block.seq), len_k = a.layout_k.len(block.seq);
    Matrix s = capped(x);
    for (int i = 0; i < block.size; ++i)
      for (int j = 0; j < len_k; ++j)
        s(i, j) -= a.options.alibi_slope(head) *
                   static_cast<double>(std::abs(a.mask.aligned(block.first + i, len_q, len_k) - j));
    return s;
  }

  // exp(s - lse) where allowed, 0 elsewhere.
  Matrix probabilities(const Arrays& x, const Allowed& allowed, const Vector& lse) const {
    const Matrix shifted = scores(x).colwise() - lse;
    return allowed.select(shifted.array().exp(), 0.0);
  }

  Matrix dropout() const {  // 0 where dropped, 1/(1-p) elsewhere
    const Dropout& d = a.options.dropout;
    Matrix kept(block.size, a.layout_k.len(block.seq));
    for (int i = 0; i < kept.rows(); ++i)
      for (int j = 0; j < kept.cols(); ++j)
        kept(i, j) = d.p == 0 ? 1.0 : d.keeps(block.seq, head, block.first + i, j) / (1 - d.p);
    return kept;
  }
};

template <typename Visit>  // visit(head, allowed) for every head of every block of queries
void for_each_head(const Attention& a, Visit visit) {
  for (int seq = 0; seq < a.layout_q.batch(); ++seq) {
    const int len_q = a.layout_q.len(seq);
    const int rows = std::max(1, kPairsOfBlock / std::max(1, a.layout_k.len(seq)));
    for (int first = 0; first < len_q; first += std::min(rows, len_q - first)) {
      const Block block{seq, first, std::min(rows, len_q - first)};
      check_interrupt();
      const Allowed allowed = allowed_pairs(a, block);
      for (int head = 0; head < a.num_heads; ++head) {
        check_interrupt();
        visit(Head{a, block, head}, allowed);
      }
    }
  }
}

Vector log_sum_exp(const Matrix& masked) {
  if (masked.cols() == 0) return Vector::Constant(masked.rows(), kNegInf);
  const Vector top = masked.rowwise().maxCoeff();
  const Vector finite_top = (top.array() == kNegInf).select(0.0, top);  // -inf - -inf is NaN
  const auto shifted = (masked.colwise() - finite_top).array();
  return finite_top.array() + shifted.exp().rowwise().sum().log();
}

Vector add_sink(const Vector& lse, double sink) {  // log(exp(lse) + exp(sink))
  return lse.unaryExpr([sink](double x) {
    const double top = std::max(x, sink);
    return top == kNegInf ? top : top + std::log(std::exp(x - top) + std::exp(sink - top));
  });
}

std::size_t count(const PackedLayout& layout, int heads, int dim) {
  return static_cast<std::size_t>(layout.num_rows()) * heads * dim;
}

}  // namespace

Result forward(const Attention& a, const Arrays& x) {
  Result result{std::vector<double>(count(a.layout_q, a.num_heads, a.head_dim_v), 0.0),
                std::vector<double>(count(a.layout_q, a.num_heads, 1), kNegInf),
                std::vector<double>(a.num_heads, kNegInf)};
  for_each_head(a, [&](const Head& head, const Allowed& allowed) {
    const Matrix masked = allowed.select(head.scores(x).array(), kNegInf);
    const Vector lse = add_sink(log_sum_exp(masked), head.sink());
    const Matrix p = head.probabilities(x, allowed, lse);
    head.lse(result.lse.data()) = lse;
    head.out(result.out.data()) = p.cwiseProduct(head.dropout()) * head.v(x.v);
    double& max_logit = result.max_logit[head.head];
    if (masked.cols() > 0) max_logit = std::max(max_logit, masked.maxCoeff());
  });
  return result;
}

Gradients backward(const Attention& a, const Arrays& x, const double* dout, const Result& saved) {
  Gradients g{std::vector<double>(count(a.layout_q, a.num_heads, a.head_dim_qk), 0.0),
              std::vector<double>(count(a.layout_k, a.num_kv_heads, a.head_dim_qk), 0.0),
              std::vector<double>(count(a.layout_k, a.num_kv_heads, a.head_dim_v), 0.0),
              std::vector<double>(a.options.sinks.size(), 0.0)};
  for_each_head(a, [&](const Head& head, const Allowed& allowed) {
    const Vector lse = head.lse(saved.lse.data());
    const Matrix p = head.probabilities(x, allowed, lse), kept = head.dropout();
    const Matrix dp = kept.cwiseProduct(head.out(dout) * head.v(x.v).transpose());
    const Vector delta =
        head.out(dout).cwiseProduct(head.out(saved.out.data())).rowwise().sum();  // = sum_j p dp
    Matrix ds = a.options.softmax_scale * p.cwiseProduct(dp.colwise() - delta);
    if (a.options.softcap != 0)  // the derivative of tanh is 1 - tanh^2
      ds.array() *= 1 - (head.capped(x).array() / a.options.softcap).square();
    const auto add = [](auto into, const Matrix& term) { into += term; };
    add(head.q(g.dq.data()), ds * head.k(x.k));
    add(head.k(g.dk.data()), ds.transpose() * head.q(x.q));
    add(head.v(g.dv.data()), p.cwiseProduct(kept).transpose() * head.out(dout));
    if (!g.dsink.empty())
      g.dsink[head.head] -= ((head.sink() - lse.array()).exp() * delta.array()).sum();
  });
  return g;
}

}  // namespace ringside::oracle::RINGSIDE_CPU_LEVEL
