// The instances of the backward kernel by themselves against the definition in float64. Skips
// without a device of compute capability 9.0.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "optimized/attention/hopper/backward/test_backward_call.h"
#include "optimized/attention/hopper/machine/tensor_map.h"
#include "optimized/device/properties.h"
#include "reference/rows/seen_rows.h"

namespace ringside::hopper {
namespace {

using namespace testing;

// Where the definition has zeros, a row may be one that nobody writes: it keeps what it had.
void expect_close(const char* what, const std::vector<double>& want, const std::vector<double>& got,
                  double allowed, double begun_with = 0) {
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] == 0) continue;
    const double difference = want[i] + begun_with - got[i];
    error += difference * difference, size += want[i] * want[i];
  }
  EXPECT_LE(std::sqrt(error), allowed * std::sqrt(size)) << what;  // false for NaN
}

bool same_bits(const double* a, const double* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(double)) == 0;
}

void check(const Pack& p, ElementType type) {
  const Inputs in(p, type);
  const Arrays x(in);
  const Gradients want = by_definition(in, x.q, x.k, x.v, x.dout, x.lse, x.delta);
  const Results got = run(in, x);
  if (p.in_turn) {
    EXPECT_TRUE(same_bits(run(in, x).dq.data(), got.dq.data(), got.dq.size())) << "dq again";
  }
  // Operands of the products are rounded twice more than inputs are: weights and their gradients.
  const double allowed = type == ElementType::float16 ? 0x1p-10 : 0x1p-7;
  expect_close("dq", want.dq.of, got.dq, allowed);
  const double begun_with = p.accumulate == Accumulate::merge ? kBefore : 0;
  expect_close("dk", want.dk.of, got.dk, allowed, begun_with);
  expect_close("dv", want.dv.of, got.dv, allowed, begun_with);
}

enum class Class { finite, nan, plus, minus };
Class class_of(double x) {
  if (std::isnan(x)) return Class::nan;
  return std::isfinite(x) ? Class::finite : x > 0 ? Class::plus : Class::minus;
}
void expect_classes(const char* what, const std::vector<double>& want,
                    const std::vector<double>& got) {
  int others = 0;
  for (size_t i = 0; i < want.size(); ++i)
    if (want[i] != 0) others += class_of(want[i]) != class_of(got[i]);
  EXPECT_EQ(others, 0) << what;
}

// Which of a head's columns gets an infinity, of keys or of queries.
int column_of(size_t document, int head, int dim) {
  return static_cast<int>((head * 70 + 3 * document) % size_t(dim));
}

// Of each document of some length a key, of each head, gets a number that is not finite: an
// infinity, of which some weights become 0, others NaN; or NaN, with infinities all over the next.
std::vector<Interval> poison(const Inputs& in, Rows& k) {
  std::vector<Interval> poisoned;  // of a document
  for (size_t s = 0; s < in.pack.documents.size(); ++s) {
    const int keys = in.pack.documents[s].k, first = keys * 5 / 8;
    const bool infinite = s % 2 == 1;
    poisoned.push_back({first, keys < 50 ? first : first + (infinite ? 1 : 2)});
    if (keys < 50) continue;
    for (int head = 0; head < k.heads; ++head) {
      k.at(in.row_k[s] + first, head)[column_of(s, head, k.dim)] = infinite ? -INFINITY : NAN;
      if (!infinite) std::fill_n(k.at(in.row_k[s] + first + 1, head), k.dim, INFINITY);
    }
  }
  return poisoned;
}

// What a softmax leaves.
Rows true_lse(const Inputs& in, const Arrays& x) {
  Rows lse = x.lse;
  const Pack& p = in.pack;
  for (int s = 0; s < int(p.documents.size()); ++s)
    for (int i = 0; i < p.documents[s].q; ++i)
      for (int h = 0; h < p.heads; ++h) {
        double sum = 0;
        for (int j = in.visible(s, i).begin; j < in.visible(s, i).end; ++j)
          sum += std::exp(in.scale * dot(x.q.at(in.row_q[s] + i, h),
                                         x.k.at(in.row_k[s] + j, h / (p.heads / p.kv_heads)),
                                         p.dim_qk));
        *lse.at(in.row_q[s] + i, h) = std::log(sum);
      }
  return lse;
}

