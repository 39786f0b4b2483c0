// What one thread does for one sequence, done for all of them in turn, against the reference.
#include "optimized/tables/thd/metadata_tasks.h"

#include <gtest/gtest.h>

#include <string_view>

#include "reference/test_support/test_random_case.h"
#include "reference/thd/chunkify.h"
#include "reference/thd/reorder.h"
#include "reference/thd/step_metadata.h"

namespace ringside::thd {
namespace {

using testing::Random;

DeviceOffsets view(const Offsets& offsets) {
  return {offsets.data(), static_cast<int>(offsets.size()), false};
}

DeviceLayout view(const PackedLayout& layout) {
  return {view(layout.cu_seqlens()), view(layout.cu_seqlens_padded()), layout.num_rows()};
}

// As entries_kernel writes them.
template <typename Task>
StepMetadata written(const Task& task, int step) {
  StepMetadata out;
  out.cu_seqlens_q = out.cu_seqlens_kv = {0};
  LocalRows before;
  for (int s = 0; s < task.batch(); ++s) {
    typename Task::Walk walk(task, s, step);
    for (StepEntry entry; walk.next(entry);) {
      out.sequence.push_back(s);
      out.cu_seqlens_q.push_back(out.cu_seqlens_q.back() + entry.q_len);
      out.cu_seqlens_kv.push_back(out.cu_seqlens_kv.back() + entry.kv_len);
      out.cu_seqlens_q_padded.push_back(before.q + entry.q_row);
      out.cu_seqlens_kv_padded.push_back(before.kv + entry.kv_row);
      out.window_left.push_back(entry.window_left());
      out.window_right.push_back(entry.window_right());
    }
    const LocalRows rows = task.rows(s);
    before.q += rows.q, before.kv += rows.kv;
  }
  out.cu_seqlens_q_padded.push_back(before.q);
  out.cu_seqlens_kv_padded.push_back(before.kv);
  return out;
}

void expect_same(const StepMetadata& got, const StepMetadata& want, int n) {
  ASSERT_EQ(got.sequence, want.sequence) << "case " << n;
  ASSERT_EQ(got.cu_seqlens_q, want.cu_seqlens_q) << "case " << n;
  ASSERT_EQ(got.cu_seqlens_kv, want.cu_seqlens_kv) << "case " << n;
  ASSERT_EQ(got.cu_seqlens_q_padded, want.cu_seqlens_q_padded) << "case " << n;
  ASSERT_EQ(got.cu_seqlens_kv_padded, want.cu_seqlens_kv_padded) << "case " << n;
  ASSERT_EQ(got.window_left, want.window_left) << "case " << n;
  ASSERT_EQ(got.window_right, want.window_right) << "case " << n;
}

struct StepInputs {
  PackedLayout q, k;
  bool equal;
  Mask mask;
  int cp_size, rank;

  explicit StepInputs(Random& random)
      : q(testing::random_layout(random, random.integer(0, 3))),
        k(random.coin() ? q : testing::random_layout(random, q.batch())),
        equal(q == k),
        mask(testing::random_mask(random)),
        cp_size(random.integer(1, 5)),
        rank(random.integer(0, cp_size - 1)) {}

