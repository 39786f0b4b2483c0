#include "reference/thd/step_metadata.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "reference/partition/partition.h"
#include "reference/test_support/test_random_case.h"
#include "reference/thd/dual_chunk.h"
#include "reference/thd/test_errors.h"

namespace ringside::thd {
namespace {

using Token = std::array<int, 2>;                 // sequence, position
using Pairs = std::map<std::array<int, 3>, int>;  // (sequence, query, key) -> how often

std::vector<Token> tokens_in_order(const Shard& shard) {
  std::vector<Token> tokens;
  for (const Segment& s : shard)
    for (int i = 0; i < s.len; ++i) tokens.push_back({s.seq, s.position(i)});
  return tokens;
}

std::vector<Token> local_tokens(const PackedLayout& layout, CpRank cp) {
  return tokens_in_order(find_partition("zigzag").shard(layout, cp.cp_size, cp.rank));
}

// FlashAttention's bottom-right contract, read literally.
void add_pairs(const StepMetadata& step, const std::vector<Token>& q, const std::vector<Token>& k,
               Pairs& pairs) {
  ASSERT_EQ(step.cu_seqlens_q_padded.back(), static_cast<int>(q.size()));
  ASSERT_EQ(step.cu_seqlens_kv_padded.back(), static_cast<int>(k.size()));
  for (size_t b = 0; b < step.sequence.size(); ++b) {
    const int sq = step.seqused_q[b], sk = step.seqused_k[b];
    const int left = step.window_left[b], right = step.window_right[b];
    ASSERT_GE(std::min(left, right), kUnbounded);
    for (int i = 0; i < sq; ++i)
      for (int j = 0; j < sk; ++j) {
        if (left != kUnbounded && j < i + sk - sq - left) continue;
        if (right != kUnbounded && j > i + sk - sq + right) continue;
        const Token query = q[step.cu_seqlens_q_padded[b] + i];
        const Token key = k[step.cu_seqlens_kv_padded[b] + j];
        ASSERT_EQ(query[0], step.sequence[b]);
        ASSERT_EQ(key[0], step.sequence[b]);
        ++pairs[{query[0], query[1], key[1]}];
      }
  }
}

Pairs wanted(const MaskedLayouts& layouts) {
  Pairs pairs;
  for (int s = 0; s < layouts.q.batch(); ++s)
    for (int q = 0; q < layouts.q.len(s); ++q)
      for (int k = 0; k < layouts.k.len(s); ++k)
        if (layouts.mask.allows(q, k, layouts.q.len(s), layouts.k.len(s))) pairs[{s, q, k}] = 1;
  return pairs;
}

TEST(StepMetadata, MeansExactlyTheMaskOverAllStepsAndRanks) {
  testing::Random random(3);
  for (int i = 0; i < testing::cases(1500); ++i) {
    const Problem p = testing::random_problem(random);
    const MaskedLayouts layouts{p.layout_q, p.layout_k, p.mask};
    const int cp_size = random.integer(1, 5);
    Pairs gathered, ring;
    for (int rank = 0; rank < cp_size; ++rank) {
      const auto tokens = local_tokens(p.layout_q, {cp_size, rank});
      for (const StepMetadata& step : all_gather_step_metadata(layouts, {cp_size, rank}))
        add_pairs(step, tokens,
                  tokens_in_order(find_partition("contiguous").shard(p.layout_k, 1, 0)), gathered);
      for (int s = 0; s < cp_size; ++s) {
        const StepMetadata step = p2p_step_metadata(layouts, {cp_size, rank}, s);
        add_pairs(step, tokens, local_tokens(p.layout_k, {cp_size, step.kv_rank}), ring);
      }
    }
    ASSERT_EQ(gathered, wanted(layouts)) << "case " << i << ", cp_size " << cp_size;
    ASSERT_EQ(ring, wanted(layouts)) << "case " << i << ", cp_size " << cp_size;
  }
}

TEST(StepMetadata, OfALongSequenceTakesNoTimeAndDoesNotOverflow) {
  const int rows = 2147483647;
  const PackedLayout layout({0, rows});
  const Mask mask = Mask::sliding_window(rows, rows);
  const StepMetadata step = p2p_step_metadata({layout, layout, mask}, {4, 1}, 3);
  EXPECT_EQ(step.sequence, std::vector<int32_t>{0});
  EXPECT_EQ(step.seqused_q[0], DualChunk({rows, 4}).local_rows(1));
  EXPECT_EQ(step.window_left[0], kUnbounded);
}

struct Row {  // of the table of sections, for one sequence of 8 rows on 2 ranks
  int rank, step;
  const char* section;
  int q_row, sq, kv_row, sk, right;
};

TEST(P2p, CausalStepsAreTransformerEnginesTable) {
  const PackedLayout layout({0, 8});
  for (const Row& want :
       {Row{0, 0, "diagonal", 0, 4, 0, 4, 0}, Row{0, 1, "upper", 2, 2, 0, 4, -1},
        Row{1, 0, "diagonal", 0, 4, 0, 4, 0}, Row{1, 1, "lower", 0, 4, 0, 2, -1}}) {
    const StepMetadata step =
        p2p_step_metadata({layout, layout, Mask::causal()}, {2, want.rank}, want.step);
    EXPECT_EQ(step.section, std::string(want.section));
    EXPECT_EQ(step.cu_seqlens_q_padded, (std::vector<int32_t>{want.q_row, 4}));
    EXPECT_EQ(step.cu_seqlens_kv_padded, (std::vector<int32_t>{want.kv_row, 4}));
    EXPECT_EQ(step.cu_seqlens_q, (std::vector<int32_t>{0, want.sq}));
    EXPECT_EQ(step.cu_seqlens_kv, (std::vector<int32_t>{0, want.sk}));
    EXPECT_EQ(step.window_left[0], kUnbounded);
    EXPECT_EQ(step.window_right[0], want.right);
  }
}

TEST(P2p, ALengthThatDoesNotDivideLosesNoToken) {
  const PackedLayout layout({0, 7});  // 7 / 2 = 3 tokens a rank, says the peer: one is dropped
  int tokens = 0;
  for (int rank = 0; rank < 2; ++rank)
    tokens += p2p_step_metadata({layout, layout, Mask::causal()}, {2, rank}, 0).seqused_q[0];
  EXPECT_EQ(tokens, 7);
}

TEST(P2p, EachStepHasTheKeysOfOneRankFurtherBack) {
  const PackedLayout layout({0, 8});
  const int want[] = {1, 0, 3, 2};
  for (int step = 0; step < 4; ++step)
    EXPECT_EQ(p2p_step_metadata({layout, layout, Mask::full()}, {4, 1}, step).kv_rank, want[step]);
}

TEST(P2p, UnequalLayoutsHaveNoSections) {
  const PackedLayout q({0, 8}), k({0, 9});
  EXPECT_EQ(p2p_step_metadata({q, k, Mask::causal()}, {2, 1}, 1).section, std::string("all"));
}

// The peer's visible counts and its one window, adjusted by the longest sequence (chunk Pmax), for
// `valid` tokens in chunks of P rows; `chunk` is the query's.
struct Peer {
  int cp_size, P, Pmax, valid, left, right, chunk;

