// The ranges that kernels walk, by brute force over Mask::allows.
#include "optimized/tables/block_walk.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "reference/test_seed.h"

namespace ringside {
namespace {

struct RandomCase {
  Mask mask;
  int len_q, len_k;
  Segment q, k;
  Interval rows_q, rows_k;  // of the segments: valid tokens, possibly none

  explicit RandomCase(std::mt19937& random) {
    const auto draw = [&](int lo, int hi) { return lo + int(random() % (hi - lo + 1)); };
    const auto bound = [&] { return draw(0, 2) ? kUnbounded : draw(0, 12); };
    mask = {bound(), bound(), draw(0, 2) ? 0 : draw(1, 14),
            draw(0, 1) ? Align::top_left : Align::bottom_right};
    len_q = draw(0, 40), len_k = draw(0, 40);
    q = {0, draw(0, 10), draw(1, 3), 7, draw(1, 30)};
    k = {0, draw(0, 10), draw(1, 3), 5, draw(1, 30)};
    const auto part = [&](int valid) {
      const int begin = draw(0, valid);
      return Interval{begin, draw(begin, valid)};
    };
    rows_q = part(q.rows_below(len_q)), rows_k = part(k.rows_below(len_k));
  }

  SequenceMask lengths() const { return {mask, len_q, len_k}; }
  bool sees(int i, int j) const { return mask.allows(q.position(i), k.position(j), len_q, len_k); }
  std::string text() const {
    std::ostringstream out;
    out << "mask " << mask.left << ' ' << mask.right << ' ' << mask.chunk << ' ' << int(mask.align)
        << " lengths " << len_q << ' ' << len_k << " q " << q.pos << '+' << q.stride << " rows "
        << rows_q.begin << ".." << rows_q.end << " k " << k.pos << '+' << k.stride << " rows "
        << rows_k.begin << ".." << rows_k.end;
    return out.str();
  }
};

struct Sight {
  bool some = false, all = true;
  void add(bool sees) { some |= sees, all &= sees; }
};

TEST(BlockWalk, SeenKeysCoverWhatIsSeenAndNameWhatAllSee) {
  std::mt19937 random = testing::engine(1);
  for (int n = 0; n < 100'000; ++n) {
    const RandomCase c(random);
    if (c.rows_q.size() == 0) continue;
    const SeenKeys seen(c.lengths(), c.k, c.q, c.rows_q.begin, c.rows_q.end);
    for (int j = 0; j < c.k.len; ++j) {
      Sight sight;
      for (int i = c.rows_q.begin; i < c.rows_q.end; ++i) sight.add(c.sees(i, j));
      ASSERT_TRUE(!sight.some || seen.some.contains(j)) << c.text() << " key row " << j;
      ASSERT_EQ(sight.all, seen.all.contains(j)) << c.text() << " key row " << j;
    }
  }
}

TEST(BlockWalk, SeeingQueriesCoverWhatSeesAndNameWhatSeesAll) {
  std::mt19937 random = testing::engine(2);
  for (int n = 0; n < 100'000; ++n) {
    const RandomCase c(random);
    if (c.rows_k.size() == 0) continue;
    const SeeingQueries seeing(c.lengths(), c.q, c.k, c.rows_k.begin, c.rows_k.end);
    for (int i = 0; i < c.q.len; ++i) {
      Sight sight;
      for (int j = c.rows_k.begin; j < c.rows_k.end; ++j) sight.add(c.sees(i, j));
      ASSERT_TRUE(!sight.some || seeing.some.contains(i)) << c.text() << " query row " << i;
      ASSERT_EQ(sight.all, seeing.all.contains(i)) << c.text() << " query row " << i;
    }
  }
}

}  // namespace
}  // namespace ringside