// Infinite queries give scores of one sign with all keys that one warp has, 16, and of the other
// with the next one's: to those of -inf, which have no weight, nothing else tells of them.
void agree_in_sign(const Inputs& in, Rows& k) {
  const int group = in.pack.heads / in.pack.kv_heads;
  for (size_t s = 0; s < in.pack.documents.size(); ++s)
    for (int j = 0; j < in.pack.documents[s].k; ++j)
      for (int head = 0; head < in.pack.heads; ++head) {
        double& x = k.at(in.row_k[s] + j, head / group)[column_of(s, head, k.dim)];
        x = j / 16 % 2 == 1 ? -std::abs(x) : std::abs(x);
      }
}

// A call without numbers that are not finite, and what one with them should give.
struct Poisoned {
  Arrays x;
  std::vector<Interval> where;  // of each document
  Results clean;
  Gradients want;
};
template <typename Poison>  // poison(arrays) says where
Poisoned poisoned_by(const Inputs& in, Poison poison) {
  Arrays x(in);
  agree_in_sign(in, x.k);
  x.lse = true_lse(in, x);
  Results clean = run(in, x);
  std::vector<Interval> where = poison(x);
  x.lse = true_lse(in, x);
  Gradients want = by_definition(in, x.q, x.k, x.v, x.dout, x.lse, x.delta);
  return {std::move(x), std::move(where), std::move(clean), std::move(want)};
}

// Keys that are not finite: who sees them has what the definition says, who does not has the bits
// of a call without them, and all have theirs again.
void check_not_finite(const Pack& p, ElementType type) {
  const Inputs in(p, type);
  const auto [x, poisoned, clean, want] =
      poisoned_by(in, [&](Arrays& arrays) { return poison(in, arrays.k); });
  const Results got = run(in, x), again = run(in, x);
  expect_classes("dq", want.dq.of, got.dq);
  expect_classes("dk", want.dk.of, got.dk);
  expect_classes("dv", want.dv.of, got.dv);
  int others = 0, apart = 0;
  const size_t cells = size_t(p.heads) * p.dim_qk;
  for (int s = 0; s < int(p.documents.size()); ++s)
    for (int i = 0; i < p.documents[s].q; ++i) {
      const size_t row = (in.row_q[s] + i) * cells;
      const Interval seen = in.visible(s, i);
      const bool sees = seen.begin < poisoned[s].end && poisoned[s].begin < seen.end;
      others += !sees && !same_bits(&got.dq[row], &clean.dq[row], cells);
      apart += !same_bits(&got.dq[row], &again.dq[row], cells);
    }
  EXPECT_EQ(others, 0) << "rows that do not see them";
  EXPECT_EQ(apart, 0) << "rows";
}

// Of each document of some length, a query of which q, and one, of another half of a block, of
// which dout is not finite.
std::vector<Interval> poison_queries(const Inputs& in, Rows& q, Rows& dout) {
  std::vector<Interval> poisoned;
  for (size_t s = 0; s < in.pack.documents.size(); ++s) {
    const int rows = in.pack.documents[s].q, first = rows * 5 / 8;
    const int last = std::min(first + 33, rows - 1);
    poisoned.push_back({first, rows < 50 ? first : last + 1});
    if (rows < 50) continue;
    for (int head = 0; head < q.heads; ++head) {
      q.at(in.row_q[s] + first, head)[column_of(s, head, q.dim)] = s % 2 == 1 ? INFINITY : NAN;
      std::fill_n(dout.at(in.row_q[s] + last, head), dout.dim, INFINITY);
    }
  }
  return poisoned;
}

