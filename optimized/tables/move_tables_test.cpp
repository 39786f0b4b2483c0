// In which rounds what a step received is summed into what it came from.
#include "optimized/tables/move_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "reference/test_support/test_random_case.h"
#include "reference/verify/verify.h"

namespace ringside {
namespace {

using testing::Random;
using Cells = std::multiset<int64_t>;

Cells cells_written(const std::vector<CellBlock>& blocks) {
  Cells cells;
  for (const CellBlock& block : blocks)
    for (int row = 0; row < block.rows; ++row)
      for (int head = 0; head < block.heads; ++head)
        cells.insert(block.to + int64_t{row} * block.to_pitch + head);
  return cells;
}

std::map<int64_t, int64_t> times_sent(const std::vector<CellBlock>& blocks) {
  std::map<int64_t, int64_t> times;
  for (const CellBlock& block : blocks)
    for (int row = 0; row < block.rows; ++row)
      for (int head = 0; head < block.heads; ++head)
        ++times[block.from + int64_t{row} * block.from_pitch + head];
  return times;
}

// How many rounds it takes if each block waits for those before it that came from the same cells.
size_t rounds_by_pairs(const Plan& plan, int step, Operand operand) {
  std::vector<Transfer> all = transfers(plan, step, operand);
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const Buffer& buffer = resident_before(plan, rank, step, operand);
    const Message whole{rank, operand, 0, plan.rows(buffer), buffer.heads};
    if (!is_replaced(plan, rank, step, operand)) all.push_back({rank, rank, whole, whole});
  }
  std::erase_if(all, [](const Transfer& t) { return t.sent.rows * t.sent.heads.size() == 0; });
  std::vector<size_t> round(all.size());
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const Message &a = all[i].sent, &b = all[j].sent;
      const bool rows = a.row < b.row_end() && b.row < a.row_end();
      const bool heads = a.heads.begin < b.heads.end && b.heads.begin < a.heads.end;
      if (all[i].from == all[j].from && rows && heads) round[i] = std::max(round[i], round[j] + 1);
    }
  return all.empty() ? 0 : *std::ranges::max_element(round) + 1;
}

// Of each home row, the row of what all ranks gather; nothing where none gathers any.
std::vector<int32_t> rows_by_home(const Plan& plan, const RankStack& home, const RankStack& to,
                                  Operand operand) {
  const auto& homes = operand == Operand::q ? plan.home_q : plan.home_kv;
  const PackedLayout& layout =
      operand == Operand::q ? plan.problem.layout_q : plan.problem.layout_k;
  std::map<int, int32_t> home_of_global;
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const std::vector<int> rows = global_rows(layout, plan.shard(homes[rank]));
    for (size_t i = 0; i < rows.size(); ++i)
      home_of_global[rows[i]] = home.of_rank[rank].row + static_cast<int>(i);
  }
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    if (to.of_rank[rank].rows == 0) continue;
    std::vector<int32_t> map(home.matrices[0].rows, kNobody);
    int32_t next = 0;
    for (const int row : global_rows(layout, plan.shard(resident_before(plan, rank, 1, operand))))
      map[home_of_global.at(row)] = next++;
    return map;
  }
  return {};
}

TEST(CellBlocks, MoveTheSameInPieces) {
  std::vector<int32_t> map;
  for (int row = 0; row < 1'500; ++row) map.push_back(1'500 - row);
  for (const int from_map : {CellBlock::kNoMap, 0, 200}) {
    const CellBlock whole{7, 90, 4, 2, 1'300, 2, from_map};  // of 4 heads, two
    std::vector<CellBlock> pieces;
    add_in_pieces(whole, pieces);
    EXPECT_GT(pieces.size(), 2u);
    std::vector<std::pair<int64_t, int64_t>> got, want;
    const auto add_rows = [&](const CellBlock& b, auto& cells) {
      for (int64_t i = 0; i < b.rows; ++i)
        cells.emplace_back(
            b.from +
                int64_t{CellBlock::row(b.from_map, map.data(), static_cast<int>(i))} * b.from_pitch,
            b.to + i * b.to_pitch);
    };
    add_rows(whole, want);
    for (const CellBlock& piece : pieces) add_rows(piece, got);
    EXPECT_EQ(want, got);
  }
}

class Rounds : public ::testing::TestWithParam<Operand> {
 protected:
  void check(const Plan& plan, int step) {
    const RankStack before = stack_ranks(plan, step, GetParam(), 0);
    const RankStack after = stack_ranks(plan, step + 1, GetParam(), 0);
    const auto rounds = carry_back_rounds(plan, step, GetParam(), before, after);
    const auto sent = times_sent(carry_blocks(plan, step, GetParam(), before, after));
    std::map<int64_t, int64_t> written;
    for (const auto& round : rounds) {
      const Cells cells = cells_written(round);
      for (const int64_t cell : std::set<int64_t>(cells.begin(), cells.end())) {
        EXPECT_EQ(cells.count(cell), 1u) << "two sums into one cell in one round";
        ++written[cell];
      }
    }
    EXPECT_EQ(written, sent) << "whatever left a cell comes back to it";
    EXPECT_EQ(rounds.size(), rounds_by_pairs(plan, step, GetParam())) << "and no round is wasted";
  }
};

TEST_P(Rounds, SumEveryCellOnceARound) {
  Random random(404);
  int exchanges = 0;
  for (int i = 0; i < 300 && !HasFailure(); ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    for (int step = 0; step < plan.num_steps(); ++step, ++exchanges) check(plan, step);
  }
  EXPECT_GT(exchanges, 200);
}

// A number that names the global row and the head of each cell before a step.
std::vector<int64_t> names_of(const Plan& plan, int step, Operand operand, const RankStack& stack) {
  const Problem& problem = plan.problem;
  const PackedLayout& layout = operand == Operand::q ? problem.layout_q : problem.layout_k;
  std::vector<int64_t> names(stack.cells, -1);
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const Buffer& buffer = resident_before(plan, rank, step, operand);
    const std::vector<int> rows = global_rows(layout, plan.shard(buffer));
    for (int row = 0; row < static_cast<int>(rows.size()); ++row)
      for (int head = buffer.heads.begin; head < buffer.heads.end; ++head)
        names[stack.cell(rank, row, head)] = int64_t{rows[row]} * 1000 + head;
  }
  return names;
}

