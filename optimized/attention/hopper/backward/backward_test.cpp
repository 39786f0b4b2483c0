// The instances of the backward kernel by themselves against the definition in float64: documents
// around its blocks, every kind of mask, grouped heads, padded columns, partners in pieces, every
// way to leave results, and NaN in the rows between documents. Skips without a device of compute
// capability 9.0.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "optimized/attention/hopper/kernels.h"
#include "optimized/attention/hopper/machine/tensor_map.h"
#include "optimized/device/memory.h"
#include "optimized/device/properties.h"
#include "optimized/device/with_type.h"
#include "reference/rows/seen_rows.h"

namespace ringside::hopper {
namespace {

constexpr int kGap = 3;        // rows of NaN before, between and behind documents
constexpr double kBefore = 3;  // what sums begin with

struct Lengths {
  int q, k;
};

struct Pack {
  const char* name;
  std::vector<Lengths> documents;
  Mask mask;
  int dim_qk, dim_v;
  int heads = 2, kv_heads = 1;
  Accumulate accumulate = Accumulate::only;
  int piece = 1 << 20;  // longest query segment
  bool one_item_of_keys = false;
  int head_parts = 1;
  bool in_turn = false, rounds = false;  // the last to add leaves final dq
  bool some_final = false;               // of items, the dk and dv
};

struct Rows {  // of one side
  int heads, dim, rows;
  std::vector<double> of;
  Rows(int heads_, int dim_, int rows_, double value = NAN)
      : heads(heads_), dim(dim_), rows(rows_), of(size_t(rows_) * heads_ * dim_, value) {}
  double* at(int row, int head) { return &of[(size_t(row) * heads + head) * dim]; }
  const double* at(int row, int head) const { return &of[(size_t(row) * heads + head) * dim]; }
};

double dot(const double* a, const double* b, int dim) {
  double sum = 0;
  for (int d = 0; d < dim; ++d) sum += a[d] * b[d];
  return sum;
}
void add_scaled(double* to, double factor, const double* from, int dim) {
  for (int d = 0; d < dim; ++d) to[d] += factor * from[d];
}

struct Inputs {
  const Pack& pack;
  ElementType type;
  std::vector<int> row_q, row_k;  // of a document's first
  int rows_q = kGap, rows_k = kGap;
  double scale;

