// The mask against its definition, written again from the words: query q stands at key p = q, or at
// p = q + len_k - len_q when aligned bottom-right; it sees key k if p-left <= k <= p+right and both
// lie in the same chunk of the key axis.
#include "reference/rows/mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <vector>

#include "reference/support/errors.h"

namespace ringside {
namespace {

int chunk_of(long long position, int chunk) {  // rounds down, also below 0
  int c = 0;
  while (position < 0) position += chunk, --c;
  while (position >= chunk) position -= chunk, ++c;
  return c;
}

bool sees(const Mask& mask, int q, int k, int len_q, int len_k) {
  if (q < 0 || k < 0 || q >= len_q || k >= len_k) return false;
  const long long p = mask.align == Align::top_left ? q : q + (len_k - len_q);
  const bool left = mask.left == -1 || p - mask.left <= k;
  const bool right = mask.right == -1 || k <= p + mask.right;
  const bool same_chunk = mask.chunk == 0 || chunk_of(p, mask.chunk) == chunk_of(k, mask.chunk);
  return left && right && same_chunk;
}

template <typename Visit>  // visit(mask, len_q, len_k)
void for_every_case(Visit visit) {
  const std::vector<int> lengths{0, 1, 2, 3, 4, 5, 7, 12, 20};
  const std::vector<int> windows{-1, 0, 1, 2, 3, 5, 11, 19, 20, 21};
  const std::vector<int> chunks{0, 1, 2, 3, 4, 5, 7, 12, 19, 20, 21};
  for (const Align align : {Align::top_left, Align::bottom_right})
    for (const int left : windows)
      for (const int right : windows)
        for (const int chunk : chunks)
          for (const int len_q : lengths)
            for (const int len_k : lengths) visit(Mask{left, right, chunk, align}, len_q, len_k);
}

std::string describe(const Mask& m, int q, int len_q, int len_k) {
  return concat("query ", q, " of ", len_q, ", ", len_k, " keys, window (", m.left, ", ", m.right,
                "), chunk ", m.chunk, m.align == Align::top_left ? ", top-left" : ", bottom-right");
}

std::vector<int> seen_keys(const Mask& mask, int q, int len_q, int len_k) {
  std::vector<int> keys;
  for (int k = 0; k < len_k; ++k)
    if (mask.allows(q, k, len_q, len_k)) keys.push_back(k);
  return keys;
}

using Keys = std::vector<int>;

TEST(Mask, AllowsWhatTheWordsSay) {
  for_every_case([](const Mask& mask, int len_q, int len_k) {
    for (int q = -1; q <= len_q; ++q)
      for (int k = -1; k <= len_k; ++k)
        if (mask.allows(q, k, len_q, len_k) != sees(mask, q, k, len_q, len_k))
          ADD_FAILURE() << "key " << k << " of " << describe(mask, q, len_q, len_k);
  });
}

TEST(Mask, VisibleIsExactlyWhatIsAllowed) {
  for_every_case([](const Mask& mask, int len_q, int len_k) {
    for (int q = -1; q <= len_q; ++q) {
      const Interval visible = mask.visible(q, len_q, len_k);
      for (int k = -1; k <= len_k; ++k)
        if (visible.contains(k) != sees(mask, q, k, len_q, len_k))
          ADD_FAILURE() << "key " << k << " of " << describe(mask, q, len_q, len_k);
    }
  });
}

TEST(Mask, EndsOfVisibleNeverDecreaseAndStayOnTheKeyAxis) {
  for_every_case([](const Mask& mask, int len_q, int len_k) {
    Interval before{0, 0};
    for (int q = 0; q < len_q; ++q) {
      const Interval visible = mask.visible(q, len_q, len_k);
      const bool in_order = before.begin <= visible.begin && before.end <= visible.end;
      const bool on_axis = visible.begin <= visible.end && visible.end <= len_k;
      if (!in_order || !on_axis) ADD_FAILURE() << describe(mask, q, len_q, len_k);
      before = visible;
    }
  });
}

TEST(Mask, SeeingIsExactlyWhoIsAllowed) {
  for_every_case([](const Mask& mask, int len_q, int len_k) {
    for (int k = -1; k <= len_k; ++k) {
      const Interval seeing = mask.seeing(k, len_q, len_k);
      for (int q = -1; q <= len_q; ++q)
        if (seeing.contains(q) != sees(mask, q, k, len_q, len_k))
          ADD_FAILURE() << "key " << k << " of " << describe(mask, q, len_q, len_k);
    }
  });
}

TEST(Mask, EndsOfSeeingNeverDecreaseAndStayOnTheQueryAxis) {
  for_every_case([](const Mask& mask, int len_q, int len_k) {
    Interval before{0, 0};
    for (int k = 0; k < len_k; ++k) {
      const Interval seeing = mask.seeing(k, len_q, len_k);
      const bool in_order = before.begin <= seeing.begin && before.end <= seeing.end;
      const bool on_axis = seeing.begin <= seeing.end && seeing.end <= len_q;
      if (!in_order || !on_axis)
        ADD_FAILURE() << "key " << k << ", " << describe(mask, 0, len_q, len_k);
      before = seeing;
    }
  });
}

// What next_change promises, without a place but the ends of the axis.
TEST(Mask, UpToTheNextChangeEachEndRestsOrMovesByOne) {
  for_every_case([](const Mask& mask, int len_q, int len_k) {
    for (int q = 0; q < len_q; ++q) {
      const int64_t change = mask.next_change(q, len_q, len_k, {0, len_k});
      ASSERT_GT(change, q);
      const int stop = static_cast<int>(std::min<int64_t>(change, len_q));
      const auto end_of = [&](int i, bool upper) {
        const Interval seen = mask.visible(i, len_q, len_k);
        return upper ? seen.end : seen.begin;
      };
      for (const bool upper : {false, true})
        for (int i = q + 2; i < stop; ++i) {
          if (mask.visible(i - 1, len_q, len_k).size() == 0) break;  // keeps some place
          const int step = end_of(q + 1, upper) - end_of(q, upper);
          if (mask.visible(q, len_q, len_k).size() == 0) break;
          EXPECT_TRUE(step == 0 || step == 1) << describe(mask, q, len_q, len_k);
          EXPECT_EQ(end_of(i, upper) - end_of(i - 1, upper), step)
              << describe(mask, q, len_q, len_k);
        }
    }
  });
}

TEST(Mask, NamesWhatItHides) {
  for_every_case([](const Mask& mask, int len_q, int len_k) {
    if (len_q != 20 || len_k != 20 || mask.align != Align::top_left) return;
    bool before = true, behind = true, ahead = false;
    for (int q = 0; q < len_q; ++q)
      for (int k = 0; k < len_k; ++k) {
        const bool sees = mask.allows(q, k, len_q, len_k);
        if (k <= q) before &= sees;
        if (k >= q) behind &= sees;
        if (k > q) ahead |= sees;
      }
    EXPECT_TRUE(before || !mask.hides_none_before()) << describe(mask, 0, len_q, len_k);
    EXPECT_TRUE(behind || !mask.hides_none_behind()) << describe(mask, 0, len_q, len_k);
    EXPECT_TRUE(!ahead || !mask.ends_at_the_query()) << describe(mask, 0, len_q, len_k);
    const int64_t windows = mask.most_windows(1, len_q);
    EXPECT_EQ(windows == 0, mask.is_one_window()) << describe(mask, 0, len_q, len_k);
  });
}

TEST(Mask, HugeBoundsHideNothing) {
  for (const Align align : {Align::top_left, Align::bottom_right})
    for (const int len_q : {1, 5, INT_MAX})
      for (const int len_k : {1, 5, INT_MAX})
        for (const int q : {0, len_q / 2, len_q - 1}) {
          const Mask huge{INT_MAX, INT_MAX, 0, align};
          EXPECT_EQ(huge.visible(q, len_q, len_k), (Interval{0, len_k}));
          EXPECT_EQ(huge.seeing(0, len_q, len_k), (Interval{0, len_q}));
          EXPECT_EQ(huge.seeing(len_k - 1, len_q, len_k), (Interval{0, len_q}));
          EXPECT_TRUE(huge.allows(q, 0, len_q, len_k) && huge.allows(q, len_k - 1, len_q, len_k));
          EXPECT_EQ((Mask{-1, -1, INT_MAX, Align::top_left}.visible(0, len_q, len_k)),
                    (Interval{0, len_k}));
        }
}

TEST(Mask, TheLongestSequenceDoesNotOverflow) {
  constexpr int kLast = INT_MAX - 1;
  EXPECT_EQ(Mask::causal().visible(kLast, INT_MAX, INT_MAX), (Interval{0, INT_MAX}));
  EXPECT_EQ(Mask::sliding_window(1, 1).visible(kLast, INT_MAX, INT_MAX),
            (Interval{kLast - 1, INT_MAX}));
  EXPECT_EQ(Mask::chunked(INT_MAX).visible(kLast, INT_MAX, INT_MAX), (Interval{0, INT_MAX}));
  const Mask last = Mask::causal(Align::bottom_right);
  EXPECT_EQ(last.visible(0, 1, INT_MAX), (Interval{0, INT_MAX}));
  EXPECT_EQ(last.visible(0, INT_MAX, 1).size(), 0);
  EXPECT_EQ(last.visible(kLast, INT_MAX, 1), (Interval{0, 1}));
  EXPECT_EQ(Mask::chunked(2, Align::bottom_right).visible(0, INT_MAX, 0), (Interval{0, 0}));
  EXPECT_EQ(Mask::causal().seeing(kLast, INT_MAX, INT_MAX), (Interval{kLast, INT_MAX}));
  EXPECT_EQ(Mask::chunked(INT_MAX).seeing(kLast, INT_MAX, INT_MAX), (Interval{kLast, INT_MAX}));
  EXPECT_EQ(last.seeing(kLast, 1, INT_MAX), (Interval{0, 1}));
  EXPECT_EQ(last.seeing(0, INT_MAX, 1), (Interval{kLast, INT_MAX}));
}

TEST(Mask, PaddingSeesNothingAndIsNeverSeen) {
  for (const Mask& mask : {Mask::full(), Mask::causal(), Mask{-1, -1, 4, Align::bottom_right}}) {
    EXPECT_EQ(mask.visible(3, 3, 5).size(), 0);
    EXPECT_EQ(mask.visible(-1, 3, 5).size(), 0);
    EXPECT_LE(mask.visible(2, 3, 5).end, 5);
    EXPECT_FALSE(mask.allows(3, 0, 3, 5));
    EXPECT_FALSE(mask.allows(2, 5, 3, 5));
    EXPECT_FALSE(mask.allows(2, -1, 3, 5));
    EXPECT_EQ(mask.visible(0, 3, 0).size(), 0);
    EXPECT_EQ(mask.seeing(5, 3, 5).size(), 0);
    EXPECT_EQ(mask.seeing(-1, 3, 5).size(), 0);
    EXPECT_LE(mask.seeing(4, 3, 5).end, 3);
    EXPECT_EQ(mask.seeing(0, 0, 5).size(), 0);
  }
}

TEST(Mask, NamedConstructorsAreValues) {
  EXPECT_EQ(Mask::full(), (Mask{-1, -1, 0, Align::top_left}));
  EXPECT_EQ(Mask::causal(), (Mask{-1, 0, 0, Align::top_left}));
  EXPECT_EQ(Mask::causal(Align::bottom_right), (Mask{-1, 0, 0, Align::bottom_right}));
  EXPECT_EQ(Mask::sliding_window(3, 1), (Mask{3, 1, 0, Align::top_left}));
  EXPECT_EQ(Mask::chunked(8, Align::bottom_right), (Mask{-1, 0, 8, Align::bottom_right}));
}

TEST(Mask, CausalTopLeftIgnoresHowManyKeysThereAre) {
  EXPECT_EQ(seen_keys(Mask::causal(), 1, 2, 5), (Keys{0, 1}));
  EXPECT_EQ(seen_keys(Mask::causal(), 4, 5, 2), (Keys{0, 1}));
}

TEST(Mask, CausalBottomRightPutsTheLastQueryAtTheLastKey) {
  const Mask mask = Mask::causal(Align::bottom_right);
  EXPECT_EQ(seen_keys(mask, 0, 2, 5), (Keys{0, 1, 2, 3}));
  EXPECT_EQ(seen_keys(mask, 1, 2, 5), (Keys{0, 1, 2, 3, 4}));
  EXPECT_EQ(seen_keys(mask, 2, 5, 2), Keys{});  // more queries than keys: the first see nothing
  EXPECT_EQ(seen_keys(mask, 3, 5, 2), Keys{0});
}

TEST(Mask, AWindowOfLeftSeesAsManyPreviousKeysPlusItself) {
  EXPECT_EQ(seen_keys(Mask::sliding_window(2, 0), 5, 9, 9), (Keys{3, 4, 5}));
  EXPECT_EQ(seen_keys(Mask::sliding_window(0, 0), 5, 9, 9), Keys{5});
  EXPECT_EQ(seen_keys(Mask::sliding_window(1, 2), 8, 9, 9), (Keys{7, 8}));
  EXPECT_EQ(seen_keys(Mask::sliding_window(1, 0), 8, 9, 3), Keys{});  // beyond the last key
}

TEST(Mask, ChunksStartAtKeyZeroAndTheLastMayBeShort) {
  EXPECT_EQ(seen_keys(Mask::chunked(4), 3, 10, 10), (Keys{0, 1, 2, 3}));
  EXPECT_EQ(seen_keys(Mask::chunked(4), 4, 10, 10), Keys{4});
  EXPECT_EQ(seen_keys(Mask{-1, -1, 4, Align::top_left}, 8, 10, 10), (Keys{8, 9}));
}

TEST(Mask, QueriesBeforeTheFirstKeyAreInChunksOfTheirOwn) {
  const Mask mask{-1, -1, 2, Align::bottom_right};  // 5 queries, 2 keys: p = -3, -2, -1, 0, 1
  for (const int q : {0, 1, 2}) EXPECT_EQ(seen_keys(mask, q, 5, 2), Keys{}) << q;
  for (const int q : {3, 4}) EXPECT_EQ(seen_keys(mask, q, 5, 2), (Keys{0, 1})) << q;
}

}  // namespace
}  // namespace ringside
