// The query blocks that see an item of keys, each once for every query head of its group.
//
// Of a group, all heads take their turn at a block before the next, and blocks come from a
// segment's last to its first. Items of one document that begin together so ask for the same
// queries, and add to the same dq, about the same time, while they are in the cache; each begins
// with another head, lest all add to one place. A single head's fit there without: its blocks come
// from the first to the last, apart from item to item.
#pragma once

#include "optimized/attention/hopper/backward/backward_blocks.cuh"

namespace ringside::hopper::backward_detail {

// Where items add to dq in turn, all go the same way, from the last block to the first: the later
// one's turn, the later it was taken, and so is behind the others by as much.
enum class Blocks : uint8_t {
  of_item,     // from the first query that sees the item on
  of_segment,  // those of the segment's rows, all of their tokens: several items walk over the same
  in_turn,     // the same, where items add to dq in turn
};

template <int kKeys>  // of a whole item
class QueryWalk {
 public:
  // Of so many of an item's keys.
  __device__ QueryWalk(const WorkList& work, const WorkItem& item, Interval keys, Interval heads,
                       Blocks blocks)
      : work_(work),
        item_(item),
        keys_(keys),
        heads_(heads),
        blocks_(blocks),
        first_turn_(
            heads.size() > 0 && blocks != Blocks::in_turn ? keys.begin / kKeys % heads.size() : 0),
        partner_(heads.size() > 0 ? item.partner_begin - 1 : item.partner_end) {
    if (valid()) find();
  }
  __device__ bool valid() const { return partner_ < item_.partner_end; }
  __device__ int partner() const { return partner_; }
  __device__ int begin() const { return begin_; }  // counted from the partner's first row
  __device__ int row() const { return row_ + begin_; }
  __device__ int rows() const { return min(seeing_.end - begin_, kQueries); }
  __device__ int head() const {
    const int turn = first_turn_ + turn_;
    return heads_.begin + (turn < heads_.size() ? turn : turn - heads_.size());
  }
  __device__ bool is_clear() const {
    return clear_.begin <= begin_ && begin_ + kQueries <= clear_.end;
  }
  __device__ void advance() {
    if (++turn_ < heads_.size()) return;
    turn_ = 0;
    begin_ += goes_on() ? kQueries : -kQueries;
    if (begin_ < seeing_.begin || begin_ >= seeing_.end) find();
  }

 private:
  __device__ bool goes_on() const { return heads_.size() == 1 && blocks_ != Blocks::in_turn; }

  __device__ void find() {  // the next partner's first block
    while (++partner_ < item_.partner_end) {
      const Segment q = work_.partners[partner_];
      const SeeingQueries seeing(sequence_mask(work_, item_), q, item_.own, keys_.begin, keys_.end);
      row_ = q.row, seeing_ = seeing.some, clear_ = seeing.all;
      if (seeing_.size() <= 0) continue;
      if (blocks_ != Blocks::of_item) {
        const int tokens = q.rows_within({0, item_.len_q}).end;
        seeing_.begin -= seeing_.begin % kQueries;
        seeing_.end = min((seeing_.end + kQueries - 1) / kQueries * kQueries, tokens);
      }
      begin_ = seeing_.begin + (goes_on() ? 0 : (seeing_.size() - 1) / kQueries * kQueries);
      return;
    }
  }

  const WorkList& work_;
  const WorkItem& item_;
  const Interval keys_, heads_;
  const Blocks blocks_;
  const int first_turn_;
  int partner_, turn_ = 0;
  int row_ = 0, begin_ = 0;
  Interval seeing_, clear_;
};

}  // namespace ringside::hopper::backward_detail
