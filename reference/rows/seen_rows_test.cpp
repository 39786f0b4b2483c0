// Blocks of rows judged by their first and last row: against every pair by Mask::allows, and
// against a search for the rows that see something.
#include "reference/rows/seen_rows.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "reference/test_support/test_random_case.h"

namespace ringside {
namespace {

using testing::Random;

struct MaskedTile {
  SequenceMask lengths;
  Segment q, k;
  Interval rows_q, rows_k;  // of the segments: valid tokens, possibly none

  bool sees(int i, int j) const {
    return lengths.mask.allows(q.position(i), k.position(j), lengths.len_q, lengths.len_k);
  }
  SeenKeys seen() const { return {lengths, k, q, rows_q.begin, rows_q.end}; }
  SeeingQueries seeing() const { return {lengths, q, k, rows_k.begin, rows_k.end}; }
  std::string text() const {
    const Mask& mask = lengths.mask;
    std::ostringstream out;
    out << "window " << mask.left << ' ' << mask.right << " chunk " << mask.chunk << " align "
        << int(mask.align) << " lengths " << lengths.len_q << ' ' << lengths.len_k << " q " << q.pos
        << '+' << q.stride << " rows " << rows_q.begin << ".." << rows_q.end << " k " << k.pos
        << '+' << k.stride << " rows " << rows_k.begin << ".." << rows_k.end;
    return out.str();
  }
};

Segment random_segment(Random& random) {
  return {0, random.integer(0, 12), random.choice<int>({1, 1, 1, 2, 3, 7}), random.integer(0, 99),
          random.integer(1, 24)};
}

Segment with_random_gap(Random& random, Segment s) {
  if (s.len > 1 && random.coin()) s.gap_at = random.integer(1, s.len - 1);
  if (s.gap_at < s.len) s.gap = random.integer(0, 12);
  return s;
}

MaskedTile random_tile(Random& random) {
  MaskedTile c{{testing::random_mask(random), random.integer(0, 40), random.integer(0, 40)},
               with_random_gap(random, random_segment(random)),
               random_segment(random),
               {},
               {}};
  const auto part = [&](int valid) {
    const int begin = random.integer(0, valid);
    return Interval{begin, random.integer(begin, valid)};
  };
  c.rows_q = part(c.q.rows_below(c.lengths.len_q));
  c.rows_k = part(c.k.rows_below(c.lengths.len_k));
  return c;
}

std::vector<Mask> small_masks() {
  std::vector<Mask> masks;
  for (const Align align : {Align::top_left, Align::bottom_right})
    for (const int left : {-1, 0, 1, 3})
      for (const int right : {-1, 0, 1, 3})
        for (const int chunk : {0, 1, 2, 3, 5}) masks.push_back({left, right, chunk, align});
  return masks;
}

std::vector<Segment> small_segments() {  // runs, stripes, and some that begin behind the tokens
  std::vector<Segment> segments;
  for (const int pos : {0, 1, 4})
    for (const int stride : {1, 2, 3})
      for (const int len : {1, 3, 6}) segments.push_back({0, pos, stride, 7, len});
  return segments;
}

// With sanitizers one of each few, of all masks and lengths.
template <typename Visit>
void for_every_small_case(Visit visit) {
  int number = 0;
  for (const Mask& mask : small_masks())
    for (const int len_q : {0, 1, 2, 5, 7})
      for (const int len_k : {0, 1, 3, 6})
        for (const Segment& q : small_segments())
          for (const Segment& k : small_segments()) {
            if (number++ % testing::kSanitizedShare != 0) continue;
            const int of_q = q.rows_below(len_q), of_k = k.rows_below(len_k);
            visit(MaskedTile{{mask, len_q, len_k}, q, k, {of_q / 3, of_q}, {0, (of_k + 1) / 2}});
            if (::testing::Test::HasFatalFailure()) return;
          }
}

template <typename Visit>
void for_random_cases(unsigned seed, Visit visit) {
  Random random(seed);
  for (int n = 0; n < testing::cases(100'000) && !::testing::Test::HasFatalFailure(); ++n)
    visit(random_tile(random));
}

struct Sight {
  bool some = false, all = true;
  void add(bool sees) { some |= sees, all &= sees; }
};

void expect_keys_seen(const MaskedTile& c) {
  if (c.rows_q.size() == 0) return;
  const SeenKeys seen = c.seen();
  for (int j = 0; j < c.k.len; ++j) {
    Sight sight;
    for (int i = c.rows_q.begin; i < c.rows_q.end; ++i) sight.add(c.sees(i, j));
    ASSERT_TRUE(!sight.some || seen.some.contains(j)) << c.text() << " key row " << j;
    ASSERT_EQ(sight.all, seen.all.contains(j)) << c.text() << " key row " << j;
  }
}

void expect_queries_seeing(const MaskedTile& c) {
  if (c.rows_k.size() == 0) return;
  const SeeingQueries seeing = c.seeing();
  for (int i = 0; i < c.q.len; ++i) {
    Sight sight;
    for (int j = c.rows_k.begin; j < c.rows_k.end; ++j) sight.add(c.sees(i, j));
    ASSERT_TRUE(!sight.some || seeing.some.contains(i)) << c.text() << " query row " << i;
    ASSERT_EQ(sight.all, seeing.all.contains(i)) << c.text() << " query row " << i;
  }
}

TEST(SeenRows, KeysCoverWhatIsSeenAndNameWhatAllSee) { for_random_cases(1, expect_keys_seen); }
TEST(SeenRows, QueriesCoverWhatSeesAndNameWhatSeesAll) {
  for_random_cases(2, expect_queries_seeing);
}
TEST(SeenRows, AreRightInEverySmallCase) {
  for_every_small_case([](const MaskedTile& c) {
    expect_keys_seen(c);
    expect_queries_seeing(c);
  });
}

// The first row of `rows` for which a predicate on what a query row sees, once true, stays true.
template <typename Predicate>
int first_row(const MaskedTile& c, Interval rows, Predicate predicate) {
  int lo = rows.begin, hi = rows.end;
  while (lo < hi) {
    const int mid = lo + (hi - lo) / 2;
    const Interval seen =
        c.lengths.mask.visible(c.q.position(mid), c.lengths.len_q, c.lengths.len_k);
    if (predicate(seen))
      hi = mid;
    else
      lo = mid + 1;
  }
  return lo;
}

// The rows of k from the first to the last that some row of rows_q sees, by bisection over
// Mask::visible alone: from key to the first row that may see it, to what that one sees.
Interval searched_keys(const MaskedTile& c) {
  const auto visible = [&](int i) {
    return c.lengths.mask.visible(c.q.position(i), c.lengths.len_q, c.lengths.len_k);
  };
  Interval keys{0, c.k.len};
  for (int i = c.rows_q.begin; keys.begin < keys.end;) {
    const int first = c.k.position(keys.begin);
    i = first_row(c, {i, c.rows_q.end}, [&](Interval seen) { return seen.end > first; });
    if (i == c.rows_q.end) return {};
    const int lo = visible(i).begin;
    if (lo <= first) break;
    keys.begin = c.k.rows_below(lo);
  }
  for (int i = c.rows_q.end; keys.begin < keys.end;) {
    const int last = c.k.position(keys.end - 1);
    i = first_row(c, {c.rows_q.begin, i}, [&](Interval seen) { return seen.begin > last; });
    const int hi = visible(i - 1).end;
    if (hi > last) break;
    keys.end = c.k.rows_below(hi);
  }
  return keys;
}

// The rows of q from the first to the last that see some row of rows_k. A row sees one of them if
// it sees beyond the last key row that lies before its own interval.
Interval searched_queries(const MaskedTile& c) {
  const auto sees_one = [&](int i) {
    const Interval rows = c.lengths.visible_rows(c.k, c.q.position(i));
    return rows.begin < c.rows_k.end && c.rows_k.begin < rows.end && rows.size() > 0;
  };
  Interval rows{0, c.q.rows_below(c.lengths.len_q)};
  const int first_key = c.k.position(c.rows_k.begin), last_key = c.k.position(c.rows_k.end - 1);
  rows.begin = first_row(c, rows, [&](Interval seen) { return seen.end > first_key; });
  rows.end = first_row(c, rows, [&](Interval seen) { return seen.begin > last_key; });
  while (rows.begin < rows.end && !sees_one(rows.begin)) ++rows.begin;
  while (rows.begin < rows.end && !sees_one(rows.end - 1)) --rows.end;
  return rows;
}

void expect_found(const MaskedTile& c, Interval searched, Interval exact, Interval closed) {
  if (searched.size() == 0) {
    ASSERT_EQ(exact.size(), 0) << c.text();
  } else {
    ASSERT_EQ(searched, exact) << c.text();
    ASSERT_TRUE(closed.begin <= exact.begin && exact.end <= closed.end) << c.text();
  }
  if (c.q.stride == 1 && c.k.stride == 1 && c.q.gap == 0) {
    ASSERT_TRUE(closed == searched || (closed.size() == 0 && searched.size() == 0)) << c.text();
  }
}

void expect_as_searched(const MaskedTile& c) {
  if (c.rows_q.size() > 0)
    expect_found(c, searched_keys(c), keys_seen(c.lengths, c.k, c.q, c.rows_q.begin, c.rows_q.end),
                 c.seen().some);
  if (c.rows_k.size() > 0)
    expect_found(c, searched_queries(c),
                 queries_seeing(c.lengths, c.q, c.k, c.rows_k.begin, c.rows_k.end),
                 c.seeing().some);
}

TEST(SeenRows, AreThoseThatASearchFinds) { for_random_cases(3, expect_as_searched); }
TEST(SeenRows, AreThoseThatASearchFindsInEverySmallCase) {
  for_every_small_case(expect_as_searched);
}

// From the first to the last of n rows for which `needed` holds.
template <typename Needed>
Interval hull(int n, Needed needed) {
  Interval all;
  for (int i = 0; i < n; ++i)
    if (needed(i)) all = {all.size() == 0 ? i : all.begin, i + 1};
  return all;
}

TEST(SeenRows, ASearchFindsTheFirstAndTheLastThatSee) {
  for_random_cases(4, [](const MaskedTile& c) {
    const auto is_seen = [&](int j) {
      for (int i = c.rows_q.begin; i < c.rows_q.end; ++i)
        if (c.sees(i, j)) return true;
      return false;
    };
    const auto is_seeing = [&](int i) {
      for (int j = c.rows_k.begin; j < c.rows_k.end; ++j)
        if (c.sees(i, j)) return true;
      return false;
    };
    const auto same = [](Interval a, Interval b) { return a == b || (!a.size() && !b.size()); };
    if (c.rows_q.size() > 0) {
      ASSERT_TRUE(same(searched_keys(c), hull(c.k.len, is_seen))) << c.text();
    }
    if (c.rows_k.size() > 0) {
      ASSERT_TRUE(same(searched_queries(c), hull(c.q.len, is_seeing))) << c.text();
    }
  });
}

}  // namespace
}  // namespace ringside
