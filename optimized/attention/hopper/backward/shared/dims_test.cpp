// How the backward kernels cut their work, on the host.
#include "optimized/attention/hopper/backward/shared/dims.h"

#include <gtest/gtest.h>

#include <vector>

namespace ringside::hopper::backward_detail {
namespace {

template <int kQk, int kV>
void expect_each_column_of_dq_once() {
  using Shape = BackwardShape<HeadDims<kQk, kV>>;
  std::vector<int> sent(kQk);
  for (int round = 0; round < Shape::kRounds; ++round)
    for (int group = 0; group < kGroups; ++group) {
      const Columns of = Shape::dq_columns(group, round);
      EXPECT_LE(of.number, Shape::kDqColumns);  // what a group's place holds
      EXPECT_EQ(of.number % 32, 0);             // panels of 128 bytes of float32
      for (int i = 0; i < of.number; ++i) ++sent.at(of.first + i);
    }
  EXPECT_EQ(sent, std::vector<int>(kQk, 1)) << kQk << ", " << kV;
}

TEST(BackwardShape, EachColumnOfDqIsSentOnce) {
  expect_each_column_of_dq_once<64, 64>();
  expect_each_column_of_dq_once<128, 128>();
  expect_each_column_of_dq_once<192, 128>();
  expect_each_column_of_dq_once<192, 192>();
  expect_each_column_of_dq_once<256, 256>();
}

}  // namespace
}  // namespace ringside::hopper::backward_detail
