// The definition against values worked out by hand, against a plain loop over scalars, and its
// gradients against finite differences.
#include "reference/attention/oracle.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using oracle::Arrays;
using oracle::Attention;
using testing::Random;
using testing::RandomCase;
using Numbers = std::vector<double>;

const double kLn2 = std::log(2.0);

AttentionOptions scaled_by(double softmax_scale) {
  AttentionOptions options;
  options.softmax_scale = softmax_scale;
  return options;
}

// One sequence, one head, dim 1, scores in bits: softmax_scale = ln 2 makes exp(score) = 2^(q*k).
Attention in_bits(int len_q, int len_k, const Mask& mask) {
  return {PackedLayout({0, len_q}), PackedLayout({0, len_k}), mask, 1, 1, 1, 1, scaled_by(kLn2)};
}

void expect_near(const Numbers& want, const Numbers& got, double tolerance = 1e-13) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == got[i]) continue;  // -inf too
    EXPECT_NEAR(want[i], got[i], tolerance * std::max(1.0, std::abs(want[i]))) << "[" << i << "]";
  }
}

TEST(Oracle, TwoQueriesAndTwoKeysByHand) {
  const Numbers q{1, 2}, k{1, 0}, v{1, 3}, dout{1, 10};
  const Arrays x{q.data(), k.data(), v.data()};
  const Attention full = in_bits(2, 2, Mask::full());
  const auto result = oracle::forward(full, x);
  expect_near({5.0 / 3, 7.0 / 5}, result.out);  // weights (2, 1)/3 and (4, 1)/5
  expect_near({std::log(3.0), std::log(5.0)}, result.lse);
  // ds = ln2 * p * (v - out) * dout = ln2 * (-4/9, 4/9) and ln2 * (-16/5, 16/5)
  const auto g = oracle::backward(full, x, dout.data(), result);
  expect_near({kLn2 * -4 / 9, kLn2 * -16 / 5}, g.dq);
  expect_near({kLn2 * (-4.0 / 9 - 32.0 / 5), kLn2 * (4.0 / 9 + 32.0 / 5)}, g.dk);
  expect_near({2.0 / 3 + 8, 1.0 / 3 + 2}, g.dv);
}

TEST(Oracle, CausalByHand) {
  const Numbers q{1, 2}, k{1, 0}, v{1, 3}, dout{1, 10};
  const Arrays x{q.data(), k.data(), v.data()};
  const Attention causal = in_bits(2, 2, Mask::causal());
  const auto result = oracle::forward(causal, x);
  expect_near({1, 7.0 / 5}, result.out);
  expect_near({kLn2, std::log(5.0)}, result.lse);
  const auto g = oracle::backward(causal, x, dout.data(), result);
  expect_near({0, kLn2 * -16 / 5}, g.dq);
  expect_near({kLn2 * -32 / 5, kLn2 * 32 / 5}, g.dk);
  expect_near({1 + 8, 2}, g.dv);
}

TEST(Oracle, ARowThatSeesNothingIsExactlyEmpty) {  // 3 queries, 1 key, aligned bottom-right
  const Numbers q{5, 6, 7}, k{1}, v{4}, dout{1, 1, 1};
  const Arrays x{q.data(), k.data(), v.data()};
  const Attention a = in_bits(3, 1, Mask::causal(Align::bottom_right));
  const auto result = oracle::forward(a, x);
  EXPECT_EQ(result.out, (Numbers{0, 0, 4}));
  EXPECT_EQ(result.lse[0], kNegInf);
  EXPECT_EQ(result.lse[1], kNegInf);
  EXPECT_DOUBLE_EQ(result.lse[2], 7 * kLn2);
  const auto g = oracle::backward(a, x, dout.data(), result);
  EXPECT_EQ(g.dq, (Numbers{0, 0, 0}));
  EXPECT_EQ(g.dk, (Numbers{0}));
  EXPECT_EQ(g.dv, (Numbers{1}));
}

// Beside the largest of them lse cannot tell how many there are; their weights sum to 1
// nevertheless.
TEST(Oracle, HugeScoresNeitherOverflowNorUnderflow) {
  for (const double score : {1e6, -1e6, 1e16, -1e16, 1e300}) {
    const Numbers q{score}, k{1, 1, 1}, v{1, 2, 6};
    const auto result =
        oracle::forward(in_bits(1, 3, Mask::full()), {q.data(), k.data(), v.data()});
    expect_near({3}, result.out);
    expect_near({score * kLn2 + std::log(3.0)}, result.lse);
  }
}