TEST_P(Rounds, BringEveryCellWhereABufferClaimsIt) {
  Random random(405);
  for (int i = 0; i < 300 && !HasFailure(); ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    for (int step = 0; step < plan.num_steps(); ++step) {
      const RankStack before = stack_ranks(plan, step, GetParam(), 0);
      const RankStack after = stack_ranks(plan, step + 1, GetParam(), 0);
      const auto names = names_of(plan, step, GetParam(), before);
      std::vector<int64_t> got(after.cells, -1);
      for (const CellBlock& b : carry_blocks(plan, step, GetParam(), before, after))
        for (int64_t row = 0; row < b.rows; ++row)
          for (int head = 0; head < b.heads; ++head)
            got[b.to + row * b.to_pitch + head] = names[b.from + row * b.from_pitch + head];
      EXPECT_EQ(got, names_of(plan, step + 1, GetParam(), after));
    }
  }
}

// Plans that trade rows of all ranks at first: what the map of a gathered buffer would name.
TEST_P(Rounds, GatherByAMapWhatTheExchangeCarries) {
  Random random(406);
  int gathers = 0;
  for (int i = 0; i < 600 && !HasFailure(); ++i) {
    const Plan plan = testing::random_plan(random, testing::random_problem(random));
    if ((plan.comm != "all_gather" && plan.comm != "a2a") || !any_rank_moves(plan, 0, GetParam()))
      continue;
    const RankStack home = stack_ranks(plan, 0, GetParam(), 3);
    const RankStack to = stack_ranks(plan, 1, GetParam(), 3);
    const std::vector<int32_t> map = rows_by_home(plan, home, to, GetParam());
    if (map.empty()) continue;
    ++gathers;
    const auto place = [&](int begin, int64_t cell, int pitch, int row) {
      return cell + int64_t{CellBlock::row(begin, map.data(), row)} * pitch;
    };
    std::map<int64_t, int64_t> want, got;  // where a gathered cell comes from
    for (const CellBlock& b : carry_blocks(plan, 0, GetParam(), home, to))
      for (int row = 0; row < b.rows; ++row)
        for (int head = 0; head < b.heads; ++head)
          want[b.to + int64_t{row} * b.to_pitch + head] =
              b.from + int64_t{row} * b.from_pitch + head;
    for (const CellBlock& b : gather_blocks(home, to, plan.cp_size()))
      for (int row = 0; row < b.rows; ++row)
        for (int head = 0; head < b.heads; ++head)
          got[place(b.to_map, b.to, b.to_pitch, row) + head] =
              place(b.from_map, b.from, b.from_pitch, row) + head;
    EXPECT_EQ(want, got);
    const auto rounds = gather_back_rounds(home, to, plan.cp_size());
    EXPECT_EQ(rounds.size(), carry_back_rounds(plan, 0, GetParam(), home, to).size());
    std::map<int64_t, int64_t> back;
    for (const auto& round : rounds) {
      Cells written;
      for (const CellBlock& b : round)
        for (int row = 0; row < b.rows; ++row)
          for (int head = 0; head < b.heads; ++head) {
            const int64_t cell = place(b.to_map, b.to, b.to_pitch, row) + head;
            back[place(b.from_map, b.from, b.from_pitch, row) + head] = cell;
            EXPECT_EQ(written.count(cell), 0u) << "two sums into one cell in one round";
            written.insert(cell);
          }
    }
    EXPECT_EQ(want, back);
  }
  EXPECT_GT(gathers, 50);
}

INSTANTIATE_TEST_SUITE_P(MoveTables, Rounds, ::testing::Values(Operand::q, Operand::kv));

}  // namespace
}  // namespace ringside
