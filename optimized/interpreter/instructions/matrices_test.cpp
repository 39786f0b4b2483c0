// A product and a box by the layouts that the ISA writes down.
#include "optimized/interpreter/machine/tensor_map.h"
#include "optimized/interpreter/machine/test_launch.h"

namespace ringside::ptx {
namespace {

using testing::Array;
using testing::launch;

uint16_t bfloat16_of(int x) {  // exact to 256
  return static_cast<uint16_t>(testing::bits(static_cast<float>(x)) >> 16);
}
int left(int row, int k) { return (row * 7 + k * 3) % 19 - 9; }
int right(int k, int column) { return (k * 5 + column * 11) % 17 - 8; }

TEST(PtxMatrices, ProductOf16By8By16) {
  std::vector<uint16_t> operands;
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, in_group = lane % 4;
    for (int i = 0; i < 8; ++i)
      operands.push_back(bfloat16_of(left(group + (i < 2 || (4 <= i && i < 6) ? 0 : 8),
                                          in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0))));
    for (int i = 0; i < 4; ++i)
      operands.push_back(bfloat16_of(right(in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0), group)));
  }
  const Array<uint16_t> in(operands);
  const Array<float> out(128, -1);
  std::string text = "mul.wide.u32 %rd10, %thread, 24; add.s64 %rd10, %rd10, %rd0;\n";
  for (int k = 0; k < 6; ++k)
    text += "ld.global.b32 %r" + std::to_string(k) + ", [%rd10+" + std::to_string(4 * k) + "];\n";
  text +=
      "mov.b32 %r9, 0f3F800000;\nmma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%r10,%r11,%r12,%r13}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%r9,%r9,%r9,%r9};\n"
      "mul.wide.u32 %rd11, %thread, 16; add.s64 %rd11, %rd11, %rd1;\n"
      "st.global.v4.b32 [%rd11], {%r10,%r11,%r12,%r13};";
  launch(text, {in.address(), out.address()});
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
      int want = 1;
      for (int k = 0; k < 16; ++k) want += left(row, k) * right(k, column);
      EXPECT_EQ(out[static_cast<size_t>(lane * 4 + i)], static_cast<float>(want)) << lane << i;
    }
}

// 4 lines of 32 numbers, from one line and 8 columns before an array of 6 lines of 40.
void check_box(uint8_t swizzle_bits) {
  std::vector<uint16_t> numbers;
  for (uint16_t k = 0; k < 240; ++k) numbers.push_back(static_cast<uint16_t>(k + 1000));
  const Array<uint16_t> data(numbers), out(128, 7);
  TensorMap map{
      kMapMark,    reinterpret_cast<std::byte*>(data.data()), {40, 6}, {2, 80}, {32, 4}, 2, 2,
      swizzle_bits};
  const Array<TensorMap> maps(std::vector<TensorMap>{map});
  launch(
      "mov.u32 %r1, bar; mov.u32 %r2, box; mov.u32 %r3, -8; mov.u32 %r4, -1;\n"
      "setp.eq.u32 %p0, %thread, 0;\n@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;\nbar.sync 0;\n"
      "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;\n"
      "@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], "
      "[%rd0, {%r3, %r4}], [%r1];\n"
      "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n@!%p1 bra WAIT;\n"
      "shl.b32 %r5, %thread, 3; add.u32 %r6, %r2, %r5; ld.shared.b64 %rd10, [%r6];\n"
      "cvt.u64.u32 %rd11, %r5; add.s64 %rd11, %rd11, %rd1; st.global.b64 [%rd11], %rd10;",
      {maps.address(), out.address()}, {32},
      ".shared .align 1024 .b8 box[256];\n.shared .align 8 .b8 bar[8];\n");
  for (int line = 0; line < 4; ++line)
    for (int x = 0; x < 32; ++x) {
      const auto plain = static_cast<uint32_t>(line * 64 + x * 2);
      const uint32_t place = plain ^ (plain / 128 % 8 & swizzle_bits) * 16;
      const bool inside = line >= 1 && x >= 8;
      const int want = inside ? 1000 + (line - 1) * 40 + x - 8 : 0;
      EXPECT_EQ(out[place / 2], want) << line << ", " << x;
    }
}

TEST(PtxMatrices, BoxesAreSwizzledAndZeroOutside) {
  for (const int bits : {0, 1, 3}) check_box(static_cast<uint8_t>(bits));
}

// A product of four warps, 64 x 8, of numbers in 32-byte lines, and what happens before it is over.
void multiply_and(const std::string& meanwhile) {
  launch(
      "mov.u32 %r1, tile; shl.b32 %r2, %thread, 4; add.u32 %r2, %r2, %r1;\n"
      "st.shared.b64 [%r2], 0; st.shared.b64 [%r2+8], 0; bar.sync 0;\n"
      "setp.eq.u32 %p0, %thread, 127; cvt.u64.u32 %rd10, %r1; shr.u64 %rd10, %rd10, 4;\n"
      "or.b64 %rd10, %rd10, 0xC000001000000000;\nwgmma.fence.sync.aligned;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r10,%r11,%r12,%r13}, %rd10, %rd10, "
      "%p0, 1, 1, 0, 0;\nwgmma.commit_group.sync.aligned;\n" +
          meanwhile + "wgmma.wait_group.sync.aligned 0;",
      {}, {128}, ".shared .align 1024 .b8 tile[2048];\n");
}

TEST(PtxMatricesDeathTest, MemoryThatChangesUnderAProduct) {
  multiply_and("");  // all warps read the first 256 bytes, the last one, which writes, its own 512
  for (const int at : {0, 6, 8, 14, 1550, 2046})
    EXPECT_DEATH(multiply_and("@%p0 st.shared.b16 [%r1+" + std::to_string(at) + "], 1;\n"),
                 "shared memory changed under a product not waited for")
        << at;
}

}  // namespace
}  // namespace ringside::ptx
