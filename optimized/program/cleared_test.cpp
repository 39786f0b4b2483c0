// What becomes 0 ahead of a backward pass, and nothing else: zeros of any size, and rows that
// nobody sees, beside as many rows of the softmax as there are, or none.
#include <gtest/gtest.h>

#include <vector>

#include "optimized/device/memory.h"
#include "optimized/exchange/move.h"
#include "optimized/program/test_device_array.h"

namespace ringside {
namespace {

using testing::Guarded;
using testing::OnDevice;

constexpr int kHeads = 3, kDim = 8;

// Of rows of the softmax 0, ..., which lie one after the other.
void clear(int rows, const move::Cleared& cleared) {
  std::vector<int32_t> numbers;
  for (int row = 0; row < rows; ++row) numbers.push_back(row);
  DeviceTables tables;
  const auto of_home = tables.add(numbers);
  tables.upload();
  const move::Span<int32_t> all{tables.at(of_home), rows};
  const OnDevice dout(rows, kHeads, kDim, ElementType::bfloat16);
  const OnDevice lse(rows, kHeads, 1, ElementType::float32);
  const Guarded delta(static_cast<size_t>(rows) * kHeads, ElementType::float32);
  const Guarded to(static_cast<size_t>(rows) * kHeads, ElementType::float32);
  const auto by_row = [](const Guarded& x) {
    return DeviceScalars::by_row(static_cast<float*>(x.data()), kHeads);
  };
  move::shard_softmax({all, all}, dout.array(), dout.array(), lse.array(),
                      {by_row(delta), by_row(to)}, cleared, nullptr);
  RINGSIDE_CUDA(cudaDeviceSynchronize());
}

void expect_zeros(const std::vector<double>& x) {
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], 0) << i;
}

TEST(Cleared, AreZerosOfAnySize) {
  if (!testing::has_device()) GTEST_SKIP() << "no CUDA device";
  for (const int rows : {0, 1, 100})
    for (const size_t words : {0, 1, 3, 4, 5, 8191, 8192, 8193, 30001}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows, " << words << " words");
      const Guarded first(words, ElementType::float32), second(5, ElementType::float32);
      const Guarded third(words / 2, ElementType::float32);
      move::Cleared cleared;
      const auto zeros = [](const Guarded& x, size_t size) {
        return move::Cleared::Zeros{x.data(), static_cast<int64_t>(size * sizeof(float))};
      };
      cleared.zeros[0] = zeros(first, words), cleared.zeros[1] = zeros(second, 5);
      cleared.zeros[2] = zeros(third, words / 2);
      clear(rows, cleared);
      expect_zeros(first.read()), expect_zeros(second.read()), expect_zeros(third.read());
    }
}

// Each type of array; NaN stays where somebody may write.
TEST(Cleared, AreRowsThatNobodySees) {
  if (!testing::has_device()) GTEST_SKIP() << "no CUDA device";
  const std::vector<int32_t> of_q{0, 40, 40, 47}, padded_q{0, 45, 50, 70};
  const std::vector<int32_t> of_k{0, 30, 31, 33}, padded_k{0, 33, 64, 66};
  constexpr int kRowsQ = 75, kRowsK = 67;
  DeviceTables tables;
  const auto q = tables.add(of_q), q_padded = tables.add(padded_q);
  const auto k = tables.add(of_k), k_padded = tables.add(padded_k);
  tables.upload();
  const auto offsets = [&](TableOf<int32_t> x) {
    return DeviceOffsets{tables.at(x), x.size, false};
  };
  const UnseenRows on_device{{offsets(q), offsets(q_padded), kRowsQ},
                             {offsets(k), offsets(k_padded), kRowsK},
                             Mask::causal()};
  const auto on_host = [](const std::vector<int32_t>& x) {
    return DeviceOffsets{x.data(), static_cast<int>(x.size()), false};
  };
  const UnseenRows expected{{on_host(of_q), on_host(padded_q), kRowsQ},
                            {on_host(of_k), on_host(padded_k), kRowsK},
                            Mask::causal()};
  for (const ElementType type : {ElementType::float32, ElementType::float16, ElementType::bfloat16})
    for (const int rows : {0, kRowsQ}) {
      SCOPED_TRACE(::testing::Message() << "type " << static_cast<int>(type) << ", " << rows);
      const OnDevice dq(kRowsQ, kHeads, kDim, type), dk(kRowsK, 1, kDim, type);
      const OnDevice dv(kRowsK, 1, 2 * kDim, type);
      const Guarded words(3, ElementType::float32);
      move::Cleared cleared;
      cleared.zeros[2] = {words.data(), 3 * sizeof(float)};
      cleared.unseen = on_device, cleared.rows_q = kRowsQ, cleared.rows_k = kRowsK;
      cleared.of_queries = dq.array();
      cleared.of_keys[0] = dk.array(), cleared.of_keys[1] = dv.array();
      clear(rows, cleared);
      expect_zeros(words.read());
      const auto check = [](const Tensor& x, auto is_unseen) {
        for (int row = 0; row < x.rows; ++row)
          for (int i = 0; i < x.heads * x.dim; ++i)
            ASSERT_EQ(x.at(row, 0)[i] == 0, is_unseen(row)) << "row " << row;
      };
      check(dq.read(), [&](int row) { return expected.query(row); });
      check(dk.read(), [&](int row) { return expected.key(row); });
      check(dv.read(), [&](int row) { return expected.key(row); });
    }
}

TEST(Cleared, AreNoneWhereNoneAreNamed) {
  if (!testing::has_device()) GTEST_SKIP() << "no CUDA device";
  for (const int rows : {0, 3}) clear(rows, {});
}

}  // namespace
}  // namespace ringside
