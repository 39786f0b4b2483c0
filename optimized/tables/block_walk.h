// The blocks of partner rows that an item meets, one after the other across its segments.
//
// Every block is judged once: outside what the item sees it is never visited; where all of the item
// sees all of the block it is "clear" and runs without a compare; the rest asks each row.
#pragma once

#include "optimized/tables/work_list.h"
#include "reference/rows/seen_rows.h"

namespace ringside {

RINGSIDE_HD inline SequenceMask sequence_mask(const WorkList& work, const WorkItem& item) {
  return {work.mask, item.len_q, item.len_k};
}

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
