// Which keys a query may see.
//
// A mask is three numbers and an alignment, never a kind: full, causal, sliding-window and chunked
// attention are intersections of intervals, so a query row sees ONE interval of keys.
// allows() is the definition and serves the oracle alone; visible() and its inverse seeing() are
// what plans and kernels use. Their ends never decrease: whole blocks can be judged by their first
// and last row. Nobody else reads the numbers but who writes them down: another kind of mask is
// another line in each of these functions.
#pragma once

#include <cstdint>

#include "reference/support/host_device.h"

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

  // The queries that see a key.
  RINGSIDE_HD Interval seeing(int k, int len_q, int len_k) const {
    if (k < 0 || k >= len_k) return {};
    const int64_t shift = aligned(0, len_q, len_k), q = k - shift;  // the query that stands at k
    int64_t lo = 0, hi = len_q;
    if (right != kUnbounded && q - right > lo) lo = q - right;
    if (left != kUnbounded && q + left + 1 < hi) hi = q + left + 1;
    if (chunk > 0) {
      const int64_t first = k / chunk * chunk - shift;
      if (first > lo) lo = first;
      if (first + chunk < hi) hi = first + chunk;
    }
    if (lo > len_q) lo = len_q;
    if (hi < lo) hi = lo;
    return {static_cast<int>(lo), static_cast<int>(hi)};
  }

  // The first query after q where an end of its window meets one of some places on the key axis, or
  // where the window begins anew, as at a chunk. Up to there each end of what is seen, in keys that
  // are counted between the places alone, either rests or moves by one from query to query. The
  // ends of the key axis must be among the places.
  template <int N>
  RINGSIDE_HD int64_t next_change(int q, int len_q, int len_k, const int (&places)[N]) const {
    const int64_t p = aligned(q, len_q, len_k);
    int64_t change = int64_t{1} << 40;
    for (const int place : places) change = next_meeting(p, place, change);
    if (chunk > 0) {
      const int64_t begin = floor_div(p, chunk) * chunk, end = begin + chunk;
      change = next_meeting(p, end, next_meeting(p, begin, change));
      if (end < change) change = end;
    }
    return change - (p - q);
  }

  // In how many stretches without such a beginning anew `runs` runs of `rows` queries in all may
  // lie; 0 for a mask that is one window for all.
  RINGSIDE_HD int64_t most_windows(int64_t runs, int64_t rows) const {
    return chunk > 0 ? runs + rows / chunk : 0;
  }

  RINGSIDE_HD bool is_one_window() const { return chunk == 0; }
  RINGSIDE_HD bool ends_at_the_query() const { return right == 0; }  // causal, whatever else
  RINGSIDE_HD bool hides_none_before() const { return is_one_window() && left == kUnbounded; }
  RINGSIDE_HD bool hides_none_behind() const { return is_one_window() && right == kUnbounded; }

 private:
  RINGSIDE_HD static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

  // The first aligned position after p where an end of the window meets a place, if it is before
  // `change`; else that.
  RINGSIDE_HD int64_t next_meeting(int64_t p, int64_t place, int64_t change) const {
    const int64_t at_left = place + left, at_right = place - right - 1;
    if (left != kUnbounded && p < at_left && at_left < change) change = at_left;
    if (right != kUnbounded && p < at_right && at_right < change) change = at_right;
    return change;
  }
};

void check_mask(const Mask& mask);  // throws InvalidArgument for bounds that mean nothing

}  // namespace ringside
