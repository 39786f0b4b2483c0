// What the Hopper family takes, on the host, and which family runs what it leaves.
#include <gtest/gtest.h>

#include <string>

#include "optimized/attention/hopper/kernels.h"
#include "optimized/attention/hopper/machine/box.h"
#include "optimized/attention/hopper/machine/tensor_map.h"

namespace ringside {
namespace {

constexpr DeviceProperties kHopper{90, 132, 227 << 10}, kAmpere{80, 108, 163 << 10};

// Where no driver makes tensor maps, as on a machine without a GPU, the family for all devices
// runs.
TEST(HopperFamily, TakesAllHeadDimensions) {
  const auto name = [](int qk, int v, const DeviceProperties& device) {
    const AttentionShape shape{.head_dim_qk = qk, .head_dim_v = v, .type = ElementType::bfloat16};
    return find_family(shape, device, false)->name;
  };
  const char* const hopper = hopper::driver_makes_maps() ? "hopper" : "mma";
  EXPECT_STREQ(name(128, 128, kHopper), hopper);
  EXPECT_STREQ(name(8, 72, kHopper), hopper);
  EXPECT_STREQ(name(128, 128, kAmpere), "mma");
  EXPECT_STREQ(name(8, 64, kHopper), hopper);
  EXPECT_STREQ(name(192, 128, kHopper), hopper);
  EXPECT_STREQ(name(256, 200, kHopper), hopper);
  EXPECT_STREQ(name(136, 136, kHopper), hopper);
  EXPECT_STREQ(name(192, 192, kHopper), hopper);
}

// A launch that one of them does not take goes to the other: its items are as long, or, of keys,
// shorter.
TEST(HopperFamily, CutsItemsThatTheMmaFamilyTakes) {
  for (int qk = 8; qk <= 256; qk += 8)
    for (int v = 8; v <= 256; v += 8) {
      const AttentionShape shape{.head_dim_qk = qk, .head_dim_v = v, .type = ElementType::float16};
      EXPECT_EQ(hopper_family().forward_rows(shape), mma_family().forward_rows(shape))
          << qk << " and " << v;
      EXPECT_EQ(hopper_family().backward_key_rows(shape), hopper::backward_key_rows(shape));
      EXPECT_LE(hopper::backward_key_rows(shape), mma_family().backward_key_rows(shape));
      EXPECT_EQ(hopper::backward_key_rows(shape), qk <= 192 && v <= 128 ? 128 : 64);
    }
}

// More rows than coordinates of a map count go to the next family, which the program then names.
TEST(HopperFamily, LeavesMoreRowsThanAMapHasToTheNext) {
  if (!hopper::driver_makes_maps()) GTEST_SKIP() << "the driver makes no maps";
  const AttentionShape shape{.head_dim_qk = 128, .head_dim_v = 128, .type = ElementType::bfloat16};
  const auto name = [&](int64_t rows, bool options = false) {
    const KernelFamily* family = find_family(shape, kHopper, options, rows);
    return std::string(family == nullptr ? "none" : family->name);
  };
  EXPECT_EQ(name(hopper::kRaggedRows), "hopper");
  EXPECT_EQ(name(hopper::kRaggedRows + 1), "mma");
  EXPECT_EQ(name(hopper::kRaggedRows, true), "hopper");
  EXPECT_EQ(name(hopper::kRaggedRows + 1, true), "none");  // of 16 bits
}

// Arguments that the kernel takes; nothing of them is touched.
ForwardArguments plain_arguments() {
  alignas(16) static char anything[16];
  const DeviceMatrix matrix{anything, 2 * 128, 128, 100};
  ForwardArguments arguments;
  arguments.shape = {.num_heads = 2,
                     .num_kv_heads = 2,
                     .head_dim_qk = 128,
                     .head_dim_v = 128,
                     .type = ElementType::bfloat16};
  arguments.q = arguments.k = arguments.v = arguments.out = matrix;
  arguments.accumulate = Accumulate::only;
  return arguments;
}

// Of two kernels, the one that knows no options runs where none are asked for.
TEST(HopperFamily, HasAKernelForOptionsAndOneForNone) {
  const auto has_options = [](auto change) {
    ForwardArguments arguments = plain_arguments();
    change(arguments);
    return hopper::takes(arguments) && hopper::has_options(arguments);
  };
  EXPECT_TRUE(hopper::takes(plain_arguments()));
  EXPECT_FALSE(has_options([](ForwardArguments&) {}));
  for (const float scale : {0.f, -1.f, 1e-38f})
    EXPECT_TRUE(has_options([&](ForwardArguments& a) { a.shape.softmax_scale = scale; })) << scale;
  int32_t key = 0;
  const float number = 0;
  EXPECT_TRUE(has_options([&](ForwardArguments& a) { a.max_logit = &key; }));
  EXPECT_TRUE(has_options([&](ForwardArguments& a) { a.sinks = &number; }));
  EXPECT_TRUE(has_options([](ForwardArguments& a) { a.options.softcap = 30; }));
  EXPECT_TRUE(has_options([&](ForwardArguments& a) { a.options.alibi_slopes = &number; }));
  EXPECT_TRUE(has_options([](ForwardArguments& a) { a.options.dropout.p = 0.5; }));
}

// Elsewhere softcap, ALiBi and dropout are another family's.
TEST(HopperFamily, HasKernelsForOptionsOfSomeHeadDimensions) {
  const auto changed = [](int dim, auto change) {
    ForwardArguments arguments = plain_arguments();
    arguments.shape.head_dim_qk = arguments.shape.head_dim_v = dim;
    change(arguments);
    return arguments;
  };
  int32_t key = 0;
  for (const int dim : {8, 64, 72, 128, 136, 192, 256}) {
    const bool knows = dim <= 128;
    const ForwardArguments plain = changed(dim, [](ForwardArguments&) {});
    EXPECT_EQ(hopper_family().score_options(plain.shape), knows) << dim;
    EXPECT_TRUE(hopper_family().final_sinks(plain.shape)) << dim;
    EXPECT_TRUE(hopper::takes(plain)) << dim;
    const auto with_highest = changed(dim, [&](ForwardArguments& a) { a.max_logit = &key; });
    const auto negated = changed(dim, [](ForwardArguments& a) { a.shape.softmax_scale = -1; });
    const auto capped = changed(dim, [](ForwardArguments& a) { a.options.softcap = 5; });
    EXPECT_TRUE(hopper::takes(with_highest)) << dim;
    EXPECT_TRUE(hopper::takes(negated)) << dim;
    EXPECT_EQ(hopper::takes(capped), knows) << dim;
  }
}

TEST(HopperFamily, LeavesStridesThatNoMapTakes) {
  const auto takes = [](auto change) {
    ForwardArguments arguments = plain_arguments();
    change(arguments);
    return hopper::takes(arguments);
  };
  for (const int64_t stride : {int64_t{0}, int64_t{-256}, int64_t{257}, int64_t{1} << 34}) {
    EXPECT_FALSE(takes([&](ForwardArguments& a) { a.k.row_stride = stride; })) << stride;
    EXPECT_FALSE(takes([&](ForwardArguments& a) { a.out.row_stride = stride; })) << stride;
  }
  for (const int64_t stride : {int64_t{0}, int64_t{-128}, int64_t{4}, int64_t{1} << 39})
    EXPECT_FALSE(takes([&](ForwardArguments& a) { a.v.head_stride = stride; })) << stride;
  EXPECT_FALSE(takes([](ForwardArguments& a) { a.q.rows = (int64_t{1} << 30) + 1; }));
  // Of one head, its stride means nothing; accumulators are not reached by maps.
  EXPECT_TRUE(takes([](ForwardArguments& a) {
    a.shape.num_heads = a.shape.num_kv_heads = 1;
    a.q.head_stride = a.k.head_stride = a.v.head_stride = a.out.head_stride = 0;
  }));
  EXPECT_TRUE(takes([](ForwardArguments& a) {
    a.accumulate = Accumulate::merge;
    a.out.row_stride = 257;
  }));
}

}  // namespace
}  // namespace ringside
