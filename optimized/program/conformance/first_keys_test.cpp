// Where dq need not begin as zeros (tables/sums/first_keys.h), on a device: first keys are seen by
// all queries of a document, and documents are about as long as each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "optimized/device/processors.h"
#include "optimized/program/conformance/test_device_run.h"
#include "optimized/program/conformance/test_setting.h"

namespace ringside {
namespace {

// Results of the free order, as often as told.
void check(testing::Random& random, const testing::TypeInfo& type, const Problem& problem,
           std::pair<int, int> dims, int times = 1,
           testing::Numbers numbers = testing::Numbers::all_finite) {
  testing::DeviceCase device_case(random, type, problem, dims.first, dims.second);
  device_case.deterministic = false;
  if (numbers == testing::Numbers::some_not) {
    device_case.c.k.at(130, 0)[3] = NAN;
    device_case.c.dout.at(155, 1)[2] = INFINITY;
  }
  const testing::DeviceRun run(device_case, type);
  SCOPED_TRACE(std::to_string(dims.first) + ", " + std::to_string(dims.second) + " by " +
               run.family());
  run.expect_forward();
  for (int time = 0; time < times; ++time) run.expect_backward();
}

// So many that those to come keep all processors busy.
struct Documents {
  int number, heads;
  std::vector<int32_t> begins{0}, padded{0}, shorter{0};

  Documents() {
    const int processors = processors_of_device();
    number = processors > 64 ? 13 : 4;
    heads = processors > 64 ? 16 : 2;
    // Longer than one item may be, which has its sums to itself.
    const int longest = processors > 64 ? 400 : 390;
    for (int i = 0; i < number; ++i) {
      const int len = i == 0 ? longest : 270 + 7 * (i % 5);
      begins.push_back(begins.back() + len), padded.push_back(padded.back() + len + i % 4);
      shorter.push_back(shorter.back() + len - (i == 0 ? 3 : 30 + i));
    }
  }
};

// One block of queries each: whoever waits adds to what was stored last. Who comes when differs.
void check_short_queries(testing::Random& random, const Documents& documents, int times) {
  std::vector<int32_t> blocks, longer;
  for (int i = 0; i <= documents.number; ++i) blocks.push_back(64 * i), longer.push_back(400 * i);
  const int heads = std::max(4, documents.heads);
  check(random, testing::kFloat16,
        {PackedLayout(blocks), PackedLayout(longer), Mask::full(), heads, heads}, {128, 128},
        times);
}

TEST(CudaProgram, AgreesWithTheCpuWhereFirstKeysStore) {
  if (const std::string reason = testing::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  testing::Random random(14);
  const testing::Setting quick("MEMORY_KHZ", 3'800'000);  // else items take turns
  const Documents documents;
  const int heads = documents.heads;
  const PackedLayout layout(documents.begins, documents.padded), shorter(documents.shorter);
  const Mask causal = Mask::causal(), last = Mask::causal(Align::bottom_right);
  const int more = std::max(4, heads);
  check_short_queries(random, documents, 4);
  check(random, testing::kBFloat16, {layout, layout, causal, heads, heads}, {128, 128});
  check(random, testing::kFloat16, {layout, layout, Mask::full(), heads, heads}, {72, 104});
  check(random, testing::kFloat16, {layout, shorter, last, heads, heads}, {128, 128});
  check(random, testing::kBFloat16, {layout, layout, causal, heads, heads}, {64, 64});
  // Each query head has items of its own.
  check(random, testing::kBFloat16, {layout, layout, causal, more, more / 4}, {128, 128});
  check(random, testing::kFloat16, {layout, shorter, last, more, more / 4}, {128, 128});
  check(random, testing::kBFloat16, {layout, layout, causal, heads, heads}, {192, 128});
  check(random, testing::kFloat16, {layout, layout, causal, heads, heads}, {256, 200});
  check(random, testing::kBFloat16, {layout, layout, causal, heads, heads}, {128, 128}, 1,
        testing::Numbers::some_not);
}

// A device that others use, too, may run one block of threads after the other, in any order.
TEST(CudaProgram, FirstKeysOfBlocksThatBeginLateKeepNobodyWaiting) {
  if (const std::string reason = testing::why_not(); !reason.empty()) GTEST_SKIP() << reason;
  testing::Random random(24);
  const Documents documents;
  for (const int at_once : {1, 2, 3})
    for (const int from_last : {0, 1}) {
      const testing::Setting few("AT_ONCE", at_once), order("FROM_LAST", from_last);
      SCOPED_TRACE(concat(at_once, " at once, from the last on: ", from_last));
      check_short_queries(random, documents, 1);
    }
}

}  // namespace
}  // namespace ringside
