// Divergence, calls and what blocks do side by side, under several orders of turns.
#include "optimized/interpreter/machine/test_launch.h"

namespace ringside::ptx {
namespace {

using testing::Array;
using testing::launch;
using testing::results_of;

TEST(PtxSteps, LoopsOfDifferentLengths) {
  const auto results = results_of(
      "mov.u32 %r0, 0; mov.u32 %r1, 0;\nOUTER: setp.ge.u32 %p0, %r1, %thread;\n@%p0 bra DONE;\n"
      "mov.u32 %r2, 0;\nINNER: add.u32 %r0, %r0, 1; add.u32 %r2, %r2, 1;\n"
      "setp.le.u32 %p1, %r2, %r1;\n@%p1 bra INNER;\nadd.u32 %r1, %r1, 1;\nbra.uni OUTER;\nDONE:",
      {64});
  for (uint32_t k = 0; k < 64; ++k) EXPECT_EQ(results[k], k * (k + 1) / 2) << k;
}

TEST(PtxSteps, LanesThatLeaveAreNotWaitedFor) {
  const auto results = results_of("mov.u32 %r0, 5;" + testing::store_mine("%r0") +
                                  "setp.gt.u32 %p0, %thread, 9;\n@%p0 exit;\nmov.u32 %r1, 1;\n"
                                  "redux.sync.add.u32 %r0, %r1, 0x3ff;\nbar.sync 0;");
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(results[lane], lane < 10 ? 10 : 5) << lane;
}

const std::string kTriple =
    ".func triple(.param .b64 to, .param .b32 by)\n{\n.reg .b64 %rd<3>;\n.reg .b32 %r<4>;\n"
    ".reg .pred %p<2>;\nld.param.u64 %rd1, [to];\nld.param.u32 %r1, [by];\n"
    "setp.eq.u32 %p1, %r1, 7;\n@%p1 bra $OUT;\nmul.lo.u32 %r2, %r1, 3;\nst.global.u32 [%rd1], "
    "%r2;\n"
    "ret;\n$OUT:\nmov.u32 %r3, 70;\nst.global.u32 [%rd1], %r3;\nret;\n}\n";

std::string call_of(const std::string& by) {
  return "{\n.param .b64 param0;\nst.param.b64 [param0], %rd10;\n.param .b32 param1;\nst.param.b32 "
         "[param1], " +
         by + ";\ncall.uni triple, (param0, param1);\n}\n";
}

TEST(PtxSteps, CallsUnderDivergence) {
  const Array<uint32_t> out(32, 9);
  launch(
      "mul.wide.u32 %rd10, %thread, 4; add.s64 %rd10, %rd10, %rd0;\n"
      "setp.lt.u32 %p0, %thread, 20;\n@%p0 bra OTHER;\nadd.u32 %r1, %thread, 1000;\n" +
          call_of("%r1") + "bra END;\nOTHER:\n" + call_of("%thread") + "END:\n" +
          "ld.global.u32 %r5, [%rd10];\nadd.u32 %r5, %r5, 1;\nst.global.u32 [%rd10], %r5;",
      {out.address()}, {}, kTriple);
  for (uint32_t k = 0; k < 32; ++k)
    EXPECT_EQ(out[k], k == 7 ? 71 : (k < 20 ? 3 * k : 3 * k + 3000) + 1) << k;
}

TEST(PtxSteps, AtomicsOfManyBlocks) {
  const Array<uint32_t> sums(64, 0);
  launch(
      "atom.global.add.u32 %r1, [%rd0], %me;\nmul.wide.u32 %rd10, %thread, 4;\n"
      "add.s64 %rd10, %rd10, %rd0;\nred.global.add.u32 [%rd10+128], 1;\n"
      "atom.global.max.s32 %r2, [%rd0+4], %block;\nmov.u32 %r3, 1;\n"
      "shl.b32 %r3, %r3, %thread;\natom.global.or.b32 %r4, [%rd0+8], %r3;",
      {sums.address()}, {32, 100});
  EXPECT_EQ(sums[0], 3200u * 3199 / 2);
  EXPECT_EQ(sums[1], 99u);
  EXPECT_EQ(sums[2], 0xffffffffu);
  for (size_t k = 32; k < 64; ++k) EXPECT_EQ(sums[k], 100u);
}

TEST(PtxSteps, AtomicsGiveEachThreadItsOwnNumber) {
  const Array<uint32_t> counter(1, 0), seen(640, 0);
  launch(
      "atom.global.add.u32 %r1, [%rd0], 1;\nmul.wide.u32 %rd10, %r1, 4;\n"
      "add.s64 %rd10, %rd10, %rd1;\nred.global.add.u32 [%rd10], 1;",
      {counter.address(), seen.address()}, {64, 10});
  for (size_t k = 0; k < 640; ++k) EXPECT_EQ(seen[k], 1u) << k;
}

TEST(PtxSteps, OneOfManySwapsWhatAllHaveSeen) {
  const Array<uint32_t> halves(1, 0x50007);
  launch(
      "ld.global.u16 %rs1, [%rd0+2];\nAGAIN: mov.u16 %rs2, %rs1;\nadd.u16 %rs3, %rs2, 1;\n"
      "atom.global.cas.b16 %rs1, [%rd0+2], %rs2, %rs3;\n"
      "setp.ne.u16 %p0, %rs1, %rs2;\n@%p0 bra AGAIN;",
      {halves.address()}, {64, 10});
  EXPECT_EQ(halves[0], 0x50007u + (640u << 16));
}

TEST(PtxSteps, AtomicsOfSharedMemoryAndFloats) {
  const Array<float> sum(1, 0.5f);
  const auto results = results_of(
      "setp.ne.u32 %p0, %thread, 0; mov.u32 %r1, words;\n@!%p0 st.shared.u32 [%r1], 0;\nbar.sync "
      "0;\n"
      "atom.shared.add.u32 %r2, [%r1], 1;\nbar.sync 0;\nld.shared.u32 %r0, [%r1];",
      {96}, ".shared .align 4 .b8 words[4];\n");
  for (const uint32_t each : results) EXPECT_EQ(each, 96u);
  launch("red.global.add.f32 [%rd0], 0f3F800000;", {sum.address()}, {96, 3});
  EXPECT_EQ(sum[0], 288.5f);
}

// As cooperative groups do it: the last of all blocks lets the others go on.
TEST(PtxSteps, AWholeGridWaitsForItself) {
  const Array<uint32_t> out(32, 0), count(1, 0);
  launch(
      "mov.u32 %r1, %envreg1; mov.u32 %r2, %envreg2; mov.b64 %rd10, {%r2, %r1};\n"
      "mul.wide.u32 %rd11, %block, 4; add.s64 %rd11, %rd11, %rd0;\n"
      "red.global.add.u32 [%rd1], 1;\natom.add.release.gpu.u32 %r3, [%rd10], 1;\n"
      "WAIT: ld.acquire.gpu.u32 %r4, [%rd10];\nsetp.lt.u32 %p0, %r4, 32;\n@%p0 bra WAIT;\n"
      "ld.global.u32 %r5, [%rd1];\nst.global.u32 [%rd11], %r5;",
      {out.address(), count.address()}, {1, 32});
  for (size_t k = 0; k < 32; ++k) EXPECT_EQ(out[k], 32u) << k;
}

TEST(PtxSteps, ThreadsOfThreeDimensions) {
  const std::string text = testing::kernel_text(
      "mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ctaid.y;\n"
      "mov.u32 %r4, %nctaid.z; mad.lo.s32 %r5, %r2, 3, %r1;\n"
      "mad.lo.s32 %r5, %r5, 5, %thread; mul.wide.u32 %rd10, %r5, 4;\n"
      "add.s64 %rd10, %rd10, %rd0; mov.u32 %r6, %ctaid.z;\n"
      "mad.lo.s32 %r3, %r3, 10, %r6; add.u32 %r3, %r3, 1;\n"
      "red.global.add.u32 [%rd10], %r3;",
      1);
  const Array<uint32_t> out(30, 0);
  add_module("three dimensions", text);
  Function* kernel = find_kernel("three dimensions", "kernel");
  const uint64_t address = out.address();
  std::memcpy(kernel->parameter_bytes.data(), &address, 8);
  run({kernel, {1, 2, 3}, {5, 3, 2}, 0});
  for (size_t k = 0; k < 30; ++k) EXPECT_EQ(out[k], 3u * 10 + 2 * 3 + 6) << k;
}

}  // namespace
}  // namespace ringside::ptx
