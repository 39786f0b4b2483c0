// A call of the backward kernel by itself, on arrays of a pack.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "optimized/attention/hopper/backward/test_backward_packs.h"
#include "optimized/attention/hopper/kernels.h"
#include "optimized/device/memory.h"
#include "optimized/device/properties.h"
#include "optimized/device/with_type.h"

namespace ringside::hopper::testing {

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
inline std::vector<double> with_final(const KeyItems& list, const OnDevice& sums,
                                      const OnDevice& finals, double before) {
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

// dq as columns, of sums in fragments, which lack the scale.
inline std::vector<double> of_fragments(const std::vector<double>& sums, double scale) {
  std::vector<double> found;
  for (size_t i = 0; i < sums.size(); ++i)
    found.push_back(scale * sums[i / kFragment * kFragment + fragment_place(i % kFragment)]);
  return found;
}

// One call of the kernel.
inline Results run(const Inputs& in, const Arrays& x) {
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
  a.dq_layout = p.dq_layout;
  EXPECT_TRUE(takes(a));
  EXPECT_EQ(in_fragments(a), may_be_in_fragments(p));
  RINGSIDE_CUDA(backward(a, nullptr));
  RINGSIDE_CUDA(cudaDeviceSynchronize());
  const auto dq_of = [&](const OnDevice& left) {
    return p.dq_layout == AccumulatorLayout::fragments ? of_fragments(left.read(), in.scale)
                                                       : left.read();
  };
  if (p.some_final)
    return {dq_of(dq), with_final(list, dk, final_dk, before),
            with_final(list, dv, final_dv, before)};
  return {dq_of(p.rounds ? final_dq : dq), dk.read(), dv.read()};
}

}  // namespace ringside::hopper::testing
