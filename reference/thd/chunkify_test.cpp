#include "reference/thd/chunkify.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "reference/partition/partition.h"
#include "reference/test_support/test_random_case.h"
#include "reference/thd/test_errors.h"

namespace ringside::thd {
namespace {

using Offsets32 = std::vector<int32_t>;
using Token = std::array<int, 2>;
using Pairs = std::map<std::array<int, 3>, int>;  // (sequence, query, key) -> how often

std::vector<Token> tokens_of(const Shard& shard) {
  std::vector<Token> tokens;
  for (const Segment& s : shard)
    for (int i = 0; i < s.len; ++i) tokens.push_back({s.seq, s.position(i)});
  return tokens;
}

int tokens_in(const Pieces& pieces, size_t b) {
  return pieces.cu_seqlens[b + 1] - pieces.cu_seqlens[b];
}

void add_causal(const Pieces& pieces, const std::vector<Token>& tokens, Pairs& pairs) {
  ASSERT_EQ(pieces.cu_seqlens_padded.back(), static_cast<int>(tokens.size()));
  for (size_t b = 0; b + 1 < pieces.cu_seqlens.size(); ++b)
    for (int i = 0; i < tokens_in(pieces, b); ++i)
      for (int j = 0; j <= i; ++j) {
        const Token q = tokens[pieces.cu_seqlens_padded[b] + i];
        const Token k = tokens[pieces.cu_seqlens_padded[b] + j];
        ASSERT_EQ(q[0], k[0]);
        ++pairs[{q[0], q[1], k[1]}];
      }
}

void add_full(const PiecePairs& pieces, const std::vector<Token>& q_tokens,
              const std::vector<Token>& k_tokens, Pairs& pairs) {
  for (size_t b = 0; b + 1 < pieces.q.cu_seqlens.size(); ++b) {
    ASSERT_EQ(tokens_in(pieces.q, b) == 0, tokens_in(pieces.kv, b) == 0) << "a one-sided pair";
    for (int i = 0; i < tokens_in(pieces.q, b); ++i)
      for (int j = 0; j < tokens_in(pieces.kv, b); ++j) {
        const Token q = q_tokens[pieces.q.cu_seqlens_padded[b] + i];
        const Token k = k_tokens[pieces.kv.cu_seqlens_padded[b] + j];
        ASSERT_EQ(q[0], k[0]);
        ++pairs[{q[0], q[1], k[1]}];
      }
  }
}

Pairs wanted(const PackedLayout& layout, int chunk_size) {
  Pairs pairs;
  for (int s = 0; s < layout.batch(); ++s)
    for (int q = 0; q < layout.len(s); ++q)
      for (int k = 0; k <= q; ++k)
        if (Mask::chunked(chunk_size).allows(q, k, layout.len(s), layout.len(s)))
          pairs[{s, q, k}] = 1;
  return pairs;
}

TEST(Chunkify, PiecesAreTheChunkedMaskOnOneRankAndOnMany) {
  testing::Random random(4);
  for (int i = 0; i < testing::cases(1000); ++i) {
    const PackedLayout layout = testing::random_layout(random, random.integer(0, 3));
    const int cp_size = random.integer(1, 5), chunk_size = random.integer(1, 12);
    Pairs whole, ring;
    add_causal(chunkify(layout, chunk_size),
               tokens_of(find_partition("contiguous").shard(layout, 1, 0)), whole);
    for (int rank = 0; rank < cp_size; ++rank) {
      const CpRank cp{cp_size, rank};
      const auto tokens = tokens_of(find_partition("zigzag").shard(layout, cp_size, rank));
      add_causal(chunkify_p2p(layout, chunk_size, cp), tokens, ring);
      for (int kv = 0; kv < cp_size; ++kv) {
        if (kv == rank) continue;
        const auto pieces = kv < rank ? chunkify_p2p_below_diagonal(layout, chunk_size, cp, kv)
                                      : chunkify_p2p_above_diagonal(layout, chunk_size, cp, kv);
        add_full(pieces, tokens, tokens_of(find_partition("zigzag").shard(layout, cp_size, kv)),
                 ring);
      }
    }
    ASSERT_EQ(whole, wanted(layout, chunk_size)) << "case " << i;
    ASSERT_EQ(ring, wanted(layout, chunk_size)) << "case " << i << ", cp_size " << cp_size;
  }
}

TEST(Chunkify, CutsTwoSequencesIntoChunksOfEight) {
  const Pieces pieces = chunkify(PackedLayout({0, 10, 30}, {0, 10, 33}), 8);
  EXPECT_EQ(pieces.cu_seqlens, (Offsets32{0, 8, 10, 18, 26, 30}));
  EXPECT_EQ(pieces.cu_seqlens_padded, (Offsets32{0, 8, 10, 18, 26, 33}));
}

// The rest: cp_size 2 and one sequence of 24 tokens. Rank 0 holds 0..5 18..23, rank 1 6..17.
const PackedLayout k24({0, 24});

TEST(ChunkifyP2p, JoinsAChunkThatSpansBothHalves) {
  EXPECT_EQ(chunkify_p2p(k24, 8, {2, 1}).cu_seqlens, (Offsets32{0, 2, 10, 12}));
  EXPECT_EQ(chunkify_p2p(k24, 8, {2, 0}).cu_seqlens, (Offsets32{0, 6, 12}));
}

TEST(ChunkifyP2p, KeepsTheChunksInTheInteriorOfAHalfApart) {
  EXPECT_EQ(chunkify_p2p(k24, 2, {2, 0}).cu_seqlens, (Offsets32{0, 2, 4, 6, 8, 10, 12}));
}

TEST(ChunkifyP2p, BelowTheDiagonalPairsTheEndOfTheFirstHalfWithTheFirstQueries) {
  const PiecePairs pairs = chunkify_p2p_below_diagonal(k24, 8, {2, 1}, 0);
  EXPECT_EQ(pairs.q.cu_seqlens, (Offsets32{0, 2}));
  EXPECT_EQ(pairs.q.cu_seqlens_padded, (Offsets32{0, 12}));
  EXPECT_EQ(pairs.kv.cu_seqlens, (Offsets32{0, 6}));
  EXPECT_EQ(pairs.kv.cu_seqlens_padded, (Offsets32{0, 12}));
}

TEST(ChunkifyP2p, AboveTheDiagonalPairsTheLastKeysWithTheSecondHalf) {
  const PiecePairs pairs = chunkify_p2p_above_diagonal(k24, 8, {2, 0}, 1);
  EXPECT_EQ(pairs.q.cu_seqlens, (Offsets32{0, 6}));
  EXPECT_EQ(pairs.q.cu_seqlens_padded, (Offsets32{6, 12}));
  EXPECT_EQ(pairs.kv.cu_seqlens, (Offsets32{0, 2}));
  EXPECT_EQ(pairs.kv.cu_seqlens_padded, (Offsets32{10, 12}));
}

TEST(ChunkifyP2p, TakesTheLargestChunkSize) {
  EXPECT_EQ(chunkify_p2p(k24, 2147483647, {2, 1}).cu_seqlens, (Offsets32{0, 12}));
}

TEST(ChunkifyErrors, SayWhatToFix) {
  const auto says = [](auto call, const char* begin) {
    const std::string message = refusal(call);
    EXPECT_TRUE(begins_with(message, begin)) << message;
  };
  says([] { chunkify(k24, 0); }, "chunk_size=0; expected at least 1 token.");
  says([] { chunkify_p2p(k24, 8, {2, 2}); }, "rank=2; expected 0 to 1.");
  says([] { chunkify_p2p_below_diagonal(k24, 8, {2, 0}, 1); }, "kv_rank=1 with rank=0; below the");
  says([] { chunkify_p2p_above_diagonal(k24, 8, {2, 0}, 2); }, "kv_rank=2 with rank=0 and cp_size");
}

}  // namespace
}  // namespace ringside::thd
