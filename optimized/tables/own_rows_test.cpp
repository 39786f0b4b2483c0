// What a rank with arrays of its own reads of tables of all ranks: against what a plan that knows
// the lengths has of it.
#include "optimized/tables/own_rows.h"

#include "optimized/tables/test_host_tables.h"

namespace ringside {
namespace {

using testing::HostTables;
using testing::Random;

struct RowsOfRank {
  std::vector<int32_t> global_of_home, home_of_global, seeing;
};

RowsOfRank rows_of_rank(const LengthTables& t, Operand side, int rank) {
  const auto rows = static_cast<size_t>(t.side(side).home.rows);
  RowsOfRank found{std::vector<int32_t>(rows), std::vector<int32_t>(rows),
                   std::vector<int32_t>(rows)};
  const OwnRows own{side, rank, found.global_of_home.data(), found.home_of_global.data(),
                    side == Operand::q ? found.seeing.data() : nullptr};
  for (int row = 0; row < static_cast<int>(rows); ++row) own.fill(t, row);
  return found;
}

// From the definition: which position each row of the rank's array has.
RowsOfRank wanted(const Problem& problem, const Shard& shard, Operand side, size_t rows) {
  const PackedLayout& layout = side == Operand::q ? problem.layout_q : problem.layout_k;
  RowsOfRank want{std::vector<int32_t>(rows, kNobody), std::vector<int32_t>(rows, kNobody),
                  std::vector<int32_t>(rows, side == Operand::q ? kNobody : 0)};
  for (const Segment& s : shard)
    for (int i = 0; i < s.len; ++i) {
      const int row = s.row + i, q = s.position(i), of_q = problem.layout_q.len(s.seq);
      const int of_k = problem.layout_k.len(s.seq);
      bool sees = false;
      for (int k = 0; k < of_k; ++k) sees |= q < of_q && problem.mask.allows(q, k, of_q, of_k);
      want.home_of_global[row] = row;
      want.global_of_home[row] = q < layout.len(s.seq) ? row : ~row;
      if (side == Operand::q) want.seeing[row] = sees ? row : ~row;
    }
  return want;
}

TEST(OwnRows, AreThoseOfAPlanThatKnowsTheLengths) {
  Random random(11);
  int unseen = 0;
  for (int number = 0; number < testing::cases(1'000); ++number) {
    const Problem problem = testing::random_problem(random);
    const Capacity c = testing::random_capacity(random, problem);
    HostTables tables(c, 4);
    tables.fill(problem.layout_q, problem.layout_k);
    const Plan plan = build_plan(problem, place(problem, c.partition, c.cp_size), {"p2p"});
    for (const Operand side : {Operand::q, Operand::kv})
      for (int rank = 0; rank < c.cp_size; ++rank) {
        const auto& homes = side == Operand::q ? plan.home_q : plan.home_kv;
        const RowsOfRank found = rows_of_rank(tables.t, side, rank);
        const RowsOfRank want =
            wanted(problem, plan.shard(homes[rank]), side, found.global_of_home.size());
        ASSERT_EQ(found.global_of_home, want.global_of_home);
        ASSERT_EQ(found.home_of_global, want.home_of_global);
        ASSERT_EQ(found.seeing, want.seeing);
        for (size_t row = 0; side == Operand::q && row < want.seeing.size(); ++row)
          unseen += want.seeing[row] != want.global_of_home[row];
      }
  }
  EXPECT_GT(unseen, testing::cases(100));
}

uint64_t word_of(const LengthTables& t) {
  uint64_t word = 0;
  for (int entry = 0; entry < LengthsWord::entries(t); ++entry)
    word += LengthsWord::of_entry(t, entry);
  return word;
}

TEST(LengthsWord, IsAlikeWhereAllLengthsAreAndOnlyThere) {
  Random random(13);
  for (int number = 0; number < testing::cases(500); ++number) {
    const Problem problem = testing::random_problem(random);
    HostTables tables(testing::random_capacity(random, problem), 4);
    tables.fill(problem.layout_q, problem.layout_k);
    const LengthTables& t = tables.t;
    const uint64_t word = word_of(t);
    for (int32_t* array :
         {t.q.cu_seqlens, t.q.cu_seqlens_padded, t.k.cu_seqlens, t.k.cu_seqlens_padded}) {
      int32_t& entry = array[random.integer(0, t.max_batch)];
      ++entry;
      ASSERT_NE(word_of(t), word);
      --entry;
    }
    ASSERT_EQ(word_of(t), word);
    const int last = t.max_batch;
    if (t.q.cu_seqlens[last] == t.q.cu_seqlens[0]) continue;
    std::swap(t.q.cu_seqlens[last], t.q.cu_seqlens[0]);  // the same numbers elsewhere
    ASSERT_NE(word_of(t), word);
  }
}

}  // namespace
}  // namespace ringside