  Inputs(const Pack& p, ElementType t) : pack(p), type(t), scale(1 / std::sqrt(double(p.dim_qk))) {
    for (const Lengths& d : p.documents) {
      row_q.push_back(rows_q), row_k.push_back(rows_k);
      rows_q += d.q + kGap, rows_k += d.k + kGap;
    }
  }
  Interval visible(int document, int query) const {
    return pack.mask.visible(query, pack.documents[document].q, pack.documents[document].k);
  }
  double rounded(double x) const {
    return with_type(type, [&](auto element) {
      return double(static_cast<float>(decltype(element)(static_cast<float>(x))));
    });
  }
  // Tokens get normal values, but for queries that see nothing; all else stays NaN.
  Rows tokens(bool of_q, int heads, int dim, unsigned seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    Rows x(heads, dim, of_q ? rows_q : rows_k);
    for (int s = 0; s < int(pack.documents.size()); ++s)
      for (int i = 0; i < (of_q ? pack.documents[s].q : pack.documents[s].k); ++i)
        if (!of_q || visible(s, i).size() > 0)
          for (int c = 0; c < heads * dim; ++c)
            x.at((of_q ? row_q[s] : row_k[s]) + i, 0)[c] = rounded(normal(random));
    return x;
  }
  // What a softmax might have left: about a sum of the keys that a row sees; -inf for none.
  Rows lse() const {
    Rows x(pack.heads, 1, rows_q);
    for (int s = 0; s < int(pack.documents.size()); ++s)
      for (int i = 0; i < pack.documents[s].q; ++i)
        std::fill_n(x.at(row_q[s] + i, 0), pack.heads,
                    static_cast<float>(std::log(double(visible(s, i).size())) + 0.5));
    return x;
  }
};

struct Gradients {
  Rows dq, dk, dv;
};

Gradients by_definition(const Inputs& in, const Rows& q, const Rows& k, const Rows& v,
                        const Rows& dout, const Rows& lse, const Rows& delta) {
  const Pack& p = in.pack;
  Gradients g{Rows(p.heads, p.dim_qk, in.rows_q, 0), Rows(p.kv_heads, p.dim_qk, in.rows_k, 0),
              Rows(p.kv_heads, p.dim_v, in.rows_k, 0)};
  for (int s = 0; s < int(p.documents.size()); ++s)
    for (int i = 0; i < p.documents[s].q; ++i)
      for (int j = in.visible(s, i).begin; j < in.visible(s, i).end; ++j)
        for (int h = 0; h < p.heads; ++h) {
          const int a = in.row_q[s] + i, b = in.row_k[s] + j, kv = h / (p.heads / p.kv_heads);
          const double score = in.scale * dot(q.at(a, h), k.at(b, kv), p.dim_qk);
          const double weight = std::exp(score - *lse.at(a, h));
          const double grad = dot(dout.at(a, h), v.at(b, kv), p.dim_v) - *delta.at(a, h);
          add_scaled(g.dq.at(a, h), in.scale * weight * grad, k.at(b, kv), p.dim_qk);
          add_scaled(g.dk.at(b, kv), in.scale * weight * grad, q.at(a, h), p.dim_qk);
          add_scaled(g.dv.at(b, kv), weight, dout.at(a, h), p.dim_v);
        }
  return g;
}

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
  const float* floats() const { return reinterpret_cast<const float*>(memory.data()); }
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
  const OnDevice lse(x.lse, ElementType::float32), delta(x.delta, ElementType::float32);
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
  a.lse = lse.floats(), a.delta = delta.floats();
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

// Keys that are not finite: who sees them has what the definition says, who does not has the bits
// of a call without them, and all have theirs again.
void check_not_finite(const Pack& p, ElementType type) {
  const Inputs in(p, type);
  Arrays x(in);
  x.lse = true_lse(in, x);
  const Results clean = run(in, x);
  const std::vector<Interval> poisoned = poison(in, x.k);
  x.lse = true_lse(in, x);
  const Gradients want = by_definition(in, x.q, x.k, x.v, x.dout, x.lse, x.delta);
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
  Arrays x(in);
  x.lse = true_lse(in, x);
  const Results clean = run(in, x);
  const std::vector<Interval> poisoned = poison_queries(in, x.q, x.dout);
  x.lse = true_lse(in, x);
  const Gradients want = by_definition(in, x.q, x.k, x.v, x.dout, x.lse, x.delta);
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

// Of an instance: the head dimensions that it is compiled for, and shorter rows that are its own.
struct Instance {
  int qk, v, shorter_qk, shorter_v;
  int keys;   // of an item
  int whole;  // of one that is all that its queries meet
};

std::vector<Pack> packs(const Instance& of) {
  const std::vector<Lengths> same{{1, 1},     {63, 63},   {64, 64},   {65, 65},
                                  {127, 127}, {128, 128}, {129, 129}, {300, 300}};
  const std::vector<Lengths> apart{{100, 300}, {300, 100}, {1, 200}, {200, 1}, {0, 50}, {130, 129}};
  const std::vector<Lengths> alone{
      {1, 1}, {63, 63}, {of.keys - 28, of.keys - 28}, {of.keys, of.keys}};
  std::vector<Lengths> carried{{1, 1}, {of.whole, of.whole}, {of.whole, 1}, {1, of.whole}};
  for (const Lengths& d : {Lengths{129, 129}, {130, 256}, {257, 200}, {450, 140}})
    carried.push_back({d.q, std::min(d.k, of.whole)});
  const Mask causal = Mask::causal(), full = Mask::full();
  const Mask last = Mask::causal(Align::bottom_right);
  const Mask window = Mask::sliding_window(33, 17, Align::bottom_right);
  const int qk = of.qk, v = of.v, one_piece = 1 << 20;
  const Accumulate only = Accumulate::only;
  const bool has_turns = of.qk <= 128, may_round = has_turns && of.qk > 64;
  std::vector<Pack> in_turn;
  const std::vector<Lengths> long_ones{{700, 700}, {600, 900}, {900, 600}, {300, 300}, {5, 700}};
  for (const auto& [mask, kv_heads] : {std::pair{causal, 2},
                                       {full, 1},
                                       {last, 1},
                                       {Mask::sliding_window(150, 70, Align::bottom_right), 2},
                                       {Mask::chunked(200), 1}})
    for (const bool rounds : {false, true})
      if (may_round || !rounds)
        in_turn.push_back({rounds ? "in turn, the last one rounds" : "in turn", long_ones, mask, qk,
                           v, 2, kv_heads, only, one_piece, false, 1, true, rounds});
  std::vector<Pack> all = {
      {"causal", same, causal, qk, v},
      {"full, a head of its own each", same, full, qk, v, 2, 2},
      {"causal from the last", apart, last, qk, v},
      {"causal of other lengths", apart, causal, qk, v},
      {"a window", apart, window, qk, v},
      {"chunks", same, Mask::chunked(100), qk, v},
      {"queries in pieces", same, causal, qk, v, 2, 1, only, 50},
      {"columns that are not there", same, causal, of.shorter_qk, of.shorter_v, 3, 3},
      {"added to what is there", same, causal, qk, v, 2, 1, Accumulate::merge},
      {"heads in parts", apart, last, qk, v, 7, 1, Accumulate::merge, one_piece, false, 4},
      {"more parts than heads", same, causal, qk, v, 4, 2, Accumulate::merge, 50, false, 3},
      {"the first step", same, causal, qk, v, 2, 1, Accumulate::start},
      {"dq final at once", alone, causal, qk, v, 4, 2, only, one_piece, true},
      {"dq carried, causal", carried, causal, qk, v, 4, 2, only, one_piece, true},
      {"dq carried, causal from the last", carried, last, qk, v, 2, 2, only, one_piece, true},
      {"dq carried, full", carried, full, of.shorter_qk, v, 2, 1, only, one_piece, true},
      {"dq carried, a window", carried, window, qk, v, 2, 2, only, one_piece, true},
      {"dq carried, chunks", carried, Mask::chunked(70), qk, v, 3, 1, only, one_piece, true},
      {"more items than processors", std::vector<Lengths>(24, {70, 70}), causal, qk, v, 8, 8},
  };
  for (const Accumulate accumulate : {Accumulate::start, Accumulate::merge}) {
    all.push_back({.name = "some are final",
                   .documents = apart,
                   .mask = causal,
                   .dim_qk = qk,
                   .dim_v = v,
                   .kv_heads = 2,
                   .accumulate = accumulate,
                   .some_final = true});
    // Items of one block, one behind the other.
    all.push_back({.name = "some of many short ones are final",
                   .documents = std::vector<Lengths>(40, {50, 50}),
                   .mask = causal,
                   .dim_qk = qk,
                   .dim_v = v,
                   .heads = 8,
                   .kv_heads = 8,
                   .accumulate = accumulate,
                   .some_final = true});
  }
  if (has_turns) all.insert(all.end(), in_turn.begin(), in_turn.end());
  return all;
}

// Those of which dq have the same bits from call to call, of documents that end within a block.
std::vector<Pack> packs_of_same_bits(const Instance& of) {
  const Mask causal = Mask::causal(), last = Mask::causal(Align::bottom_right);
  const Mask window = Mask::sliding_window(90, 20, Align::bottom_right);
  const int qk = of.qk, v = of.v, one_piece = 1 << 20;
  const Accumulate only = Accumulate::only;
  std::vector<Lengths> whole{{of.whole, of.whole}, {100, std::min(of.whole, 300)}};
  for (const int length : {70, 129, 200}) whole.push_back({length, std::min(of.whole, length)});
  std::vector<Pack> all = {
      {"dq final, causal", whole, causal, qk, v, 2, 1, only, one_piece, true},
      {"dq final, a window", whole, window, of.shorter_qk, v, 2, 2, only, one_piece, true},
  };
  if (of.qk > 128) return all;
  const std::vector<Lengths> apart{{330, 330}, {500, 200}, {200, 300}, {70, 290}};
  for (const auto& [name, mask] : {std::pair{"in turn, causal", causal},
                                   {"in turn, causal from the last", last},
                                   {"in turn, a window", window},
                                   {"in turn, chunks", Mask::chunked(150)}})
    all.push_back({name, apart, mask, qk, v, 2, 1, only, one_piece, false, 1, true});
  return all;
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
