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

namespace {

// The receives of an operand and what meets each at its peer: the n-th send to this rank.
class Meetings {
 public:
  Meetings(const Plan& plan, int rank, int step, Operand operand)
      : plan_(plan), rank_(rank), step_(step), operand_(operand) {}

  template <typename Visit>  // visit(received, sent)
  void for_each(Visit visit) {
    const Exchange& group = plan_.steps_of_rank[rank_][step_].before;
    const auto to_itself = [this](const Message& m) {
      return m.operand == operand_ && m.peer == rank_;
    };
    const auto sent = std::ranges::count_if(group.sends, to_itself);
    const auto received = std::ranges::count_if(group.receives, to_itself);
    plan_require(sent == received, "rank ", rank_, " step ", step_, " sends itself ", sent,
                 " messages and receives ", received, ". plan.verify() tells more");
    for (const Message& m : group.receives)
      if (m.operand == operand_) visit(m, next_send(m.peer));
  }

 private:
  const Message& next_send(int peer) {
    const auto& sends = plan_.steps_of_rank[peer][step_].before.sends;
    size_t& next = next_[peer];
    while (next < sends.size() && (sends[next].operand != operand_ || sends[next].peer != rank_))
      ++next;
    plan_require(next < sends.size(), "rank ", rank_, " step ", step_, " receives from ", peer,
                 ", which sends nothing that fits. plan.verify() tells more");
    return sends[next++];
  }

  const Plan& plan_;
  int rank_, step_;
  Operand operand_;
  std::map<int, size_t> next_;  // by peer
};

// As rows of a buffer that holds what is sent and nothing else.
std::vector<RowRun> counted_from_first(std::span<const RowRun> runs) {
  std::vector<RowRun> counted(runs.begin(), runs.end());
  for (RowRun& run : counted) run.from -= runs.front().from;
  return counted;
}

std::vector<RowRun> transposed(std::vector<RowRun> runs) {
  for (RowRun& run : runs) run = run.transposed();
  return runs;
}

}  // namespace

Block Lowering::rows_of_buffer(int buffer, Range heads) const {
  return {buffer, 0, b_.whole(buffer).rows, heads};
}

Block Lowering::stage(Moves& moves, Payload payload, int rows, Range heads) {
  int& area = staging_[static_cast<int>(payload)];
  if (area == kCaller) area = b_.add_area(payload);
  int64_t& cell = moves.staged[static_cast<int>(payload)];
  const Block block = b_.whole(b_.add_buffer(payload, rows, heads, area, cell));
  cell += block.cells();
  return block;
}

void Lowering::receive_apart(Moves& moves, int peer, const Block& to,
                             std::span<const RowRun> runs) {
  const Payload payload = b_.schedule().buffers[to.buffer].payload;
  const Block staged = stage(moves, payload, static_cast<int>(rows_of(runs)), to.heads);
  moves.receives.push_back({peer, staged});
  moves.copies.push_back({staged, to, counted_from_first(runs)});
}

Block Lowering::collect(Moves& moves, const Block& from, std::span<const RowRun> runs) {
  const Payload payload = b_.schedule().buffers[from.buffer].payload;
  const Block staged = stage(moves, payload, static_cast<int>(rows_of(runs)), from.heads);
  moves.packs.push_back({from, staged, transposed(counted_from_first(runs))});
  return staged;
}

void Lowering::add_moves(Moves& moves, int index, Operand operand, int from, int to) {
  for (const Message& m : step(index).before.sends)
    if (m.operand == operand && m.peer != rank_)
      moves.sends.push_back({m.peer, {from, m.row, m.rows, m.heads}});
  Landings landings(plan_, index, operand);
  Meetings(plan_, rank_, index, operand).for_each([&](const Message& m, const Message& sent) {
    const Block landing{to, m.row, m.rows, m.heads}, all = rows_of_buffer(to, m.heads);
    const bool apart = m.lands_by_position();
    if (m.peer != rank_ && apart)
      receive_apart(moves, m.peer, all, landings.runs(m.peer, rank_, sent));
    else if (m.peer != rank_)
      moves.receives.push_back({m.peer, landing});
    else if (apart)
      moves.copies.push_back(
          {rows_of_buffer(from, m.heads), all, landings.runs(rank_, rank_, sent)});
    else
      moves.copies.push_back({{from, sent.row, sent.rows, m.heads}, landing});
  });
}

void Lowering::post(int index, const Moves& moves) {
  for (const BlockMove& pack : moves.packs) b_.copy(index, pack);
  b_.exchange(index, moves.sends, moves.receives);
  for (const BlockMove& copy : moves.copies) b_.copy(index, copy);
}

std::vector<BlockMove> Lowering::add_moves_back(Moves& moves, int index, Operand operand, int from,
                                                int to, int arrivals) {
  const Payload payload = b_.schedule().buffers[from].payload;
  std::vector<BlockMove> own;  // what the rank once sent itself
  Landings landings(plan_, index, operand);
  Meetings(plan_, rank_, index, operand).for_each([&](const Message& m, const Message& sent) {
    const Block block{from, m.row, m.rows, m.heads}, all = rows_of_buffer(from, m.heads);
    const bool apart = m.lands_by_position();
    if (m.peer == rank_ && apart)
      own.push_back(
          {all, rows_of_buffer(to, m.heads), transposed(landings.runs(rank_, rank_, sent))});
    else if (m.peer == rank_)
      own.push_back({block, {to, sent.row, sent.rows, m.heads}});
    else
      moves.sends.push_back(
          {m.peer, apart ? collect(moves, all, landings.runs(m.peer, rank_, sent)) : block});
  });
  std::vector<Message> sent;
  for (const Message& m : step(index).before.sends)
    if (m.operand == operand) sent.push_back(m);
  std::stable_sort(sent.begin(), sent.end(),
                   [](const Message& x, const Message& y) { return x.peer < y.peer; });
  std::vector<BlockMove> back;
  size_t of_own = 0;
  int64_t cell = 0;
  for (const Message& m : sent) {
    if (m.peer == rank_) {
      plan_require(of_own < own.size(), "rank ", rank_, " step ", index,
                   " sends itself more messages than it receives. plan.verify() tells more");
      back.push_back(own[of_own++]);
      continue;
    }
    const int buffer = b_.add_buffer(payload, m.rows, m.heads, arrivals, cell);
    cell += int64_t{m.rows} * m.heads.size();
    moves.receives.push_back({m.peer, b_.whole(buffer)});
    back.push_back({b_.whole(buffer), {to, m.row, m.rows, m.heads}});
  }
  return back;
}

}  // namespace ringside
