#include "reference/attention/oracle.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "reference/support/interrupt.h"

namespace ringside::oracle::RINGSIDE_CPU_LEVEL {  // once for each level: cpu_kernels.h
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;
using Allowed = Eigen::Array<bool, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename M>
using Rows = Eigen::Map<M, 0, Eigen::OuterStride<>>;  // [tokens, dim] of one head of one sequence

constexpr double kNegInf = -std::numeric_limits<double>::infinity();
constexpr double kLeastWeight = 1e-300;  // far below what a sum of weights resolves
constexpr int kPairsOfBlock = 1 << 20;   // dense at a time: some megabytes, a tenth of a second

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

// The log of a row's sum of exp(score), in two parts: beside a large score float64 would round the
// log of how many such there are.
struct LogSum {
  double top, rest = 0;
  double lse() const { return top + rest; }
};

// exp(score - lse). A score of -inf has no weight, every other one has some, however small: what
// rounds to 0 here must not turn an infinite value into 0 * inf = NaN. Where lse is NaN, so are
// all.
double weight(double score, const LogSum& sum) {
  if (score == kNegInf && !std::isnan(sum.top)) return 0.0;
  return std::max(std::exp(score - sum.top - sum.rest), kLeastWeight);  // NaN stays
}

double larger(double a, double b) { return a >= b || std::isnan(a) ? a : b; }  // NaN if one is

// Adds sum_j w_ij x_j over the pairs that the mask allows to row i. The others take no part: were
// they 0 * x_j, a NaN or an infinity that row i does not see would reach it.
template <typename Into, typename Weights, typename Pairs, typename X>
void add_over_allowed(Into into, const Weights& w, const Pairs& allowed, const X& x) {
  for (Eigen::Index i = 0; i < w.rows(); ++i)
    for (Eigen::Index j = 0; j < w.cols(); ++j)
      if (allowed(i, j)) into.row(i) += w(i, j) * x.row(j);
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

  // Of the pairs allowed; sum_of(row).
  template <typename SumOf>
  Matrix probabilities(const Arrays& x, SumOf sum_of) const {
    Matrix p = scores(x);
    for (Eigen::Index i = 0; i < p.rows(); ++i) {
      const LogSum sum = sum_of(i);
      for (Eigen::Index j = 0; j < p.cols(); ++j) p(i, j) = weight(p(i, j), sum);
    }
    return p;
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

// Of the scores of a row and its sink. Infinite or NaN where the largest one is.
LogSum log_sum_exp(const Eigen::RowVectorXd& scores, double sink) {
  double top = sink, sum = 0;
  for (const double score : scores) top = larger(top, score);
  if (!std::isfinite(top)) return {top};
  for (const double score : scores) sum += std::exp(score - top);
  return {top, std::log(sum + std::exp(sink - top))};
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
    auto lse = head.lse(result.lse.data());
    const Matrix p = head.probabilities(x, [&](Eigen::Index i) {
      const LogSum sum = log_sum_exp(masked.row(i), head.sink());
      lse(i) = sum.lse();
      return sum;
    });
    add_over_allowed(head.out(result.out.data()), p.cwiseProduct(head.dropout()), allowed,
                     head.v(x.v));
    double& max_logit = result.max_logit[head.head];
    for (const double score : masked.reshaped()) max_logit = larger(max_logit, score);
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
    const Matrix kept = head.dropout();
    const Matrix p = head.probabilities(x, [&](Eigen::Index i) { return LogSum{lse(i)}; });
    const Matrix dp = kept.cwiseProduct(head.out(dout) * head.v(x.v).transpose());
    const Vector delta =
        head.out(dout).cwiseProduct(head.out(saved.out.data())).rowwise().sum();  // = sum_j p dp
    Matrix ds = a.options.softmax_scale * p.cwiseProduct(dp.colwise() - delta);
    if (a.options.softcap != 0)  // the derivative of tanh is 1 - tanh^2
      ds.array() *= 1 - (head.capped(x).array() / a.options.softcap).square();
    add_over_allowed(head.q(g.dq.data()), ds, allowed, head.k(x.k));
    add_over_allowed(head.k(g.dk.data()), ds.transpose(), allowed.transpose(), head.q(x.q));
    add_over_allowed(head.v(g.dv.data()), p.cwiseProduct(kept).transpose(), allowed.transpose(),
                     head.out(dout));
    for (Eigen::Index i = 0; i < delta.size() && !g.dsink.empty(); ++i)
      if (allowed.row(i).any())  // else nothing takes part: out is 0, whatever dout is
        g.dsink[head.head] -= weight(head.sink(), {lse(i)}) * delta(i);
  });
  return g;
}

}  // namespace ringside::oracle::RINGSIDE_CPU_LEVEL
