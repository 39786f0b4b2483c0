// Which rows of a segment the rows of another meet: the one rule for tiles, work lists and kernels.
//
// Both ends of what a row sees never decrease (mask.h), so the first and the last row of a block
// tell for all of it, gaps or not. Everything here runs on the host and on the device;
// seen_rows_test.cpp holds it against every pair and against a search.
#pragma once

#include "reference/rows/mask.h"
#include "reference/rows/segment.h"
#include "reference/support/host_device.h"

namespace ringside {

struct SequenceMask {  // a mask with the lengths of one sequence filled in
  Mask mask;
  int len_q = 0, len_k = 0;

  RINGSIDE_HD Interval visible(int q) const { return mask.visible(q, len_q, len_k); }
  RINGSIDE_HD Interval seeing(int k) const { return mask.seeing(k, len_q, len_k); }

  // The rows of key segment `k` (counted from its first) that query position `q` sees.
  RINGSIDE_HD Interval visible_rows(const Segment& k, int q) const {
    return k.rows_within(visible(q));
  }
};

// Which rows of key segment `k` some (or all) of the rows [begin, end) of query segment `q` see.
// Rows between the ends of `some` may be seen by none; with strides above 1 the ends may, too.
struct SeenKeys {
  Interval some, all;

  RINGSIDE_HD SeenKeys(const SequenceMask& s, const Segment& k, const Segment& q, int begin,
                       int end) {
    const Interval first = s.visible_rows(k, q.position(begin));
    const Interval last = s.visible_rows(k, q.position(end - 1));
    some = {first.begin, last.end > first.begin ? last.end : first.begin};
    all = {last.begin, first.end > last.begin ? first.end : last.begin};
  }
};

// Which rows of query segment `q` see some (or all) of the rows [begin, end) of key segment `k`;
// the keys are valid tokens. Rows between the ends of `some` may see none, and so on, as above.
struct SeeingQueries {
  Interval some, all;

  RINGSIDE_HD SeeingQueries(const SequenceMask& s, const Segment& q, const Segment& k, int begin,
                            int end) {
    const Interval first = s.seeing(k.position(begin));
    const Interval last = s.seeing(k.position(end - 1));
    some = rows(q, {first.begin, last.end});
    all = rows(q, {last.begin, first.end});
  }

  // Those whose positions these are.
  RINGSIDE_HD static Interval rows(const Segment& q, Interval positions) {
    if (positions.size() <= 0) return {};
    return q.rows_within(positions);
  }
};

// Takes rows from both ends of `some` that meet none of the rows [begin, end) of `own`, a gap at a
// time. own_of(position) is what one position of the partner meets, partner_of(position) the same
// of `own`: Mask's two functions, either way round.
template <typename OwnOf, typename PartnerOf>
RINGSIDE_HD Interval without_gaps(Interval some, const Segment& partner, const Segment& own,
                                  int begin, int end, OwnOf own_of, PartnerOf partner_of) {
  while (some.size() > 0) {
    const Interval met = own.rows_within(own_of(partner.position(some.begin)));
    const int first = met.begin > begin ? met.begin : begin;
    if (first >= end) return {};
    if (first < met.end) break;
    some.begin = partner.rows_below(partner_of(own.position(first)).begin);
  }
  while (some.size() > 0) {
    const Interval met = own.rows_within(own_of(partner.position(some.end - 1)));
    const int last = (met.end < end ? met.end : end) - 1;
    if (last >= met.begin) break;
    some.end = partner.rows_below(partner_of(own.position(last)).end);
  }
  return some;
}

// From the first to the last row of `k` that some row in [begin, end) of `q` sees; for strides of 1
// without gaps that is SeenKeys::some. Segments of keys have no gaps.
RINGSIDE_HD inline Interval keys_seen(const SequenceMask& s, const Segment& k, const Segment& q,
                                      int begin, int end) {
  const Interval some = SeenKeys(s, k, q, begin, end).some;
  if (k.stride == 1 && q.stride == 1 && q.gap == 0) return some;
  return without_gaps(
      some, k, q, begin, end, [&](int key) { return s.seeing(key); },
      [&](int query) { return s.visible(query); });
}

// From the first to the last row of `q` that sees some row in [begin, end) of `k`, likewise.
RINGSIDE_HD inline Interval queries_seeing(const SequenceMask& s, const Segment& q,
                                           const Segment& k, int begin, int end) {
  const Interval some = SeeingQueries(s, q, k, begin, end).some;
  if (q.stride == 1 && k.stride == 1 && q.gap == 0) return some;
  return without_gaps(
      some, q, k, begin, end, [&](int query) { return s.visible(query); },
      [&](int key) { return s.seeing(key); });
}

}  // namespace ringside
