// The blocks of partner rows that an item meets, one after the other across its segments.
//
// Every block is judged once: outside what the item sees it is never visited; where all of the item
// sees all of the block it is "clear" and runs without a compare; the rest asks each row.
#pragma once

#include "optimized/tables/work_list.h"

namespace ringside {

RINGSIDE_HD inline SequenceMask sequence_mask(const WorkList& work, const WorkItem& item) {
  return {work.mask, item.len_q, item.len_k};
}

// Which rows of key segment `k` some (or all) of the rows [begin, end) of query segment `q` see.
// Both ends of what a row sees never decrease, so the first and the last row are enough; rows
// between the ends of `some` may be seen by none.
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

// The mask's bounds solved for the query: which rows of query segment `q` see some (or all) of the
// rows [begin, end) of key segment `k`. Rows that see some may have others between them that see
// none.
struct SeeingQueries {
  Interval some, all;

  RINGSIDE_HD SeeingQueries(const SequenceMask& s, const Segment& q, const Segment& k, int begin,
                            int end) {
    const int64_t shift = s.mask.aligned(0, s.len_q, s.len_k);
    const int64_t first = k.position(begin) - shift, last = k.position(end - 1) - shift;
    int64_t some_lo = 0, some_hi = s.len_q, all_lo = 0, all_hi = s.len_q;  // positions
    const auto narrow = [](int64_t& lo, int64_t& hi, int64_t at_least, int64_t below) {
      lo = at_least > lo ? at_least : lo;
      hi = below < hi ? below : hi;
    };
    if (s.mask.right != kUnbounded) {
      narrow(some_lo, some_hi, first - s.mask.right, s.len_q);
      narrow(all_lo, all_hi, last - s.mask.right, s.len_q);
    }
    if (s.mask.left != kUnbounded) {
      narrow(some_lo, some_hi, 0, last + s.mask.left + 1);
      narrow(all_lo, all_hi, 0, first + s.mask.left + 1);
    }
    if (const int64_t chunk = s.mask.chunk; chunk > 0) {
      const int64_t of_first = (first + shift) / chunk * chunk - shift;
      const int64_t of_last = (last + shift) / chunk * chunk - shift;
      narrow(some_lo, some_hi, of_first, of_last + chunk);
      narrow(all_lo, all_hi, of_last, of_first + chunk);
    }
    some = rows(q, some_lo, some_hi);
    all = rows(q, all_lo, all_hi);
  }

 private:
  RINGSIDE_HD static Interval rows(const Segment& q, int64_t lo, int64_t hi) {
    if (hi <= lo) return {};
    return q.rows_within({static_cast<int>(lo), static_cast<int>(hi)});
  }
};

// The key blocks of an item of query rows.
template <int Block>
struct KeyBlocks {
  int partner, partner_end;
  int row = 0;             // of the resident buffer, where the partner segment begins
  int begin = 0, end = 0;  // this block and what follows it, counted from `row`
  Interval clear;

  RINGSIDE_HD KeyBlocks(const WorkList& work, const WorkItem& item)
      : partner(item.partner_begin - 1), partner_end(item.partner_end) {
    find(work, item);
  }
  RINGSIDE_HD bool valid() const { return partner < partner_end; }
  RINGSIDE_HD bool is_clear() const { return clear.begin <= begin && begin + Block <= clear.end; }
  RINGSIDE_HD void advance(const WorkList& work, const WorkItem& item) {
    begin += Block;
    if (begin >= end) find(work, item);
  }

 private:
  RINGSIDE_HD void find(const WorkList& work, const WorkItem& item) {  // the next partner's first
    while (++partner < partner_end) {
      const Segment k = work.partners[partner];
      const SequenceMask mask = sequence_mask(work, item);
      const SeenKeys seen(mask, k, item.own, item.begin, item.end);
      row = k.row, begin = seen.some.begin, end = seen.some.end;
      clear = seen.all;
      if (begin < end) return;
    }
  }
};

// The query blocks of an item of key rows, once for every query head that shares its key head.
template <int Block>
struct QueryBlocks {
  int partner, partner_end, head, head_begin, head_end;
  int row = 0, first = 0, begin = 0, end = 0;  // as above; a head's blocks begin at `first`
  Interval clear;

  RINGSIDE_HD QueryBlocks(const WorkList& work, const WorkItem& item, Interval heads)
      : partner(item.partner_begin - 1),
        partner_end(item.partner_end),
        head(heads.begin),
        head_begin(heads.begin),
        head_end(heads.end) {
    if (heads.size() == 0) partner = partner_end;
    if (valid()) find(work, item);
  }
  RINGSIDE_HD bool valid() const { return partner < partner_end; }
  RINGSIDE_HD bool is_clear() const { return clear.begin <= begin && begin + Block <= clear.end; }
  RINGSIDE_HD void advance(const WorkList& work, const WorkItem& item) {
    begin += Block;
    if (begin < end) return;
    begin = first;
    if (++head == head_end) find(work, item);
  }

 private:
  RINGSIDE_HD void find(const WorkList& work, const WorkItem& item) {
    head = head_begin;
    while (++partner < partner_end) {
      const Segment q = work.partners[partner];
      const SequenceMask mask = sequence_mask(work, item);
      const SeeingQueries seeing(mask, q, item.own, item.begin, item.end);
      row = q.row, first = begin = seeing.some.begin, end = seeing.some.end;
      clear = seeing.all;
      if (begin < end) return;
    }
  }
};

}  // namespace ringside
