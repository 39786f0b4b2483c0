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

#include "optimized/attention/hopper/backward/test_backward_packs.h"
#include "optimized/attention/hopper/kernels.h"
#include "optimized/attention/hopper/machine/tensor_map.h"
#include "optimized/device/memory.h"
#include "optimized/device/properties.h"
#include "optimized/device/with_type.h"
#include "reference/rows/seen_rows.h"

namespace ringside::hopper {
namespace {

using namespace testing;

// Rows on the device, in a type.
struct OnDevice {
  const Rows& rows;
  ElementType type;
  DeviceMemory memory;

  OnDevice(const Rows& x, ElementType t) : rows(x), type(t), memory(int64_t(x.of.size()) * 4) {
    with_type(t, [&](auto element) {
      std::vector<decltype(element)> narrow;
      for (const double value : x.of) narrow.emplace_back(static_cast<float>(value));
      RINGSIDE_CUDA(cudaMemcpy(memory.data(), narrow.data(), narrow.size() * sizeof(element),
                               cudaMemcpyHostToDevice));
    });
  }
  DeviceMatrix matrix() const {
    return {memory.data(), int64_t{rows.heads} * rows.dim, rows.dim, rows.rows};
  }
  std::vector<double> read() const {
    return with_type(type, [&](auto element) {
      std::vector<decltype(element)> narrow(rows.of.size());
      RINGSIDE_CUDA(cudaMemcpy(narrow.data(), memory.data(), narrow.size() * sizeof(element),
                               cudaMemcpyDeviceToHost));
      std::vector<double> wide;
      for (const auto value : narrow) wide.push_back(static_cast<float>(value));
      return wide;
    });
  }
};

// A number for each row and head, [rows, heads] or [heads, rows].
struct ScalarsOnDevice {
  DeviceMemory memory;
  DeviceScalars scalars;

  ScalarsOnDevice(const Rows& x, bool by_head) : memory(int64_t(x.of.size()) * 4) {
    auto* data = reinterpret_cast<float*>(memory.data());
    scalars = by_head ? DeviceScalars::by_head(data, x.rows) : DeviceScalars::by_row(data, x.heads);
    std::vector<float> laid_out(x.of.size());
    for (int row = 0; row < x.rows; ++row)
      for (int head = 0; head < x.heads; ++head)
        laid_out[row * scalars.row_stride + head * scalars.head_stride] =
            static_cast<float>(*x.at(row, head));
    RINGSIDE_CUDA(
        cudaMemcpy(data, laid_out.data(), laid_out.size() * sizeof(float), cudaMemcpyHostToDevice));
  }
};

struct KeyItems {
  std::vector<WorkItem> items;
  std::vector<Segment> partners;

  // Which rows are those of final items.
  std::vector<bool> final_rows(int rows) const {
    std::vector<bool> of(static_cast<size_t>(rows));
    for (const WorkItem& item : items)
      if (item.alone != 0)
        std::fill(of.begin() + item.own.row + item.begin, of.begin() + item.own.row + item.end,
                  true);
    return of;
  }

