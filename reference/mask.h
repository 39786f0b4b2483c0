// Which keys a query may see.
//
// A mask is three numbers and an alignment, never a kind: full, causal, sliding-window and chunked
// attention are intersections of intervals, so a query row sees ONE interval of keys.
// allows() is the definition and serves the oracle alone; visible() is what plans and kernels use.
// Both ends of visible() never decrease with q: whole tiles can be judged by their first and last
// row.
#pragma once

#include <cstdint>

#include "reference/host_device.h"

namespace ringside {

struct Interval {  // half open; empty when end == begin
  int begin = 0, end = 0;

  RINGSIDE_HD int size() const { return end - begin; }
  RINGSIDE_HD bool contains(int k) const { return begin <= k && k < end; }
  bool operator==(const Interval&) const = default;
};

enum class Align : int8_t {
  top_left,      // query 0 stands at key 0
  bottom_right,  // the last query stands at the last key: FlashAttention's convention
};

inline constexpr int kUnbounded = -1;  // as a window bound: no limit on that side

struct Mask {
  int left = kUnbounded;   // keys further back than this are hidden (inclusive)
  int right = kUnbounded;  // keys further ahead than this are hidden (inclusive)
  int chunk = 0;           // n > 0: only keys of the query's own n-token chunk; 0: no chunks
  Align align = Align::top_left;

  static Mask full() { return {}; }
  static Mask causal(Align align = Align::top_left) { return {kUnbounded, 0, 0, align}; }
  static Mask sliding_window(int left, int right, Align align = Align::top_left) {
    return {left, right, 0, align};
  }
  static Mask chunked(int chunk, Align align = Align::top_left) {
    return {kUnbounded, 0, chunk, align};
  }

  bool operator==(const Mask&) const = default;

  // The query's place on the key axis. It may lie outside [0, len_k).
  RINGSIDE_HD int64_t aligned(int q, int len_q, int len_k) const {
    return align == Align::bottom_right ? int64_t{q} + len_k - len_q : int64_t{q};
  }

  RINGSIDE_HD bool allows(int q, int k, int len_q, int len_k) const {
    if (q < 0 || q >= len_q || k < 0 || k >= len_k) return false;  // padding
    const int64_t p = aligned(q, len_q, len_k);
    if (left != kUnbounded && k < p - left) return false;
    if (right != kUnbounded && k > p + right) return false;
    return chunk == 0 || floor_div(p, chunk) == k / chunk;
  }

  RINGSIDE_HD Interval visible(int q, int len_q, int len_k) const {
    if (q < 0 || q >= len_q) return {};
    const int64_t p = aligned(q, len_q, len_k);
    int64_t lo = 0, hi = len_k;
    if (left != kUnbounded && p - left > lo) lo = p - left;
    if (right != kUnbounded && p + right + 1 < hi) hi = p + right + 1;
    if (chunk > 0) {
      const int64_t begin = floor_div(p, chunk) * chunk;
      if (begin > lo) lo = begin;
      if (begin + chunk < hi) hi = begin + chunk;
    }
    // An empty interval keeps its place on the axis, so that both ends stay monotonic.
    if (lo > len_k) lo = len_k;
    if (hi < lo) hi = lo;
    return {static_cast<int>(lo), static_cast<int>(hi)};
  }

 private:
  RINGSIDE_HD static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
};

}  // namespace ringside