  bool sees(int i, int j) const {
    const int sq = queries(), sk = std::min(valid, P * (chunk + 1) + right);
    const int end = (chunk + 1) * Pmax, last = std::min(Pmax * 2 * cp_size, end + right);
    const int wr = end + right - last, wl = left + last - end;
    return j < sk && i + sk - sq - wl <= j && j <= i + sk - sq + wr;
  }
  int queries() const { return std::clamp(valid - chunk * P, 0, P); }
  bool is_the_mask() const {
    for (int i = 0; i < queries(); ++i)
      for (int j = 0; j < valid; ++j)
        if (sees(i, j) != Mask::sliding_window(left, right).allows(chunk * P + i, j, valid, valid))
          return false;
    return true;
  }
};

struct Census {
  int all = 0, wrong = 0;
  void count(const Peer& peer) {
    ++all;
    wrong += !peer.is_the_mask();
  }
};

template <typename Visit>
void for_each_small_peer(Visit visit) {
  for (int cp = 2; cp <= 3; ++cp)
    for (int P = 1; P <= 3; ++P)
      for (int Pmax = P; Pmax <= 4; ++Pmax)
        for (int valid = 1; valid <= 2 * cp * P; ++valid)
          for (int left = 0; left <= 4; ++left)
            for (int right = 0; right <= 4; ++right)
              for (int chunk = 0; chunk < 2 * cp; ++chunk)
                visit(Peer{cp, P, Pmax, valid, left, right, chunk});
}

TEST(AllGather, ThePeersSingleWindowIsNotTheMaskOnceItLooksAhead) {
  Census causal, full_and_equal, unequal_or_padded;
  for_each_small_peer([&](const Peer& p) {
    const bool even = p.Pmax == p.P && p.valid == 2 * p.cp_size * p.P;
    (p.right == 0 ? causal : even ? full_and_equal : unequal_or_padded).count(p);
  });
  EXPECT_EQ(causal.wrong, 0) << "of " << causal.all;
  EXPECT_EQ(full_and_equal.wrong, 0) << "of " << full_and_equal.all;
  EXPECT_EQ(unequal_or_padded.wrong, 3136);
  EXPECT_EQ(unequal_or_padded.all, 16040);
}

TEST(AllGather, ThePeersSingleWindowFirstDiffersAtTwoTokensOfFour) {
  std::vector<Peer> wrong;
  for_each_small_peer([&](const Peer& p) {
    if (wrong.empty() && !p.is_the_mask()) wrong.push_back(p);
  });
  const Peer& p = wrong.at(0);
  EXPECT_EQ((std::array{p.cp_size, p.P, p.Pmax, p.valid, p.left, p.right, p.chunk}),
            (std::array{2, 1, 1, 2, 0, 1, 1}));
  EXPECT_TRUE(p.sees(0, 0)) << "query 1 is shown key 0";
  const PackedLayout layout({0, 2}, {0, 4});
  const auto step = all_gather_step_metadata({layout, layout, Mask::sliding_window(0, 1)}, {2, 1});
  EXPECT_EQ(step[0].cu_seqlens_kv_padded[0], 1) << "ours begins at key 1";
  EXPECT_EQ(step[0].seqused_k[0], 1);
}

TEST(StepErrors, SayWhatToFix) {
  const PackedLayout layout({0, 8}), other({0, 4, 8});
  const auto says = [](auto call, const char* begin) {
    const std::string message = refusal(call);
    EXPECT_TRUE(begins_with(message, begin)) << message;
  };
  const Mask causal = Mask::causal();
  says([&] { p2p_step_metadata({layout, layout, causal}, {2, 0}, 2); }, "step=2; expected 0 to 1");
  says([&] { p2p_step_metadata({layout, other, causal}, {2, 0}, 0); }, "layout_q holds 1 seq");
  says([&] { all_gather_step_metadata({layout, layout, causal}, {2, -1}); }, "rank=-1; expected");
  says([&] { all_gather_step_metadata({layout, layout, {-2, 0}}, {2, 0}); }, "window_size=(-2, 0)");
}

}  // namespace
}  // namespace ringside::thd
