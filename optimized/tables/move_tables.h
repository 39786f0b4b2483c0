// Where every rank's buffer lies on one device, and what each exchange moves, as tables.
//
// The resident buffers of all virtual ranks share one allocation, counted in cells: a cell is one
// row of one head. Ranks with the same heads lie one below the other and form one matrix, so that
// one launch serves them all. Tables do not know the head dimension: q, dout, lse and dq move by
// the same table. Host code only; a program uploads the tables, move.cu interprets them.
#pragma once

#include <climits>
#include <cstdint>
#include <vector>

#include "reference/plan/residency.h"
#include "reference/support/host_device.h"

namespace ringside {

struct RankStack {
  struct Place {     // of a rank's buffer
    int matrix = 0;  // index into matrices
    int row = 0;     // of that matrix
    int rows = 0;
  };
  struct Matrix {
    int64_t cell = 0;  // where it begins
    int rows = 0;
    Range heads;
  };
  std::vector<Place> of_rank;
  std::vector<Matrix> matrices;
  int64_t cells = 0;

  int64_t cell(int rank, int row, int head) const {  // head: numbered globally
    const Matrix& m = matrices[of_rank[rank].matrix];
    return m.cell + (int64_t{of_rank[rank].row} + row) * m.heads.size() + head - m.heads.begin;
  }
  Range heads_of(int rank) const { return matrices[of_rank[rank].matrix].heads; }
  int heads(int rank) const { return heads_of(rank).size(); }
};

// What is resident just before `step`. `gap` rows behind each rank belong to nobody. The first rank
// begins where its matrix does.
RankStack stack_ranks(const Plan& plan, int step, Operand operand, int gap);

struct CellBlock {  // `rows` runs of `heads` cells
  int64_t from = 0, to = 0;
  int from_pitch = 0, to_pitch = 0;  // cells from one row to the next
  int rows = 0, heads = 0;
  // Where rows go by a map that only the device knows: row i of that side is the one that the map
  // names at this place + i, or none where it names none.
  int from_map = kNoMap, to_map = kNoMap;

  static constexpr int kNoMap = -1;
  RINGSIDE_HD static int row(int map_begin, const int32_t* map, int i) {
    return map_begin == kNoMap ? i : map[map_begin + i];
  }
};

// Of what is added where gradients become final: how many rows are read where they lie.
inline constexpr int kMostTermsAtEnd = 8;

// Cut to what one thread block moves at a time, behind those that are there.
void add_in_pieces(const CellBlock& block, std::vector<CellBlock>& pieces);

// What the exchange before `step` does to an operand; `from` and `to` are its stacks before and
// after. Ranks that the exchange leaves alone keep their rows.
std::vector<CellBlock> carry_blocks(const Plan& plan, int step, Operand operand,
                                    const RankStack& from, const RankStack& to);

// The transpose, in rounds: blocks of one round write different cells, so that sums have one order.
std::vector<std::vector<CellBlock>> carry_back_rounds(const Plan& plan, int step, Operand operand,
                                                      const RankStack& before,
                                                      const RankStack& after);

// The same where the ranks of a group (partition_rows.h) each receive all rows of all of them, and
// lengths say where these lie: by a map from rows of the home stack to rows of the group's buffer.
std::vector<CellBlock> gather_blocks(const RankStack& home, const RankStack& gathered,
                                     int ranks_of_group);
std::vector<std::vector<CellBlock>> gather_back_rounds(const RankStack& home,
                                                       const RankStack& gathered,
                                                       int ranks_of_group);

// Where the rows of a global array lie in the stack of home buffers, and back.
//   global_of_home  g: token row g; ~g: padding row g; kNobody: a gap between ranks
//   home_of_global  a row of the stack; kNobody: no rank owns it
inline constexpr int kNobody = INT_MIN;
inline constexpr int kWritten = -1;  // in place of a row of the stack: a kernel has left it final
struct HostRowMap {
  std::vector<int32_t> global_of_home, home_of_global;
};
HostRowMap home_rows(const Plan& plan, Operand operand, const RankStack& home);

}  // namespace ringside
