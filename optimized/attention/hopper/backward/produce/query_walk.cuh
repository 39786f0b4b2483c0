// The query blocks that see an item of keys, each once for every query head of its group.
//
// Of a group, all heads take their turn at a block before the next, and blocks come from a
// segment's last to its first. Items of one document that begin together so ask for the same
// queries, and add to the same dq, about the same time, while they are in the cache; each begins
// with another head, lest all add to one place. A single head's fit there without: its blocks come
// from the first to the last, apart from item to item.
#pragma once

#include "optimized/attention/hopper/backward/shared/blocks.cuh"

namespace ringside::hopper::backward_detail {

// Where items add to dq in turn, all go the same way, from the last block to the first: the later
// one's turn, the later it was taken, and so is behind the others by as much.
enum class Blocks : uint8_t {
  of_item,     // from the first query that sees the item on
  of_segment,  // those of the segment's rows, all of their tokens: several items walk over the same
  in_turn,     // the same, where items add to dq in turn
};

// By all lanes of a warp.
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
  __device__ int rows() const { return min(of_lane_.end - begin_, kQueries); }  // the first lane's
  __device__ int head() const {
    const int turn = first_turn_ + turn_;
    return heads_.begin + (turn < heads_.size() ? turn : turn - heads_.size());
  }
  // What the block's rows see: kClear if each sees all keys, kUnseen << group if none sees one of a
  // group's; of no block, kLast.
  __device__ int flags() const {
    if (!valid()) return kLast;
    const int lane = threadIdx.x % 32, end = begin_ + kQueries;
    const unsigned says = __ballot_sync(
        kEveryLane, lane == kClearLane ? of_lane_.begin <= begin_ && end <= of_lane_.end
                                       : of_lane_.begin >= end || begin_ >= of_lane_.end);
    const int unseen = says >> kGroupLane & ((1 << kKeyGroups) - 1);
    return (kKeyGroups > 1 ? kUnseen * unseen : 0) | (says >> kClearLane & 1) * kClear;
  }
  __device__ void advance() {
    if (++turn_ < heads_.size()) return;
    turn_ = 0;
    begin_ += goes_on() ? kQueries : -kQueries;
    if (of_first_lane(begin_ < of_lane_.begin || begin_ >= of_lane_.end)) find();
  }

 private:
  static constexpr int kKeyGroups = kKeys / kGroupKeys;
  static constexpr int kClearLane = 1, kGroupLane = 2;  // see ask()

  __device__ bool goes_on() const { return heads_.size() == 1 && blocks_ != Blocks::in_turn; }

  __device__ void find() {  // the next partner's first block
    while (++partner_ < item_.partner_end) {
      const Segment q = work_.partners[partner_];
      row_ = q.row;
      ask(q);
      if (of_first_lane(of_lane_.size()) <= 0) continue;
      if (blocks_ != Blocks::of_item && threadIdx.x % 32 == 0) {
        const int tokens = q.rows_within({0, item_.len_q}).end;
        of_lane_.begin -= of_lane_.begin % kQueries;
        of_lane_.end = min((of_lane_.end + kQueries - 1) / kQueries * kQueries, tokens);
      }
      begin_ = of_first_lane(of_lane_.begin +
                             (goes_on() ? 0 : (of_lane_.size() - 1) / kQueries * kQueries));
      return;
    }
  }

  // Which rows of `q` see some of the keys (the first lane), or all (kClearLane), or some of a
  // group's (kGroupLane and on): what SeeingQueries says of all keys, and of each group's, but a
  // lane asks the mask about one key only, and q about one answer.
  __device__ void ask(const Segment& q) {
    const int lane = threadIdx.x % 32;
    const int end = keys_.begin + (lane / 2 % kKeyGroups + lane % 2) * kGroupKeys - lane % 2;
    const Interval at =
        sequence_mask(work_, item_).seeing(item_.own.position(min(end, keys_.end - 1)));
    constexpr int kLastKey = 2 * kKeyGroups - 1;
    const int group = lane - kGroupLane, first = group >= 0 ? group % kKeyGroups * 2 : 0;
    const int last = group >= 0 ? first + 1 : kLastKey;
    const int from = __shfl_sync(kEveryLane, at.begin, lane == kClearLane ? last : first);
    const int to = __shfl_sync(kEveryLane, at.end, lane == kClearLane ? first : last);
    of_lane_ = group * kGroupKeys < keys_.size() ? SeeingQueries::rows(q, {from, to}) : Interval{};
  }
  static __device__ int of_first_lane(int x) { return __shfl_sync(kEveryLane, x, 0); }

  const WorkList& work_;
  const WorkItem& item_;
  const Interval keys_, heads_;
  const Blocks blocks_;
  const int first_turn_;
  int partner_, turn_ = 0;
  int row_ = 0, begin_ = 0;
  Interval of_lane_;  // see ask()
};

}  // namespace ringside::hopper::backward_detail
