// Programs that run again: with other lengths, and with as many multiprocessors as there are.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "optimized/program/conformance/test_device_run.h"
#include "optimized/program/conformance/test_setting.h"

namespace ringside {
namespace {

using testing::DeviceCase;
using testing::DeviceRun;
using testing::Random;

// Of these lengths, some padding between them and so many rows.
PackedLayout pack_of(Random& random, const std::vector<int>& lengths, int rows) {
  std::vector<int32_t> valid{0}, padded{0};
  for (const int length : lengths) {
    valid.push_back(valid.back() + length);
    padded.push_back(padded.back() + length + random.integer(0, 3));
  }
  padded.back() = rows;
  return {valid, padded};
}

Capacity room_of(const Mask& mask, int heads, int rows, int longest) {
  Capacity room;
  room.cp_size = 1, room.comm.name = "p2p", room.mask = mask;
  room.num_heads = room.num_kv_heads = heads;
  room.max_sequences = 40, room.max_seqlen = longest;
  room.max_rows_q = room.max_rows_k = rows;
  return room;
}

void set_lengths(const CudaProgram& program, const PackedLayout& layout) {
  DeviceTables tables;
  const auto valid = tables.add(layout.cu_seqlens()),
             padded = tables.add(layout.cu_seqlens_padded());
  tables.upload();
  const DeviceLayout lengths{{tables.at(valid), valid.size, false},
                             {tables.at(padded), padded.size, false},
                             layout.num_rows()};
  program.set_lengths(lengths, lengths, nullptr);
  RINGSIDE_CUDA(cudaDeviceSynchronize());
}

// Items that take turns, first keys that store, documents of one item: what one pack needs in the
// workspace and in the tables, the next one finds there.
TEST(LengthsOnTheDevice, SetAnewAgreeWithTheCpu) {
  if (const std::string reason = testing::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr int kRows = 1500, kLongest = 1400, kHeads = 2;
  Random random(41);
  const std::vector<std::vector<int>> packs{{130, 129, 128, 64, 1, 0, 127, 128, 130, 65},
                                            {1400},
                                            {0},
                                            {400, 390, 270, 300, 0, 100},
                                            {1, 2, 3, 50},
                                            {128, 256, 384, 400}};
  for (const Mask& mask : {Mask::causal(), Mask::full()}) {
    std::shared_ptr<const CudaProgram> program;
    for (size_t i = 0; i < 2 * packs.size(); ++i) {
      const PackedLayout layout = pack_of(random, packs[i % packs.size()], kRows);
      const Problem problem{layout, layout, mask, kHeads, kHeads};
      DeviceCase device_case(random, testing::kBFloat16, problem, 128);
      device_case.capacity = room_of(mask, kHeads, kRows, kLongest);
      device_case.deterministic = i >= packs.size();
      const DeviceRun run = program == nullptr
                                ? DeviceRun(device_case, testing::kBFloat16)
                                : DeviceRun(device_case, testing::kBFloat16, program);
      program = run.program();
      SCOPED_TRACE(concat("pack ", i, " by ", run.family()));
      run.expect_forward(), run.expect_backward();
      EXPECT_TRUE(program->lengths_fitted(nullptr));

      set_lengths(*program, pack_of(random, {kLongest + 1}, kRows));
      run.forward();
      EXPECT_FALSE(program->lengths_fitted(nullptr));
      EXPECT_TRUE(std::ranges::all_of(run.output(), [](double x) { return x == 0; }));
    }
  }
}

TEST(CudaProgram, GivesTheSameBitsWhateverTheOrderOfTheQueue) {
  if (const std::string reason = testing::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  Random random(42);
  for (int i = 0; i < 8; ++i) {
    const testing::TypeInfo& type = i % 2 == 0 ? testing::kBFloat16 : testing::kFloat16;
    const DeviceCase device_case(random, type, testing::Numbers::all_finite);
    const DeviceRun run(device_case, type);
    run.forward();
    const std::vector<double> want = run.output();
    for (const int processors : {1, 3, 7}) {
      const testing::Setting number("PROCESSORS", processors), order("FROM_LAST", 1);
      run.forward();
      SCOPED_TRACE(concat("case ", i, " by ", run.family(), " on ", processors));
      testing::expect_same_bits("out", run.output(), want);
    }
  }
}

}  // namespace
}  // namespace ringside
