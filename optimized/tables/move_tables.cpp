#include "optimized/tables/move_tables.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ringside {
namespace {

constexpr int kCellsOfBlock = 512;  // what one thread block moves at a time

int rows_of_piece(int cells_of_row) {
  return std::max(1, kCellsOfBlock / std::max(1, cells_of_row));
}

// Everything an exchange copies, whole; messages first, then what stays.
std::vector<std::pair<CellBlock, Transfer>> whole_blocks(const Plan& plan, int step,
                                                         Operand operand, const RankStack& from,
                                                         const RankStack& to) {
  std::vector<Transfer> all = transfers(plan, step, operand);
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const Buffer& buffer = resident_before(plan, rank, step, operand);
    const Message whole{rank, operand, 0, plan.rows(buffer), buffer.heads};
    if (!is_replaced(plan, rank, step, operand)) all.push_back({rank, rank, whole, whole});
  }
  std::vector<std::pair<CellBlock, Transfer>> blocks;
  for (const Transfer& t : all)
    if (t.sent.rows > 0 && t.sent.heads.size() > 0)
      blocks.emplace_back(
          CellBlock{from.cell(t.from, t.sent.row, t.sent.heads.begin),
                    to.cell(t.to, t.received.row, t.received.heads.begin), from.heads(t.from),
                    to.heads(t.to) * t.step, t.sent.rows, t.sent.heads.size()},
          t);
  return blocks;
}

// Which round may write next where a rank's rows came from. Heads between which no block begins or
// ends go together.
class NextRounds {
 public:
  NextRounds(const Plan& plan, const std::vector<std::pair<CellBlock, Transfer>>& blocks)
      : of_rank_(plan.cp_size()) {
    std::vector<int> rows(plan.cp_size());
    for (const auto& [block, t] : blocks) {
      cuts_.insert(cuts_.end(), {t.sent.heads.begin, t.sent.heads.end});
      rows[t.from] = std::max(rows[t.from], t.sent.row_end());
    }
    std::ranges::sort(cuts_);
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
    for (int rank = 0; rank < plan.cp_size(); ++rank)
      of_rank_[rank].resize(cuts_.size(), std::vector<int>(rows[rank]));
  }

  // The first round behind all those of blocks before it that came from any of the same cells.
  int take(const Transfer& t) {
    int round = 0;
    for_each_row(t, [&](int next) { round = std::max(round, next); });
    for_each_row(t, [&](int& next) { next = round + 1; });
    return round;
  }

 private:
  template <typename Visit>
  void for_each_row(const Transfer& t, Visit visit) {
    auto& runs = of_rank_[t.from];
    for (size_t run = run_of(t.sent.heads.begin); run < run_of(t.sent.heads.end); ++run)
      for (int row = t.sent.row; row < t.sent.row_end(); ++row) visit(runs[run][row]);
  }
  size_t run_of(int head) const { return std::ranges::lower_bound(cuts_, head) - cuts_.begin(); }

  std::vector<int> cuts_;
  std::vector<std::vector<std::vector<int>>> of_rank_;  // run of heads, row
};

CellBlock reversed(CellBlock block) {
  std::swap(block.from, block.to);
  std::swap(block.from_pitch, block.to_pitch);
  std::swap(block.from_map, block.to_map);
  return block;
}

// What a rank gathers, whole: a block of each rank of its group.
std::vector<CellBlock> gathered_by(int rank, const RankStack& home, const RankStack& gathered,
                                   int ranks_of_group) {
  const Range heads = gathered.heads_of(rank);
  const int first = rank - rank % ranks_of_group;
  std::vector<CellBlock> blocks;
  for (int owner = first; owner < first + ranks_of_group; ++owner) {
    CellBlock block{home.cell(owner, 0, heads.begin),
                    gathered.cell(rank, 0, heads.begin),
                    home.heads(owner),
                    heads.size(),
                    home.of_rank[owner].rows,
                    heads.size()};
    block.to_map = home.of_rank[owner].row;
    if (gathered.of_rank[rank].rows > 0 && block.rows > 0 && block.heads > 0)
      blocks.push_back(block);
  }
  return blocks;
}

}  // namespace

void add_in_pieces(const CellBlock& block, std::vector<CellBlock>& pieces) {
  const int rows = rows_of_piece(block.heads);
  for (int begin = 0; begin < block.rows; begin += rows) {
    CellBlock piece = block;
    piece.rows = std::min(rows, block.rows - begin);
    const auto go_on = [begin](int64_t& cell, int pitch, int& map) {
      if (map == CellBlock::kNoMap)
        cell += int64_t{begin} * pitch;
      else
        map += begin;
    };
    go_on(piece.from, piece.from_pitch, piece.from_map);
    go_on(piece.to, piece.to_pitch, piece.to_map);
    pieces.push_back(piece);
  }
}