  KeyItems(const Inputs& in, int key_rows) {
    std::mt19937 random(5);
    const Pack& p = in.pack;
    for (int s = 0; s < int(p.documents.size()); ++s) {
      const auto [len_q, len_k] = p.documents[s];
      const int first = int(partners.size());
      for (int begin = 0; begin < len_q; begin += p.piece)
        partners.push_back({s, begin, 1, in.row_q[s] + begin, std::min(p.piece, len_q - begin)});
      for (int begin = 0; begin < len_k; begin += key_rows)
        items.push_back({{s, 0, 1, in.row_k[s], len_k},
                         begin,
                         std::min(begin + key_rows, len_k),
                         first,
                         int(partners.size()),
                         len_q,
                         len_k,
                         p.some_final && random() % 5 < 2 ? kAloneBehind : 0});
    }
  }
};

template <typename T>
DeviceMemory on_device(const std::vector<T>& x) {
  DeviceMemory memory(int64_t(x.size() * sizeof(T)));
  RINGSIDE_CUDA(cudaMemcpy(memory.data(), x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

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

struct Arrays {
  Rows q, k, v, dout, lse, delta;

  explicit Arrays(const Inputs& in)
      : q(in.tokens(true, in.pack.heads, in.pack.dim_qk, 1)),
        k(in.tokens(false, in.pack.kv_heads, in.pack.dim_qk, 3)),
        v(in.tokens(false, in.pack.kv_heads, in.pack.dim_v, 4)),
        dout(in.tokens(true, in.pack.heads, in.pack.dim_v, 2)),
        lse(in.lse()),
        delta(in.lse()) {}  // any finite numbers serve as delta
};

struct Results {
  std::vector<double> dq, dk, dv;
};

// What final items have left, in place of what sums hold in their rows: that was left alone, and so
// were all other rows of final ones.
std::vector<double> with_final(const KeyItems& list, const OnDevice& sums, const OnDevice& finals,
                               double before) {
  std::vector<double> found = sums.read();
  const std::vector<double> own = finals.read();
  const std::vector<bool> is_final = list.final_rows(sums.rows.rows);
  const size_t cells = found.size() / is_final.size();  // of a row
  int touched = 0;
  for (size_t i = 0; i < found.size(); ++i)
    if (is_final[i / cells]) {
      touched += std::isnan(before) ? !std::isnan(found[i]) : found[i] != before;
      found[i] = own[i] + (std::isnan(before) ? 0 : before);
    } else {
      touched += !std::isnan(own[i]);
    }
  EXPECT_EQ(touched, 0);
  return found;
}

// One call of the kernel.
Results run(const Inputs& in, const Arrays& x) {
  const Pack& p = in.pack;
  const ElementType type = in.type;
  const ElementType result = p.accumulate == Accumulate::only ? type : ElementType::float32;
  const double before = p.accumulate == Accumulate::merge ? kBefore : NAN;
  const Rows empty_dk(p.kv_heads, p.dim_qk, in.rows_k, before);
  const Rows empty_dv(p.kv_heads, p.dim_v, in.rows_k, before);
  const Rows empty_dq(p.heads, p.dim_qk, in.rows_q, p.one_item_of_keys || p.in_turn ? NAN : 0);
  const OnDevice q(x.q, type), k(x.k, type), v(x.v, type), dout(x.dout, type);
  const bool by_head = p.documents.size() % 2 == 0;
  const ScalarsOnDevice lse(x.lse, by_head), delta(x.delta, !by_head);
  const OnDevice dk(empty_dk, result), dv(empty_dv, result);
  const OnDevice dq(empty_dq, p.one_item_of_keys ? type : ElementType::float32);
  const Rows no_dq(p.heads, p.dim_qk, in.rows_q);
  const OnDevice final_dq(no_dq, type);
  const AttentionShape shape{p.heads, p.kv_heads,      0,   0, p.heads / p.kv_heads, p.dim_qk,
                             p.dim_v, float(in.scale), type};
  // Longer items carry dq in float32, in memory that begins as NaN.
  const KeyItems list(
      in, p.one_item_of_keys ? backward_whole_key_rows(shape) : backward_key_rows(shape));
  const Rows nothing(p.heads, p.dim_qk, in.rows_q);
  const OnDevice carried(nothing, ElementType::float32);
  const DeviceMemory items = on_device(list.items), partners = on_device(list.partners);
  const DeviceMemory count = on_device(std::vector<int32_t>{int32_t(list.items.size())});
  const DeviceMemory workspace = on_device(std::vector<int32_t>{-1, -1});
  const DeviceMemory turns = on_device(std::vector<uint32_t>(size_t(in.rows_q) * p.heads));

  BackwardArguments a;
  a.shape = shape;
  a.q = q.matrix(), a.k = k.matrix(), a.v = v.matrix(), a.dout = dout.matrix();
  a.lse = lse.scalars, a.delta = delta.scalars;
  a.dq = dq.matrix(), a.dk = dk.matrix(), a.dv = dv.matrix();
  a.keys = {reinterpret_cast<const WorkItem*>(items.data()),
            reinterpret_cast<const Segment*>(partners.data()),
            reinterpret_cast<const int32_t*>(count.data()),
            int(list.items.size()),
            p.mask,
            true};
  a.head_parts = p.head_parts;
  a.accumulate = p.accumulate, a.one_item_of_keys = p.one_item_of_keys;
  a.workspace = workspace.data();
  if (p.one_item_of_keys) a.carried = carried.matrix();
  if (p.in_turn) a.turns = reinterpret_cast<unsigned*>(turns.data());
  if (p.rounds) a.final_dq = final_dq.matrix();
  const Rows no_dk(p.kv_heads, p.dim_qk, in.rows_k), no_dv(p.kv_heads, p.dim_v, in.rows_k);
  const OnDevice final_dk(no_dk, type), final_dv(no_dv, type);
  if (p.some_final) a.final_dk = final_dk.matrix(), a.final_dv = final_dv.matrix();
  EXPECT_TRUE(takes(a));
  RINGSIDE_CUDA(backward(a, nullptr));
  RINGSIDE_CUDA(cudaDeviceSynchronize());
  if (p.some_final)
    return {dq.read(), with_final(list, dk, final_dk, before),
            with_final(list, dv, final_dv, before)};
  return {p.rounds ? final_dq.read() : dq.read(), dk.read(), dv.read()};
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
      k.at(in.row_k[s] + first, head)[(head * 70 + 3 * s) % k.dim] = infinite ? -INFINITY : NAN;
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
      q.at(in.row_q[s] + first, head)[(head * 70 + 3 * s) % q.dim] = s % 2 == 1 ? INFINITY : NAN;
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

  // With few cases every second pack: what one type leaves out of an instance, the other runs.
  static void for_each_pack(void check_pack(const Pack&, ElementType),
                            std::vector<Pack> packs_of(const Instance&)) {
    const auto [instance, type] = GetParam();
    const bool few = std::getenv("RINGSIDE_FEW_CASES") != nullptr;
    int number = instance.qk / 64 + (type == ElementType::float16 ? 1 : 0);
    for (const Pack& pack : packs_of(instance)) {
      if (few && ++number % 2 == 0) continue;
      SCOPED_TRACE(pack.name);
      check_pack(pack, type);
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
                                                              Instance{256, 256, 200, 216, 64, 64}),
                                            ::testing::Values(ElementType::bfloat16,
                                                              ElementType::float16)),
                         name_of);

}  // namespace
}  // namespace ringside::hopper
