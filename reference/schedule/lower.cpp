#include "reference/schedule/lower.h"

#include <algorithm>
#include <map>
#include <utility>

#include "reference/support/errors.h"

namespace ringside {

int InTurn::next() {
  int& area = areas_[taken_++ % 2];
  if (area == kCaller) area = builder_.add_area(payload_);
  return area;
}

int Lowering::add_kept_keys(int index) {
  if (keep_ == KeepKv::no || !keeps_keys(plan_, rank_, plan_.steps_of_rank[rank_], index))
    return kCaller;
  return add_like(Payload::keys, step(index).kv, b_.add_kept_area(Payload::keys));
}

void Lowering::compute(int index, const Residents& now) {
  if (plan_.tiles(step(index)).empty()) return;
  land({now.queries, now.keys});
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
    plan_require(sent == received, At{rank_, step_}, " sends itself ", sent,
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
    plan_require(next < sends.size(), At{rank_, step_}, " receives from ", peer,
                 ", which sends nothing that fits. plan.verify() tells more");
    return sends[next++];
  }

  const Plan& plan_;
  int rank_, step_;
  Operand operand_;
  std::map<int, size_t> next_;  // by peer
};

// A copy by position is one to the whole buffer, as far as waits go: where others' rows land there,
// it is as late as these, and so would be the tiles behind it.
bool shares_buffer(const BlockMove& copy, const std::vector<ScheduledMessage>& receives) {
  return !copy.runs.empty() && std::ranges::any_of(receives, [&](const ScheduledMessage& m) {
    return m.block.buffer == copy.to.buffer;
  });
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

void Lowering::Apart::add(int peer, Range heads, std::span<const RowRun> runs) {
  auto group = std::ranges::find(groups, heads, &Group::heads);
  if (group == groups.end()) group = groups.insert(group, {heads, 0, {}, {}});
  const int rows = static_cast<int>(rows_of(runs));
  group->messages.push_back(messages.size());
  messages.push_back({peer, {-1, group->rows, rows, heads}});
  for (RowRun run : runs) {
    run.from += group->rows - runs.front().from;
    group->runs.push_back(run);
  }
  group->rows += rows;
}

// One staging buffer and one copy for all messages of the same heads.
std::vector<BlockMove> Lowering::stage(Moves& moves, const Apart& apart, int buffer) {
  std::vector<BlockMove> spread;
  for (const Apart::Group& group : apart.groups) {
    const Block staged =
        stage(moves, b_.schedule().buffers[buffer].payload, group.rows, group.heads);
    for (const size_t i : group.messages) apart.messages[i].block.buffer = staged.buffer;
    spread.push_back({staged, rows_of_buffer(buffer, group.heads), group.runs});
  }
  return spread;
}

void Lowering::spread(Moves& moves, const Apart& arrived, int to) {
  for (BlockMove& move : stage(moves, arrived, to)) moves.spread.push_back(std::move(move));
}

void Lowering::collect(Moves& moves, const Apart& leaving, int from) {
  for (BlockMove& move : stage(moves, leaving, from))
    moves.packs.push_back({move.to, move.from, transposed(std::move(move.runs))});
}

void Lowering::add_moves(Moves& moves, int index, Operand operand, int from, int to) {
  for (const Message& m : step(index).before.sends)
    if (m.operand == operand && m.peer != rank_)
      moves.sends.push_back({m.peer, {from, m.row, m.rows, m.heads}});
  Landings landings(plan_, index, operand);
  Apart apart(moves.receives);
  Meetings(plan_, rank_, index, operand).for_each([&](const Message& m, const Message& sent) {
    const Block landing{to, m.row, m.rows, m.heads};
    if (m.peer != rank_ && m.lands_by_position())
      apart.add(m.peer, m.heads, landings.runs(m.peer, rank_, sent));
    else if (m.peer != rank_)
      moves.receives.push_back({m.peer, landing});
    else if (m.lands_by_position())
      moves.own.push_back({rows_of_buffer(from, m.heads), rows_of_buffer(to, m.heads),
                           landings.runs(rank_, rank_, sent)});
    else
      moves.own.push_back({{from, sent.row, sent.rows, m.heads}, landing});
  });
  spread(moves, apart, to);
}

void Lowering::post(int index, const Moves& moves) {
  land_all();
  for (const BlockMove& pack : moves.packs) b_.copy(index, pack);
  b_.exchange(index, moves.sends, moves.receives);
  for (const BlockMove& copy : moves.own)
    if (shares_buffer(copy, moves.receives))
      arrivals_.push_back({index, copy});
    else
      b_.copy(index, copy);
  for (const BlockMove& copy : moves.spread) arrivals_.push_back({index, copy});
}

void Lowering::land(std::initializer_list<int> buffers) {
  std::erase_if(arrivals_, [&](const Arrival& arrival) {
    if (std::ranges::find(buffers, arrival.move.to.buffer) == buffers.end()) return false;
    b_.copy(arrival.step, arrival.move);
    return true;
  });
}

void Lowering::land_all() {
  for (const auto& [index, move] : arrivals_) b_.copy(index, move);
  arrivals_.clear();
}

std::vector<BlockMove> Lowering::send_back(Moves& moves, int index, Operand operand, int from,
                                           int to) {
  std::vector<BlockMove> own;
  Landings landings(plan_, index, operand);
  Apart apart(moves.sends);
  Meetings(plan_, rank_, index, operand).for_each([&](const Message& m, const Message& sent) {
    const Block block{from, m.row, m.rows, m.heads};
    if (m.peer != rank_ && m.lands_by_position())
      apart.add(m.peer, m.heads, landings.runs(m.peer, rank_, sent));
    else if (m.peer != rank_)
      moves.sends.push_back({m.peer, block});
    else if (m.lands_by_position())
      own.push_back({rows_of_buffer(from, m.heads), rows_of_buffer(to, m.heads),
                     transposed(landings.runs(rank_, rank_, sent))});
    else
      own.push_back({block, {to, sent.row, sent.rows, m.heads}});
  });
  collect(moves, apart, from);
  return own;
}

std::vector<BlockMove> Lowering::add_moves_back(Moves& moves, int index, Operand operand, int from,
                                                int to, int arrivals) {
  const std::vector<BlockMove> own = send_back(moves, index, operand, from, to);
  std::vector<Message> sent;
  for (const Message& m : step(index).before.sends)
    if (m.operand == operand) sent.push_back(m);
  std::stable_sort(sent.begin(), sent.end(),
                   [](const Message& x, const Message& y) { return x.peer < y.peer; });
  const Payload payload = b_.schedule().buffers[from].payload;
  std::vector<BlockMove> back;
  size_t of_own = 0;
  int64_t cell = 0;
  for (const Message& m : sent) {
    if (m.peer == rank_) {
      plan_require(of_own < own.size(), At{rank_, index},
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