TEST(Oracle, QueryHeadsOfAGroupUseOneKvHead) {  // heads 0, 1 use kv head 0; heads 2, 3 kv head 1
  const PackedLayout layout({0, 1});
  const Attention a{layout, layout, Mask::full(), 4, 2, 1, 2, {}};
  const Numbers q(4, 1.0), k{1, 2}, v{10, 11, 20, 21}, dout{1, 2, 3, 4, 5, 6, 7, 8};
  const Arrays x{q.data(), k.data(), v.data()};
  const auto result = oracle::forward(a, x);
  expect_near({10, 11, 10, 11, 20, 21, 20, 21}, result.out);
  expect_near({1, 1, 2, 2}, result.lse);
  const auto g = oracle::backward(a, x, dout.data(), result);
  expect_near({1 + 3, 2 + 4, 5 + 7, 6 + 8}, g.dv);  // the gradients of a group add up
}

TEST(Oracle, LseIsHeadsByRows) {
  const PackedLayout layout({0, 2}, {0, 3});
  const Attention a{layout, layout, Mask::causal(), 2, 2, 1, 1, {}};
  const Numbers q{1, 2, 3, 4, NAN, NAN}, k{1, 1, 1, 1, NAN, NAN}, v(6, 1.0);
  const auto lse = oracle::forward(a, {q.data(), k.data(), v.data()}).lse;
  expect_near({1, 3 + kLn2, kNegInf, 2, 4 + kLn2, kNegInf}, lse);
}

TEST(Oracle, SequencesWithoutQueriesOrKeysAreLegal) {
  const Attention a{
      PackedLayout({0, 0, 2, 3}), PackedLayout({0, 2, 2, 3}), Mask::full(), 1, 1, 1, 1, {}};
  const Numbers q{1, 1, 2}, k{NAN, NAN, 3}, v{NAN, NAN, 5}, dout{NAN, NAN, 7};
  const Arrays x{q.data(), k.data(), v.data()};
  const auto result = oracle::forward(a, x);
  EXPECT_EQ(result.out, (Numbers{0, 0, 5}));
  EXPECT_EQ(result.lse, (Numbers{kNegInf, kNegInf, 6}));
  EXPECT_EQ(oracle::backward(a, x, dout.data(), result).dv, (Numbers{0, 0, 7}));
}

TEST(Oracle, OfNoSequenceIsNothing) {
  const Attention a{PackedLayout(), PackedLayout(), Mask::full(), 2, 1, 4, 4, {}};
  const auto result = oracle::forward(a, {});
  EXPECT_TRUE(result.out.empty() && result.lse.empty());
  EXPECT_TRUE(oracle::backward(a, {}, nullptr, result).dk.empty());
}

// out and lse of one query row by a plain loop: no matrices, no running maximum.
void plain_row(const RandomCase& c, int seq, int q, int head, Tensor& out, Tensor& lse) {
  const Problem& p = c.problem;
  const int row = p.layout_q.row_begin(seq) + q, kv_head = head * p.num_kv_heads / p.num_heads;
  std::vector<long double> sums(c.v.dim + 1);
  for (int k = 0; k < p.layout_k.len(seq); ++k) {
    if (!p.mask.allows(q, k, p.layout_q.len(seq), p.layout_k.len(seq))) continue;
    const int k_row = p.layout_k.row_begin(seq) + k;
    long double score = 0;
    for (int d = 0; d < c.q.dim; ++d)
      score += static_cast<long double>(c.q.at(row, head)[d]) * c.k.at(k_row, kv_head)[d];
    const AttentionOptions& o = c.options;
    score *= o.softmax_scale;
    if (o.softcap != 0) score = o.softcap * std::tanh(score / o.softcap);
    const int shift =
        p.mask.align == Align::bottom_right ? p.layout_k.len(seq) - p.layout_q.len(seq) : 0;
    if (!o.alibi_slopes.empty()) score -= o.alibi_slopes[head] * std::abs(q + shift - k);
    const long double weight = std::exp(score);
    sums.back() += weight;
    if (o.dropout.p > 0 && !o.dropout.keeps(seq, head, q, k)) continue;
    for (int d = 0; d < c.v.dim; ++d)
      sums[d] += weight * c.v.at(k_row, kv_head)[d] / (1 - o.dropout.p);
  }
  if (!c.options.sinks.empty()) sums.back() += std::exp(c.options.sinks[head]);
  if (sums.back() == 0) return;
  for (int d = 0; d < c.v.dim; ++d)
    out.at(row, head)[d] = static_cast<double>(sums[d] / sums.back());
  *lse.at(head, row) = static_cast<double>(std::log(sums.back()));
}

