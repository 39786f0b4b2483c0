// Lengths that differ between processes are noticed, and leave the results of an empty batch.
#include "optimized/links/lengths_word.h"

#include <gtest/gtest.h>

#include <cmath>

#include "optimized/program/test_device_array.h"
#include "optimized/tables/own_rows.h"

namespace ringside {
namespace {

using testing::Guarded;
using testing::has_device;

template <typename T>
T read(const T* on_device) {
  T value;
  RINGSIDE_CUDA(cudaMemcpy(&value, on_device, sizeof(T), cudaMemcpyDeviceToHost));
  return value;
}

TEST(LengthsWordOnTheDevice, IsThatOfTheHost) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  for (const int sequences : {1, 3, 255, 5000}) {
    std::vector<int32_t> cu;
    for (int i = 0; i <= sequences; ++i) cu.push_back(3 * i);
    std::vector<int32_t> longer = cu;
    ++longer.back();
    LengthTables host, device;
    host.max_batch = device.max_batch = sequences;
    DeviceTables tables;
    const auto of_cu = tables.add(cu), of_longer = tables.add(longer);
    const auto word = tables.add(std::vector<uint64_t>{~uint64_t{0}});
    tables.upload();
    host.q.cu_seqlens = host.k.cu_seqlens = host.q.cu_seqlens_padded = cu.data();
    host.k.cu_seqlens_padded = longer.data();
    device.q.cu_seqlens = device.k.cu_seqlens = device.q.cu_seqlens_padded = tables.at(of_cu);
    device.k.cu_seqlens_padded = tables.at(of_longer);
    uint64_t want = 0;
    for (int entry = 0; entry < LengthsWord::entries(host); ++entry)
      want += LengthsWord::of_entry(host, entry);
    write_lengths_word(device, tables.at(word), nullptr);
    EXPECT_EQ(read(tables.at(word)), want) << sequences;
  }
}

struct Compared {
  int32_t differ, status;
};
Compared compared(std::vector<uint64_t> words, int mine, uint64_t own, int32_t status) {
  DeviceTables tables;
  const auto all = tables.add(words), of_own = tables.add(std::vector<uint64_t>{own});
  const auto found = tables.add(std::vector<int32_t>{-1, status});
  tables.upload();
  compare_lengths({tables.at(all), static_cast<int>(words.size()), mine, tables.at(of_own)},
                  tables.at(found), tables.at(found) + 1, nullptr);
  return {read(tables.at(found)), read(tables.at(found) + 1)};
}

TEST(CompareLengths, SeesAnyThatDiffersAndNotItsOwnPlace) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  constexpr uint64_t kWord = (uint64_t{7} << 32) + 1, kHigh = (uint64_t{8} << 32) + 1;
  for (int mine = 0; mine < 3; ++mine) {
    std::vector<uint64_t> words(3, kWord);
    words[mine] = 0;  // nobody writes there
    EXPECT_EQ(compared(words, mine, kWord, 0).differ, 0);
    EXPECT_EQ(compared(words, mine, kWord, 0).status, 0);
    EXPECT_EQ(compared(words, mine, kWord, 1).status, 1) << "what was unfit before stays so";
    for (int other = 0; other < 3; ++other) {
      if (other == mine) continue;
      std::vector<uint64_t> changed = words;
      changed[other] = kHigh;
      EXPECT_EQ(compared(changed, mine, kWord, 0).differ, 1);
      EXPECT_EQ(compared(changed, mine, kWord, 0).status, 1);
    }
  }
  std::vector<uint64_t> many(700, kWord);
  EXPECT_EQ(compared(many, 0, kWord, 0).differ, 0);
  many.back() = kHigh;
  EXPECT_EQ(compared(many, 0, kWord, 0).differ, 1);
}

TEST(EmptyIf, LeavesResultsOfAnEmptyBatchAndNothingAround) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  for (const int32_t differs : {0, 1}) {
    DeviceTables tables;
    const auto differ = tables.add(std::vector<int32_t>{differs});
    tables.upload();
    const std::vector<double> numbers(70'001, 3);
    const Guarded narrow(numbers, ElementType::bfloat16), lse(numbers, ElementType::float32);
    const auto size = static_cast<int64_t>(numbers.size());
    empty_if(tables.at(differ),
             {{narrow.data(), 2 * size},
              {lse.data(), 4 * size, Emptied::Value::minus_infinity},
              {nullptr, 0}},
             nullptr);
    EXPECT_EQ(narrow.read(), differs ? std::vector<double>(numbers.size(), 0) : numbers);
    EXPECT_EQ(lse.read(), differs ? std::vector<double>(numbers.size(), -INFINITY) : numbers);
  }
}

}  // namespace
}  // namespace ringside
