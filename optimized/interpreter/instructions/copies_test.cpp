// Boxes that go back to memory.
#include "optimized/interpreter/machine/tensor_map.h"
#include "optimized/interpreter/machine/test_launch.h"

namespace ringside::ptx {
namespace {

using testing::Array;
using testing::launch;

// Of 8 by 4 floats that are 1, from a place on, into an array of 8 by 4 that are 5.
std::vector<float> stored(const std::string& how, const std::string& between, int x, int y) {
  const Array<float> data(32, 5);
  TensorMap map{kMapMark, reinterpret_cast<std::byte*>(data.data()), {8, 4}, {4, 32}, {8, 4}, 2, 4,
                0};
  const Array<TensorMap> maps(std::vector<TensorMap>{map});
  launch(
      "mov.u32 %r2, box; shl.b32 %r1, %thread, 2; add.u32 %r1, %r1, %r2;\n"
      "st.shared.b32 [%r1], 0f3F800000;\nbar.sync 0;\nsetp.eq.u32 %p0, %thread, 0;\n@%p0 cp." +
          how + ".global.shared::cta" + (how[0] == 'r' ? ".add.tile" : "") +
          ".bulk_group [%rd0, {" + std::to_string(x) + ", " + std::to_string(y) +
          "}], [%r2];\n@%p0 cp.async.bulk.commit_group;\n" + between +
          "@%p0 cp.async.bulk.wait_group 0;",
      {maps.address()}, {32}, ".shared .align 128 .b8 box[128];\n");
  return data.values();
}

TEST(PtxCopies, BoxesStoreNothingOutside) {
  const auto put = stored("async.bulk.tensor.2d", "", 3, -1);
  const auto sum = stored("reduce.async.bulk.tensor.2d", "", -2, 2);
  for (size_t k = 0; k < 32; ++k) {
    EXPECT_EQ(put[k], k % 8 >= 3 && k / 8 < 3 ? 1 : 5) << k;
    EXPECT_EQ(sum[k], k % 8 < 6 && k / 8 >= 2 ? 6 : 5) << k;
  }
}

TEST(PtxCopies, BoxesThatWereReadAreStoredAsTheyWere) {
  const std::string changed = "@%p0 cp.async.bulk.wait_group.read 0;\nst.shared.b32 [%r1], 0;\n";
  for (int k = 0; k < 8; ++k) {
    EXPECT_EQ(stored("async.bulk.tensor.2d", changed, 0, 0), std::vector<float>(32, 1));
    EXPECT_EQ(stored("reduce.async.bulk.tensor.2d", changed, 0, 0), std::vector<float>(32, 6));
  }
}

TEST(PtxCopiesDeathTest, MemoryThatChangesUnderAStore) {
  EXPECT_DEATH(stored("async.bulk.tensor.2d", "st.shared.b32 [%r1], 0;\n", 0, 0),
               "shared memory changed under a store of a box not waited for");
}

}  // namespace
}  // namespace ringside::ptx
