// What the forward kernel is compiled for, an instance each, and what its shared memory holds.
#pragma once

#include "optimized/attention/hopper/block_note.h"
#include "optimized/attention/hopper/head_dims.h"

namespace ringside::hopper {

// Keys of a block, stages of K and of V, places for Q (the next item's comes early if there are
// two), and how many columns of results are on their way at a time.
template <int Keys, int Stages, int ItemStages, int StagedColumns>
struct Stock {
  static constexpr int kKeys = Keys, kStages = Stages, kItemStages = ItemStages;
  static constexpr int kStagedColumns = StagedColumns;
};

template <typename Dims>
struct Tuning;
// clang-format off
template <> struct Tuning<HeadDims<64, 64>> : Stock<128, 4, 2, 64> {};
template <> struct Tuning<HeadDims<128, 128>> : Stock<128, 2, 2, 128> {};
template <> struct Tuning<HeadDims<192, 128>> : Stock<128, 2, 1, 64> {};
template <> struct Tuning<HeadDims<192, 192>> : Stock<64, 3, 1, 64> {};
template <> struct Tuning<HeadDims<256, 256>> : Stock<64, 2, 1, 64> {};
// clang-format on

template <typename Dims>
struct ForwardShape : Dims, Tuning<Dims> {
  using Dims::kQk, Dims::kV, Tuning<Dims>::kKeys;
  static constexpr int kPanelBytes = kKeys * kSwizzledBytes;  // 64 columns of a block
  static constexpr int kQueryBytes = kGroupRows * kQk * 2;    // of a group
  static constexpr int kKeyBytes = kKeys * kQk * 2, kValueBytes = kKeys * kV * 2;     // of a block
  static constexpr int kStagedBytes = kGroupRows * Tuning<Dims>::kStagedColumns * 2;  // of a group
  static constexpr int kValueTasks = 2 * Tuning<Dims>::kStages;  // of who load and inspect values
};

}  // namespace ringside::hopper
