#include "reference/schedule/lower.h"

#include <algorithm>
#include <map>
#include <utility>

#include "reference/errors.h"

namespace ringside {

int InTurn::next() {
  int& area = areas_[taken_++ % 2];
  if (area == kCaller) area = builder_.add_area(payload_);
  return area;
}

void Lowering::compute(int index, const Residents& now) {
  if (plan_.tiles(step(index)).empty()) return;
  b_.compute({.step = index,
              .tiles = step(index).tiles,
              .queries = now.queries,
              .keys = now.keys,
              .query_sums = now.query_sums,
              .key_sums = now.key_sums});
}

void Lowering::add_moves(Moves& moves, int index, Operand operand, int from, int to) const {
  const Exchange& group = step(index).before;
  const auto block = [](int buffer, const Message& m) {
    return Block{buffer, m.row, m.rows, m.heads};
  };
  for (const Message& m : group.sends) {
    if (m.operand != operand) continue;
    if (m.peer == rank_)
      moves.copied_from.push_back(block(from, m));
    else
      moves.sends.push_back({m.peer, block(from, m)});
  }
  for (const Message& m : group.receives) {
    if (m.operand != operand) continue;
    if (m.peer == rank_)
      moves.copied_to.push_back(block(to, m));
    else
      moves.receives.push_back({m.peer, block(to, m)});
  }
}

void Lowering::post(int index, Moves moves) {
  plan_require(moves.copied_from.size() == moves.copied_to.size(), "rank ", rank_, " step ", index,
               " sends itself ", moves.copied_from.size(), " messages and receives ",
               moves.copied_to.size(), ". plan.verify() tells more");
  b_.exchange(index, std::move(moves.sends), std::move(moves.receives));
  for (size_t i = 0; i < moves.copied_from.size(); ++i)
    b_.copy(index, moves.copied_from[i], moves.copied_to[i]);
}

std::vector<Lowering::Arrival> Lowering::add_moves_back(Moves& moves, int index, Operand operand,
                                                        int from, int to, int arrivals) {
  const Exchange& group = step(index).before;
  std::vector<Block> own;  // what the rank once sent itself
  for (const Message& m : group.receives) {
    if (m.operand != operand) continue;
    const Block block{from, m.row, m.rows, m.heads};
    if (m.peer == rank_)
      own.push_back(block);
    else
      moves.sends.push_back({m.peer, block});
  }
  std::vector<Message> sent;
  for (const Message& m : group.sends)
    if (m.operand == operand) sent.push_back(m);
  std::stable_sort(sent.begin(), sent.end(),
                   [](const Message& x, const Message& y) { return x.peer < y.peer; });
  std::vector<Arrival> back;
  size_t of_own = 0;
  int64_t cell = 0;
  const Payload payload = b_.schedule().buffers[from].payload;
  for (const Message& m : sent) {
    const Block target{to, m.row, m.rows, m.heads};
    if (m.peer == rank_) {
      plan_require(of_own < own.size(), "rank ", rank_, " step ", index,
                   " sends itself more messages than it receives. plan.verify() tells more");
      back.push_back({own[of_own++], target});
      continue;
    }
    const int buffer = b_.add_buffer(payload, m.rows, m.heads, arrivals, cell);
    cell += int64_t{m.rows} * m.heads.size();
    moves.receives.push_back({m.peer, b_.whole(buffer)});
    back.push_back({b_.whole(buffer), target});
  }
  return back;
}

}  // namespace ringside
