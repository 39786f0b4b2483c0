// What the table of kernel families says, on the host: nothing here is launched.
#include <gtest/gtest.h>

#include <string_view>

#include "optimized/attention/heads.h"
#include "optimized/attention/kernel.h"

namespace ringside {
namespace {

constexpr DeviceProperties kHopper{90, 132, 227 << 10}, kAmpere{80, 108, 163 << 10};
constexpr DeviceProperties kDevices[] = {kHopper, kAmpere};
constexpr ElementType kTypes[] = {ElementType::float32, ElementType::float16,
                                  ElementType::bfloat16};

TEST(KernelFamilies, HaveNamesAndSayWhatTheyTake) {
  ASSERT_FALSE(kernel_families().empty());
  for (const KernelFamily& family : kernel_families()) {
    EXPECT_NE(family.name, nullptr);
    const AttentionShape shape{.head_dim_qk = 257, .head_dim_v = 257};
    EXPECT_FALSE(family.supports(shape, kHopper)) << family.name;
  }
}

TEST(KernelFamilies, TensorCoresTakeSixteenBitsOnAnyDevice) {
  for (const DeviceProperties& device : kDevices)
    for (const ElementType type : kTypes) {
      const AttentionShape shape{.head_dim_qk = 64, .head_dim_v = 128, .type = type};
      const KernelFamily* family = find_family(shape, device, false);
      ASSERT_NE(family, nullptr);
      const bool hopper = hopper_family().supports(shape, device);
      EXPECT_STREQ(family->name, type == ElementType::float32 ? "float32"
                                 : hopper                     ? "hopper"
                                                              : "mma");
      const KernelFamily* with_options = find_family(shape, device, true);
      EXPECT_EQ(with_options, hopper || type == ElementType::float32 ? family : nullptr);
    }
}

// A family for one kind of device, before one for all.
TEST(KernelFamilies, AreAskedAboutTheDevice) {
  KernelFamily of_hopper = float32_family();
  of_hopper.name = "hopper";
  of_hopper.supports = [](const AttentionShape&, const DeviceProperties& device) {
    return device.compute_capability == 90;
  };
  const KernelFamily families[] = {of_hopper, float32_family()};
  const AttentionShape shape{.head_dim_qk = 64, .head_dim_v = 64};
  EXPECT_STREQ(find_family(families, shape, kHopper, false)->name, "hopper");
  EXPECT_STREQ(find_family(families, shape, kAmpere, false)->name, "float32");
  EXPECT_EQ(find_family({families, 1}, shape, kAmpere, false), nullptr);
}

TEST(KernelFamilies, AskForNoWorkspaceButHopperForTwoWords) {
  for (const KernelFamily& family : kernel_families()) {
    if (family.name == std::string_view("hopper")) {
      EXPECT_EQ(family.forward_workspace_bytes({}), 8);
      EXPECT_EQ(family.backward_workspace_bytes({}), 8);
    } else {
      EXPECT_EQ(family.forward_workspace_bytes, nullptr) << family.name;
      EXPECT_EQ(family.backward_workspace_bytes, nullptr) << family.name;
    }
  }
}

// Refused on the host, before anything is launched.
class Refusals : public ::testing::TestWithParam<ElementType> {
 protected:
  static constexpr int64_t kCellsOfRow = 2 * 64;
  const AttentionShape shape{
      .num_heads = 2, .head_dim_qk = 64, .head_dim_v = 64, .type = GetParam()};
  const KernelFamily& family = *find_family(shape, kHopper, false);

  bool forward(int64_t row_stride, AccumulatorLayout layout, Accumulate accumulate) const {
    ForwardArguments arguments;
    arguments.shape = shape, arguments.layout = layout, arguments.accumulate = accumulate;
    arguments.out.row_stride = row_stride;
    return family.forward(arguments, nullptr) == cudaErrorInvalidValue;
  }
};

TEST_P(Refusals, OfResultsThatWouldBeMisplaced) {
  using enum AccumulatorLayout;
  for (const Accumulate accumulate : {Accumulate::merge, Accumulate::start}) {
    EXPECT_FALSE(forward(kCellsOfRow, rows, accumulate)) << family.name;
    EXPECT_EQ(forward(kCellsOfRow, tiles, accumulate), !family.tiled_results) << family.name;
    EXPECT_TRUE(forward(2 * kCellsOfRow, tiles, accumulate)) << family.name;  // with room between
  }
  EXPECT_EQ(forward(kCellsOfRow, rows, Accumulate::only), !family.final_results) << family.name;
  EXPECT_TRUE(forward(kCellsOfRow, tiles, Accumulate::only)) << family.name;
}

TEST_P(Refusals, OfGradientsThatWouldBeMisplaced) {
  using enum Accumulate;
  const auto backward = [&](Accumulate accumulate, bool one_item_of_keys) {
    BackwardArguments arguments;
    arguments.shape = shape, arguments.accumulate = accumulate;
    arguments.one_item_of_keys = one_item_of_keys;
    return family.backward(arguments, nullptr);
  };
  if (family.final_results) {  // each dq final, but no dk and dv
    EXPECT_EQ(backward(merge, true), cudaErrorInvalidValue) << family.name;
    EXPECT_EQ(backward(start, true), cudaErrorInvalidValue) << family.name;
  } else {
    EXPECT_EQ(backward(only, false), cudaErrorInvalidValue) << family.name;
  }
}

TEST_P(Refusals, OfSumsInALayoutThatIsNotKnown) {
  for (const AccumulatorLayout layout : {AccumulatorLayout::tiles, AccumulatorLayout::fragments}) {
    BackwardArguments arguments;
    arguments.shape = shape, arguments.dq_layout = layout;
    if (family.backward_in_fragments != nullptr && family.backward_in_fragments(arguments))
      EXPECT_EQ(layout, AccumulatorLayout::fragments) << family.name;
    else
      EXPECT_EQ(family.backward(arguments, nullptr), cudaErrorInvalidValue) << family.name;
  }
}

// Of a launch that has results of one kind, or a family that knows no final ones: results of some
// items would be where nobody looks.
TEST_P(Refusals, OfAPlaceForFinalItemsThatTheLaunchDoesNotFill) {
  alignas(16) static char place[16];
  using enum Accumulate;
  for (const Accumulate accumulate : {merge, start, only}) {
    const bool refused = accumulate == only || !family.final_results;
    ForwardArguments forward;
    forward.shape = shape, forward.accumulate = accumulate;
    forward.final_out.data = place;
    EXPECT_EQ(family.forward(forward, nullptr) == cudaErrorInvalidValue, refused) << family.name;
    if (!refused) continue;
    BackwardArguments backward;
    backward.shape = shape, backward.accumulate = accumulate;
    backward.final_dk.data = backward.final_dv.data = place;
    EXPECT_EQ(family.backward(backward, nullptr), cudaErrorInvalidValue) << family.name;
  }
}

INSTANTIATE_TEST_SUITE_P(KernelFamilies, Refusals, ::testing::ValuesIn(kTypes));

}  // namespace
}  // namespace ringside
