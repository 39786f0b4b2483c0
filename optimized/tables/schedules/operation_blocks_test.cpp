// The copies of schedules of a capacity, played on the host with any lengths: every gathered row is
// the one that the tables say, and finds its way home.
#include "optimized/tables/schedules/operation_blocks.h"

#include "optimized/tables/test_host_tables.h"

namespace ringside {
namespace {

using testing::HostTables;
using testing::Random;

using NamedCells =
    std::vector<std::pair<int, int>>;  // what lies there: a row of all homes, and a head
const std::pair<int, int> kNothing{-1, -1};

void play(const std::vector<CellBlock>& blocks, const int32_t* map, const NamedCells& from,
          NamedCells& to) {
  for (const CellBlock& b : blocks)
    for (int i = 0; i < b.rows; ++i) {
      const int row = CellBlock::row(b.from_map, map, i), there = CellBlock::row(b.to_map, map, i);
      if (row < 0 || there < 0) continue;
      for (int head = 0; head < b.heads; ++head)
        to.at(b.to + int64_t{there} * b.to_pitch + head) =
            from.at(b.from + int64_t{row} * b.from_pitch + head);
    }
}

// NamedCells of every buffer of a rank: those of its home; what arrives is written by whoever sent
// it.
class Played {
 public:
  Played(const Schedule& schedule, const HostTables& tables) : s_(schedule), t_(tables.t) {
    for (const ScheduledBuffer& b : s_.buffers) cells_.emplace_back(b.cells(), kNothing);
    for (const auto& [buffer, side] :
         {std::pair(s_.home_queries, Operand::q), std::pair(s_.home_keys, Operand::kv)})
      fill(buffer, side, 0, s_.buffers[buffer].rows, s_.rank);
  }

  // Rows of a peer's home, as they come in a message.
  void receive(const ScheduledMessage& m) {
    const Operand side =
        s_.buffers[m.block.buffer].payload == Payload::keys ? Operand::kv : Operand::q;
    fill(m.block.buffer, side, m.block.row, m.block.rows, m.peer, m.block.heads);
  }

  NamedCells& of(int buffer) { return cells_[buffer]; }

 private:
  void fill(int buffer, Operand side, int row, int rows, int rank, Range heads = {0, -1}) {
    const ScheduledBuffer& b = s_.buffers[buffer];
    if (heads.end < 0) heads = b.heads;
    for (int i = 0; i < rows; ++i)
      for (int head = heads.begin; head < heads.end; ++head)
        cells_[buffer].at(int64_t{row + i} * b.heads.size() + head - b.heads.begin) = {
            rank * t_.side(side).home.rows + i, head};
  }