// Queries that are not finite: keys that they see have what the definition says, those that they do
// not have the bits of a call without.
void check_queries_not_finite(const Pack& p, ElementType type) {
  const Inputs in(p, type);
  const auto [x, poisoned, clean, want] =
      poisoned_by(in, [&](Arrays& arrays) { return poison_queries(in, arrays.q, arrays.dout); });
  const Results got = run(in, x);
  expect_classes("dk", want.dk.of, got.dk);
  expect_classes("dv", want.dv.of, got.dv);
  int others = 0;
  const size_t dk_cells = size_t(p.kv_heads) * p.dim_qk, dv_cells = size_t(p.kv_heads) * p.dim_v;
  for (int s = 0; s < int(p.documents.size()); ++s)
    for (int j = 0; j < p.documents[s].k; ++j) {
      const auto sees = [&](int i) {
        return in.visible(s, i).begin <= j && j < in.visible(s, i).end;
      };
      const Interval rows = poisoned[s];
      if (rows.size() > 0 && (sees(rows.begin) || sees(rows.end - 1))) continue;
      const size_t row = in.row_k[s] + j;
      others += !same_bits(&got.dk[row * dk_cells], &clean.dk[row * dk_cells], dk_cells) ||
                !same_bits(&got.dv[row * dv_cells], &clean.dv[row * dv_cells], dv_cells);
    }
  EXPECT_EQ(others, 0) << "keys that they do not see";
}

class HopperBackward : public ::testing::TestWithParam<std::tuple<Instance, ElementType>> {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0 ||
        properties_of(current_device()).compute_capability != 90)
      GTEST_SKIP() << "no device of compute capability 9.0";
  }

  // With few cases every second pack, in one layout: what one type leaves out of an instance, the
  // other runs.
  static void for_each_pack(void check_pack(const Pack&, ElementType),
                            std::vector<Pack> packs_of(const Instance&)) {
    const auto [instance, type] = GetParam();
    const bool few = std::getenv("RINGSIDE_FEW_CASES") != nullptr;
    unsigned number = instance.qk / 64 + (type == ElementType::float16 ? 1 : 0);
    using enum AccumulatorLayout;
    for (Pack pack : packs_of(instance)) {
      if (few && ++number % 2 == 0) continue;
      SCOPED_TRACE(pack.name);
      const bool has_both = may_be_in_fragments(pack);
      for (const auto layout : {rows, fragments}) {
        if (!has_both && layout == fragments) continue;
        if (has_both && few && (layout == fragments) == (number / 2 % 2 == 0)) continue;
        pack.dq_layout = layout;
        check_pack(pack, type);
      }
    }
  }
};

TEST_P(HopperBackward, AgreesWithTheDefinition) { for_each_pack(check, packs); }

TEST_P(HopperBackward, KeepsTheBitsOfWhoDoesNotSeeWhatIsNotFinite) {
  for_each_pack(check_not_finite, packs_of_same_bits);
}

TEST_P(HopperBackward, KeepsTheBitsOfWhoIsNotSeenByWhatIsNotFinite) {
  for_each_pack(check_queries_not_finite, packs_of_same_bits);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Instance, ElementType>>& info) {
  const auto [of, type] = info.param;
  return std::to_string(of.qk) + "_" + std::to_string(of.v) +
         (type == ElementType::float16 ? "_float16" : "_bfloat16");
}

INSTANTIATE_TEST_SUITE_P(Instances, HopperBackward,
                         ::testing::Combine(::testing::Values(Instance{64, 64, 40, 24, 128, 128},
                                                              Instance{128, 128, 96, 72, 128, 384},
                                                              Instance{192, 128, 136, 72, 128, 128},
                                                              Instance{192, 192, 136, 168, 64, 64},
                                                              Instance{256, 256, 200, 216, 64, 64}),
                                            ::testing::Values(ElementType::bfloat16,
                                                              ElementType::float16)),
                         name_of);

}  // namespace
}  // namespace ringside::hopper