  template <bool kOneEntry>
  StepTask<kOneEntry> gathered() const {
    return {view(q), view(k), mask, cp_size, rank, kAllRanks, {Half::first, Half::second}};
  }
  template <bool kOneEntry>
  StepTask<kOneEntry> ring(int kv_rank, bool upper) const {
    return {view(q), view(k), mask, cp_size, rank, kv_rank, {upper ? Half::second : Half::both}};
  }
};

TEST(StepTask, IsTheReferencesAllGather) {
  Random random(1);
  for (int n = 0; n < testing::cases(100'000); ++n) {
    const StepInputs c(random);
    const auto want = all_gather_step_metadata({c.q, c.k, c.mask}, {c.cp_size, c.rank});
    for (int step = 0; step < 2; ++step) {
      expect_same(written(c.gathered<false>(), step), want[step], n);
      if (has_one_entry(c.mask, Keys::gathered, c.equal))
        expect_same(written(c.gathered<true>(), step), want[step], n);
    }
  }
}

TEST(StepTask, IsTheReferencesRing) {
  Random random(2);
  for (int n = 0; n < testing::cases(100'000); ++n) {
    const StepInputs c(random);
    const int step = random.integer(0, c.cp_size - 1);
    const auto want = p2p_step_metadata({c.q, c.k, c.mask}, {c.cp_size, c.rank}, step);
    const bool upper = want.section == std::string_view("upper");
    expect_same(written(c.ring<false>(want.kv_rank, upper), 0), want, n);
    if (has_one_entry(c.mask, Keys::of_a_rank, c.equal))
      expect_same(written(c.ring<true>(want.kv_rank, upper), 0), want, n);
  }
}

TEST(PairTask, IsTheReferencesPairs) {
  Random random(3);
  for (int n = 0; n < testing::cases(100'000); ++n) {
    const StepInputs c(random);
    const int chunk_size = random.integer(1, 30), kv_rank = random.integer(0, c.cp_size - 1);
    if (kv_rank == c.rank) continue;
    const CpRank cp{c.cp_size, c.rank};
    const PiecePairs want = kv_rank < c.rank
                                ? chunkify_p2p_below_diagonal(c.q, chunk_size, cp, kv_rank)
                                : chunkify_p2p_above_diagonal(c.q, chunk_size, cp, kv_rank);
    const auto got = written(PairTask{view(c.q), chunk_size, c.cp_size, c.rank, kv_rank}, 0);
    ASSERT_EQ(got.cu_seqlens_q, want.q.cu_seqlens) << "case " << n;
    ASSERT_EQ(got.cu_seqlens_kv, want.kv.cu_seqlens) << "case " << n;
    ASSERT_EQ(got.cu_seqlens_q_padded, want.q.cu_seqlens_padded) << "case " << n;
    ASSERT_EQ(got.cu_seqlens_kv_padded, want.kv.cu_seqlens_padded) << "case " << n;
  }
}

TEST(PieceTask, IsTheReferencesPieces) {
  Random random(4);
  for (int n = 0; n < testing::cases(100'000); ++n) {
    const StepInputs c(random);
    const int chunk_size = random.integer(1, 30);
    const bool all = random.coin();
    const PieceTask task{view(c.q), chunk_size, c.cp_size, all ? kAllRanks : c.rank};
    const Pieces want =
        all ? chunkify(c.q, chunk_size) : chunkify_p2p(c.q, chunk_size, {c.cp_size, c.rank});
    size_t i = 0;
    int row = 0, token = 0;
    for (int s = 0; s < task.batch(); ++s) {
      const ChunkPieces cut = task.pieces(s);
      for (int piece = 0; piece < cut.count(); ++piece, ++i) {
        ASSERT_EQ(want.cu_seqlens[i], token + cut.piece(piece).begin) << "case " << n;
        ASSERT_EQ(want.cu_seqlens_padded[i], row + cut.piece(piece).begin) << "case " << n;
      }
      row += cut.rows.num_rows(), token += cut.valid;
    }
    ASSERT_EQ(i + 1, want.cu_seqlens.size());
    ASSERT_EQ(want.cu_seqlens.back(), token);
    ASSERT_EQ(want.cu_seqlens_padded.back(), row);
  }
}

TEST(IndexTask, IsTheReferencesIndices) {
  Random random(5);
  for (int n = 0; n < testing::cases(100'000); ++n) {
    const StepInputs c(random);
    const IndexTask task{view(c.q.cu_seqlens_padded()), c.q.num_rows(), c.cp_size, c.rank};
    std::vector<int32_t> got;
    for (int s = 0; s < task.batch(); ++s)
      for (int row = 0; row < task.runs(s).num_rows(); ++row)
        got.push_back(task.starts[s] + task.runs(s).position_at(row));
    ASSERT_EQ(got, partition_indices(c.q.cu_seqlens_padded(), {c.cp_size, c.rank})) << n;
  }
}

// Offsets that fall and leap, of either width, in one case of three far beyond all rows.
struct Meaningless {
  Offsets narrow;
  std::vector<int64_t> wide;
  bool is_wide;

  Meaningless(Random& random, int size) : is_wide(random.coin()) {
    for (int i = 0; i < size; ++i) {
      const int row = random.integer(0, 9) ? random.integer(-9, 60) : random.integer(-2e9, 2e9);
      narrow.push_back(row);
      wide.push_back(random.integer(0, 2) ? row : int64_t{row} << 31);
    }
  }
  DeviceOffsets view() const {
    const void* data = is_wide ? static_cast<const void*>(wide.data()) : narrow.data();
    return {data, static_cast<int>(narrow.size()), is_wide};
  }
};

// Whatever the offsets hold, each sequence has finitely many entries, inside the bound.
TEST(Tasks, OfMeaninglessOffsetsEnd) {
  Random random(6);
  for (int n = 0; n < testing::cases(100'000); ++n) {
    const StepInputs c(random);
    const int batch = random.integer(1, 4), rows = 40;
    const Meaningless valid(random, batch + 1), padded(random, batch + 1);
    const DeviceLayout layout{valid.view(), padded.view(), rows};
    const StepTask<false> walked{layout, layout, c.mask, c.cp_size, c.rank, c.cp_size - 1};
    const StepTask<true> closed{layout, layout, c.mask, c.cp_size, c.rank, kAllRanks};
    const auto most = most_entries(c.mask, Keys::of_a_rank, true, batch, int64_t{rows} * batch);
    ASSERT_LE(written(walked, 0).sequence.size(), static_cast<size_t>(most));
    ASSERT_EQ(written(closed, 0).sequence.size(), static_cast<size_t>(batch));
    const PieceTask pieces{layout, random.integer(1, 30), c.cp_size, c.rank};
    const IndexTask indices{padded.view(), rows, c.cp_size, c.rank};
    for (int s = 0; s < batch; ++s) {
      ASSERT_LE(pieces.pieces(s).count(), most_pieces(1, rows, pieces.chunk_size));
      ASSERT_LE(indices.runs(s).num_rows(), rows);
      ASSERT_GE(indices.runs(s).num_rows(), 0);
    }
  }
}

}  // namespace
}  // namespace ringside::thd
