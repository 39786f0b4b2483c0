#include "reference/oracle.h"

#include <Eigen/Dense>
#include <limits>

namespace ringside::oracle {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;
using Allowed = Eigen::Array<bool, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename M>
using Rows = Eigen::Map<M, 0, Eigen::OuterStride<>>;  // [tokens, dim] of one head of one sequence

constexpr double kNegInf = -std::numeric_limits<double>::infinity();

template <typename Scalar>  // data: [rows, heads, dim]; Scalar is double or const double
auto rows_of(Scalar* data, const PackedLayout& layout, int seq, int head, int heads, int dim) {
  using M = std::conditional_t<std::is_const_v<Scalar>, const Matrix, Matrix>;
  const auto first = (static_cast<Eigen::Index>(layout.row_begin(seq)) * heads + head) * dim;
  return Rows<M>(data + first, layout.len(seq), dim, Eigen::OuterStride<>(heads * dim));
}

Allowed allowed_pairs(const Attention& a, int seq) {
  const int len_q = a.layout_q.len(seq), len_k = a.layout_k.len(seq);
  Allowed allowed(len_q, len_k);
  for (int q = 0; q < len_q; ++q)
    for (int k = 0; k < len_k; ++k) allowed(q, k) = a.mask.allows(q, k, len_q, len_k);
  return allowed;
}

// One head of one sequence.
struct Head {
  const Attention& a;
  int seq, head;
  int kv_head = head / (a.num_heads / a.num_kv_heads);

  auto q(const double* x) const {
    return rows_of(x, a.layout_q, seq, head, a.num_heads, a.head_dim_qk);
  }
  auto k(const double* x) const {
    return rows_of(x, a.layout_k, seq, kv_head, a.num_kv_heads, a.head_dim_qk);
  }
  auto v(const double* x) const {
    return rows_of(x, a.layout_k, seq, kv_head, a.num_kv_heads, a.head_dim_v);
  }
  template <typename Scalar>
  auto out(Scalar* x) const {
    return rows_of(x, a.layout_q, seq, head, a.num_heads, a.head_dim_v);
  }
  template <typename Scalar>
  auto lse(Scalar* x) const {
    using V = std::conditional_t<std::is_const_v<Scalar>, const Vector, Vector>;
    const auto first = static_cast<Eigen::Index>(head) * a.layout_q.num_rows();
    return Eigen::Map<V>(x + first + a.layout_q.row_begin(seq), a.layout_q.len(seq));
  }

  // exp(s - lse) where allowed, 0 elsewhere.
  Matrix probabilities(const Arrays& x, const Allowed& allowed, const Vector& lse) const {
    const Matrix scores = a.softmax_scale * (q(x.q) * k(x.k).transpose());
    const auto shifted = (scores.colwise() - lse).array();
    return allowed.select(shifted.exp(), 0.0);
  }
};

template <typename Visit>  // visit(head, allowed) for every head of every sequence
void for_each_head(const Attention& a, Visit visit) {
  for (int seq = 0; seq < a.layout_q.batch(); ++seq) {
    if (a.layout_q.len(seq) == 0 || a.layout_k.len(seq) == 0) continue;
    const Allowed allowed = allowed_pairs(a, seq);
    for (int head = 0; head < a.num_heads; ++head) visit(Head{a, seq, head}, allowed);
  }
}

Vector log_sum_exp(const Matrix& scores, const Allowed& allowed) {
  const Matrix masked = allowed.select(scores.array(), kNegInf);
  const Vector top = masked.rowwise().maxCoeff();
  const Vector finite_top = (top.array() == kNegInf).select(0.0, top);  // -inf - -inf is NaN
  const auto shifted = (masked.colwise() - finite_top).array();
  return finite_top.array() + shifted.exp().rowwise().sum().log();
}

std::size_t count(const PackedLayout& layout, int heads, int dim) {
  return static_cast<std::size_t>(layout.num_rows()) * heads * dim;
}

}  // namespace

Result forward(const Attention& a, const Arrays& x) {
  Result result{std::vector<double>(count(a.layout_q, a.num_heads, a.head_dim_v), 0.0),
                std::vector<double>(count(a.layout_q, a.num_heads, 1), kNegInf)};
  for_each_head(a, [&](const Head& head, const Allowed& allowed) {
    const Matrix scores = a.softmax_scale * (head.q(x.q) * head.k(x.k).transpose());
    const Vector lse = log_sum_exp(scores, allowed);
    head.lse(result.lse.data()) = lse;
    head.out(result.out.data()) = head.probabilities(x, allowed, lse) * head.v(x.v);
  });
  return result;
}

Gradients backward(const Attention& a, const Arrays& x, const double* dout, const Result& saved) {
  Gradients g{std::vector<double>(count(a.layout_q, a.num_heads, a.head_dim_qk), 0.0),
              std::vector<double>(count(a.layout_k, a.num_kv_heads, a.head_dim_qk), 0.0),
              std::vector<double>(count(a.layout_k, a.num_kv_heads, a.head_dim_v), 0.0)};
  for_each_head(a, [&](const Head& head, const Allowed& allowed) {
    const Matrix p = head.probabilities(x, allowed, head.lse(saved.lse.data()));
    const Matrix dp = head.out(dout) * head.v(x.v).transpose();
    const Vector delta =
        head.out(dout).cwiseProduct(head.out(saved.out.data())).rowwise().sum();  // = sum_j p dp
    const Matrix ds = a.softmax_scale * p.cwiseProduct(dp.colwise() - delta);
    const auto add = [](auto into, const Matrix& term) { into += term; };
    add(rows_of(g.dq.data(), a.layout_q, head.seq, head.head, a.num_heads, a.head_dim_qk),
        ds * head.k(x.k));
    add(rows_of(g.dk.data(), a.layout_k, head.seq, head.kv_head, a.num_kv_heads, a.head_dim_qk),
        ds.transpose() * head.q(x.q));
    add(rows_of(g.dv.data(), a.layout_k, head.seq, head.kv_head, a.num_kv_heads, a.head_dim_v),
        p.transpose() * head.out(dout));
  });
  return g;
}

}  // namespace ringside::oracle