TEST(Oracle, AgreesWithAPlainLoop) {
  Random random(59);
  for (int i = 0; i < 150; ++i) {
    const RandomCase c(random, testing::random_problem(random));
    const Problem& p = c.problem;
    Tensor out(p.layout_q.num_rows(), p.num_heads, c.v.dim, 0.0);
    Tensor lse(p.num_heads, p.layout_q.num_rows(), 1, kNegInf);
    for (int seq = 0; seq < p.layout_q.batch(); ++seq)
      for (int q = 0; q < p.layout_q.len(seq); ++q)
        for (int head = 0; head < p.num_heads; ++head) plain_row(c, seq, q, head, out, lse);
    const auto got = oracle::forward(c.definition(), c.arrays());  // NaN in all padding
    expect_near(out.data, got.out);
    expect_near(lse.data, got.lse);
    if (HasFailure()) return;
  }
}

void expect_padding_zero(const PackedLayout& layout, int row_size, const Numbers& x) {
  for (int s = 0; s < layout.batch(); ++s)
    for (int pos = 0; pos < layout.padded_len(s); ++pos)
      for (int i = 0; i < row_size; ++i) {
        const double value = x[static_cast<size_t>(layout.row_begin(s) + pos) * row_size + i];
        if (pos >= layout.len(s)) {
          EXPECT_EQ(value, 0);
        } else {
          EXPECT_TRUE(std::isfinite(value));
        }
      }
}

TEST(Oracle, PaddingIsNeverReadAndStaysExactlyZero) {
  Random random(61);
  for (int i = 0; i < 100; ++i) {
    const RandomCase c(random, testing::random_problem(random));  // NaN in all padding
    const Problem& p = c.problem;
    const auto result = oracle::forward(c.definition(), c.arrays());
    const auto g = oracle::backward(c.definition(), c.arrays(), c.dout.data.data(), result);
    expect_padding_zero(p.layout_q, p.num_heads * c.v.dim, result.out);
    expect_padding_zero(p.layout_q, p.num_heads * c.q.dim, g.dq);
    expect_padding_zero(p.layout_k, p.num_kv_heads * c.q.dim, g.dk);
    expect_padding_zero(p.layout_k, p.num_kv_heads * c.v.dim, g.dv);
  }
}

class OracleGradients : public ::testing::TestWithParam<Mask> {};

// d/dx sum(dout * out) by differences over one and two steps, of which the third derivative goes:
// with steps of 1e-4 the error of the quotient is about 1e-16 (fifth derivative) and 1e-16/1e-4
// (rounding), times sums of size 10; derivatives grow with operands, the fifth to 1e5 at most.
TEST_P(OracleGradients, AreFiniteDifferences) {
  Random random(67);
  for (int i = 0; i < 4; ++i) {
    Problem problem{PackedLayout({0, 4, 4, 7}, {0, 5, 5, 8}), PackedLayout({0, 6, 8, 10}),
                    GetParam(), 4, 2};
    if (i % 2 == 1) problem.layout_k = problem.layout_q;
    RandomCase c(random, problem);
    const auto result = oracle::forward(c.definition(), c.arrays());
    const auto g = oracle::backward(c.definition(), c.arrays(), c.dout.data.data(), result);
    const auto objective = [&] {
      const auto out = oracle::forward(c.definition(), c.arrays()).out;
      double sum = 0;
      for (size_t j = 0; j < out.size(); ++j)
        if (!std::isnan(c.dout.data[j])) sum += c.dout.data[j] * out[j];
      return sum;
    };
    for (const auto& [x, gradient] :
         {std::pair<Tensor*, const Numbers*>{&c.q, &g.dq}, {&c.k, &g.dk}, {&c.v, &g.dv}})
      for (size_t j = 0; j < x->data.size(); ++j) {
        const double value = x->data[j], step = 1e-4;
        if (std::isnan(value)) continue;  // padding
        const auto difference = [&](double distance) {
          x->data[j] = value + distance;
          const double above = objective();
          x->data[j] = value - distance;
          return above - objective();
        };
        const double by_one = difference(step), by_two = difference(2 * step);
        x->data[j] = value;
        ASSERT_NEAR((8 * by_one - by_two) / (12 * step), (*gradient)[j], 2e-8);
      }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Masks, OracleGradients,
    ::testing::Values(Mask::full(), Mask::causal(), Mask::causal(Align::bottom_right),
                      Mask::sliding_window(1, 0), Mask::sliding_window(1, 2, Align::bottom_right),
                      Mask::sliding_window(-1, 1), Mask::sliding_window(0, -1), Mask::chunked(2),
                      Mask{-1, -1, 3, Align::bottom_right}, Mask{1, 0, 3, Align::bottom_right}));

}  // namespace
}  // namespace ringside