  const Schedule& s_;
  const LengthTables& t_;
  std::vector<NamedCells> cells_;
};

// Every row of a sequence, padding included.
void expect_gathered(const Schedule& s, const LengthTables& t, const ScheduledBuffer& buffer,
                     int group, const NamedCells& cells) {
  const LengthTables::Side& x = t.side(buffer.payload == Payload::keys ? Operand::kv : Operand::q);
  for (int i = 0; i < t.segments_of(x.resident); ++i) {
    const Segment& segment = t.first_segment(x.resident, group)[i];
    for (int row = 0; row < segment.len; ++row)
      for (int head = buffer.heads.begin; head < buffer.heads.end; ++head) {
        const int home = x.home_of_global[x.cu_seqlens_padded[segment.seq] + segment.position(row)];
        ASSERT_EQ(
            cells.at(int64_t{segment.row + row} * buffer.heads.size() + head - buffer.heads.begin),
            std::pair(home, head))
            << "rank " << s.rank << ", row " << segment.row + row;
      }
  }
}

int played_gathers(const HostTables& tables, const Schedule& s) {
  GatheredBlocks blocks(tables.plan());
  Played played(s, tables);
  int gathers = 0;
  for (const Operation& op : s.operations) {
    const bool apart = op.kind == OperationKind::copy && !op.runs.empty();
    if (op.kind == OperationKind::exchange)
      for (const ScheduledMessage& m : op.receives)
        if (GatheredBlocks::gathers(s, {.to = m.block})) played.receive(m);
    if (!apart || !GatheredBlocks::gathers(s, op)) continue;
    const Operand side = GatheredBlocks::side(s, op);
    play(blocks.of(s, op), tables.t.side(side).resident_of_home, played.of(op.from.buffer),
         played.of(op.to.buffer));
    ++gathers;
  }
  for (const Operation& op : s.operations)
    for (const auto& [buffer, side] :
         {std::pair(op.queries, Operand::q), std::pair(op.keys, Operand::kv)}) {
      const LengthTables::Groups& g = tables.t.side(side).resident;
      if (op.kind != OperationKind::compute || g.owned.ranks == 1) continue;
      const auto& resident = tables.buffer_of(op.step, s.rank, side);
      if (op.step == 0 || s.pass == Pass::backward)  // later ones come whole, from neighbours
        expect_gathered(s, tables.t, s.buffers[buffer], resident.group, played.of(buffer));
    }
  return gathers;
}

TEST(GatheredBlocks, PutEveryRowWhereTheTablesSay) {
  Random random(17);
  int gathers = 0;
  for (int number = 0; number < 400; ++number) {
    const Problem problem = testing::random_problem(random);
    const Capacity c = testing::random_capacity(random, problem);
    HostTables tables(c, 4);
    tables.fill(problem.layout_q, problem.layout_k);
    SCOPED_TRACE("case " + std::to_string(number) + ": " + c.partition + " over " + c.comm.name +
                 ", cp_size " + std::to_string(c.cp_size));
    for (const Pass pass : {Pass::forward, Pass::backward})
      for (const Schedule& s : make_schedules(tables.plan(), pass))
        gathers += played_gathers(tables, s);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(gathers, 1'000);
}

// Rows of a rank's home in their order, from some row of a buffer on; those of nobody may be any.
void expect_home(const LengthTables::Side& x, int rank, const ScheduledBuffer& buffer, int row,
                 Range heads, const NamedCells& cells) {
  for (int i = 0; i < x.home.rows; ++i)
    for (int head = heads.begin; head < heads.end; ++head) {
      const int home = rank * x.home.rows + i;
      if (x.global_of_home[home] == kNobody) continue;
      ASSERT_EQ(cells.at(int64_t{row + i} * buffer.heads.size() + head - buffer.heads.begin),
                std::pair(home, head));
    }
}

// What a rank computed for gathered rows, named after their homes.
NamedCells named_after_homes(const LengthTables::Side& x, int group,
                             const ScheduledBuffer& buffer) {
  NamedCells cells(buffer.cells(), kNothing);
  for (int home = 0; home < x.home_rows; ++home) {
    const int row = x.resident_of_home[home];
    if (row < 0 || home / x.home.rows / x.resident.owned.ranks != group) continue;
    for (int head = 0; head < buffer.heads.size(); ++head)
      cells.at(int64_t{row} * buffer.heads.size() + head) = {home, buffer.heads.begin + head};
  }
  return cells;
}

int expect_way_home(const HostTables& tables, const Schedule& s) {
  GatheredBlocks blocks(tables.plan());
  int checked = 0;
  for (size_t i = 0; i < s.operations.size(); ++i) {
    const Operation& op = s.operations[i];
    if (op.runs.empty() || GatheredBlocks::gathers(s, op)) continue;
    const Operand side = GatheredBlocks::side(s, op);
    const LengthTables::Side& x = tables.t.side(side);
    const ScheduledBuffer &gathered = s.buffers[op.from.buffer], &to = s.buffers[op.to.buffer];
    NamedCells home(to.cells(), kNothing);
    play(blocks.of(s, op), x.resident_of_home,
         named_after_homes(x, tables.buffer_of(op.step, s.rank, side).group, gathered), home);
    if (op.kind == OperationKind::combine) expect_home(x, s.rank, to, 0, op.from.heads, home);
    for (const Operation& exchange : s.operations)
      for (const ScheduledMessage& m : exchange.sends)
        if (m.block.buffer == op.to.buffer && op.kind == OperationKind::copy)
          expect_home(x, m.peer, to, m.block.row, m.block.heads, home);
    ++checked;
  }
  return checked;
}

TEST(GatheredBlocks, EveryRowGoesHomeInItsPlace) {
  Random random(19);
  int checked = 0;
  for (int number = 0; number < 400; ++number) {
    const Problem problem = testing::random_problem(random);
    HostTables tables(testing::random_capacity(random, problem), 4);
    tables.fill(problem.layout_q, problem.layout_k);
    for (const Pass pass : {Pass::forward, Pass::backward})
      for (const Schedule& s : make_schedules(tables.plan(), pass))
        checked += expect_way_home(tables, s);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(checked, 1'000);
}

}  // namespace
}  // namespace ringside
