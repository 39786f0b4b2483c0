// Who sends which rows and heads to whom between two steps.
//
// An exchange replaces resident buffers: every receive lands in the new buffer, every send reads
// the old one. Each rank states its own sends and its own receives, so that a missing or crossed
// message is visible in the data (see verify.h). As a linear map an exchange is made of copies,
// hence its transpose sends every block back the way it came and ADDS it: ring_shift turns into the
// reverse shift, all_gather into reduce_scatter, all_to_all into all_to_all. Gradients travel that
// way, and so do results on their way home (merging takes the place of adding).
#pragma once

#include <vector>

#include "reference/rows/mask.h"

namespace ringside {

using Range = Interval;  // of heads, half open, numbered globally

// What the messages of a step amount to, the same on every rank that has any; none: no messages.
enum class ExchangeKind : int8_t { none, ring_shift, all_gather, all_to_all };
const char* name(ExchangeKind kind);

enum class Operand : int8_t { q, kv };  // kv: K and V travel together

// Instead of a receive's first row: every row lands where the new buffer has its position, for
// rows that lie together at their sender and apart there. A send has rows that lie together.
inline constexpr int kByPosition = -1;

struct Message {
  int peer = 0;  // may be the rank itself: a copy that no wire sees
  Operand operand = Operand::kv;
  int row = 0, rows = 0;  // of the old buffer in a send, of the new one in a receive
  Range heads;

  int row_end() const { return row + rows; }
  bool lands_by_position() const { return row == kByPosition; }
  bool operator==(const Message&) const = default;
};

// One rank's part. The messages are posted together, as between ncclGroupStart and ncclGroupEnd;
// between two ranks, the n-th send of an operand meets the n-th receive.
struct Exchange {
  ExchangeKind kind = ExchangeKind::none;
  std::vector<Message> sends, receives;

  bool empty() const { return sends.empty() && receives.empty(); }
  bool moves(Operand operand) const;
  bool operator==(const Exchange&) const = default;
};

}  // namespace ringside