RankStack stack_ranks(const Plan& plan, int step, Operand operand, int gap) {
  std::map<std::pair<int, int>, std::vector<int>> ranks_of_heads;
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const Range heads = resident_before(plan, rank, step, operand).heads;
    ranks_of_heads[{heads.begin, heads.end}].push_back(rank);
  }
  RankStack stack;
  stack.of_rank.resize(plan.cp_size());
  for (const auto& [heads, ranks] : ranks_of_heads) {
    RankStack::Matrix matrix{stack.cells, 0, {heads.first, heads.second}};
    for (const int rank : ranks) {
      const int rows = plan.rows(resident_before(plan, rank, step, operand));
      stack.of_rank[rank] = {static_cast<int>(stack.matrices.size()), matrix.rows, rows};
      matrix.rows += rows + gap;
    }
    stack.cells += int64_t{matrix.rows} * matrix.heads.size();
    stack.matrices.push_back(matrix);
  }
  return stack;
}

std::vector<CellBlock> carry_blocks(const Plan& plan, int step, Operand operand,
                                    const RankStack& from, const RankStack& to) {
  std::vector<CellBlock> pieces;
  for (const auto& [block, transfer] : whole_blocks(plan, step, operand, from, to))
    add_in_pieces(block, pieces);
  return pieces;
}

std::vector<std::vector<CellBlock>> carry_back_rounds(const Plan& plan, int step, Operand operand,
                                                      const RankStack& before,
                                                      const RankStack& after) {
  const auto blocks = whole_blocks(plan, step, operand, before, after);
  NextRounds next(plan, blocks);
  std::vector<std::vector<CellBlock>> rounds;
  for (const auto& [block, transfer] : blocks) {
    const size_t round = next.take(transfer);
    if (round == rounds.size()) rounds.emplace_back();
    add_in_pieces(reversed(block), rounds[round]);
  }
  return rounds;
}

std::vector<CellBlock> gather_blocks(const RankStack& home, const RankStack& gathered,
                                     int ranks_of_group) {
  std::vector<CellBlock> pieces;
  for (size_t rank = 0; rank < gathered.of_rank.size(); ++rank)
    for (const CellBlock& block :
         gathered_by(static_cast<int>(rank), home, gathered, ranks_of_group))
      add_in_pieces(block, pieces);
  return pieces;
}

// The ranks of a group that share a head take a round each; groups, and other heads, share rounds.
std::vector<std::vector<CellBlock>> gather_back_rounds(const RankStack& home,
                                                       const RankStack& gathered,
                                                       int ranks_of_group) {
  const int ranks = static_cast<int>(gathered.of_rank.size());
  const auto share_heads = [&](int a, int b) {
    const Range x = gathered.heads_of(a), y = gathered.heads_of(b);
    return std::max(x.begin, y.begin) < std::min(x.end, y.end);
  };
  std::vector<size_t> round(ranks, 0);
  std::vector<std::vector<CellBlock>> rounds;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto blocks = gathered_by(rank, home, gathered, ranks_of_group);
    if (blocks.empty()) continue;
    for (int before = rank - rank % ranks_of_group; before < rank; ++before)
      if (share_heads(before, rank)) round[rank] = std::max(round[rank], round[before] + 1);
    if (round[rank] == rounds.size()) rounds.emplace_back();
    for (const CellBlock& block : blocks) add_in_pieces(reversed(block), rounds[round[rank]]);
  }
  return rounds;
}

HostRowMap home_rows(const Plan& plan, Operand operand, const RankStack& home) {
  const bool is_q = operand == Operand::q;
  const PackedLayout& layout = is_q ? plan.problem.layout_q : plan.problem.layout_k;
  const auto& homes = is_q ? plan.home_q : plan.home_kv;
  HostRowMap map;
  map.global_of_home.resize(home.matrices.empty() ? 0 : home.matrices[0].rows, kNobody);
  map.home_of_global.resize(layout.num_rows(), kNobody);
  for (int rank = 0; rank < plan.cp_size(); ++rank)
    for (const Segment& s : plan.shard(homes[rank]))
      for (int i = 0; i < s.len; ++i) {
        const int global = layout.row_begin(s.seq) + s.position(i);
        const int row = home.of_rank[rank].row + s.row + i;
        map.global_of_home[row] = s.position(i) < layout.len(s.seq) ? global : ~global;
        map.home_of_global[global] = row;
      }
  return map;
}

}  // namespace ringside
