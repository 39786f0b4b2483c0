// What the backward kernel is compiled for, an instance each, and how it cuts the work.
#pragma once

#include "optimized/attention/hopper/head_dims.h"

namespace ringside::hopper::backward_detail {

// Keys of an item; stages of Q, of dO and of K.
template <int Keys, int Stages, int DoutStages, int KeyStages>
struct Stock {
  static constexpr int kKeys = Keys, kStages = Stages, kDoutStages = DoutStages;
  static constexpr int kKeyStages = KeyStages;
};

template <typename Dims>
struct Tuning;
// clang-format off
template <> struct Tuning<HeadDims<64, 64>> : Stock<128, 4, 4, 2> {};
template <> struct Tuning<HeadDims<128, 128>> : Stock<128, 2, 2, 2> {};
template <> struct Tuning<HeadDims<192, 128>> : Stock<128, 2, 2, 1> {};
template <> struct Tuning<HeadDims<192, 192>> : Stock<64, 2, 2, 1> {};
template <> struct Tuning<HeadDims<256, 256>> : Stock<64, 2, 1, 1> {};
// clang-format on

inline constexpr int kQueries = 64;  // rows of a block
inline constexpr int kGroups = 2, kGroupKeys = 64, kGroupThreads = 128;
inline constexpr int kPanelColumns = 64, kHalfPanel = 32;  // of 16 bits
inline constexpr int kQueryPanel = kQueries * 128;         // bytes
inline constexpr int kFoundStages = 2;

struct Columns {
  int first, number;
};

// Either each group has keys of its own, and their dk and dv, beside which there may be room for
// the next block's scores as well (kAhead), or for scores of half a block's queries only
// (kInHalves); or, where these do not fit its registers, both
// have the same keys: the first group owns dk, the second dv (kSplit).
template <typename Dims>
struct BackwardShape : Dims, Tuning<Dims> {
  using Dims::kQk, Dims::kV, Tuning<Dims>::kKeys, Tuning<Dims>::kStages;
  static constexpr int kKeyGroups = kKeys / kGroupKeys;
  static constexpr bool kSplit = kKeyGroups == 1, kInHalves = !kSplit && kQk + kV > 256;
  static constexpr bool kAhead = !kSplit && kQk + kV <= 128;  // scores of the next block, too
  static constexpr bool kTakesTurns = !kSplit && !kInHalves;  // at dq, an item after the other
  // Whether an item may have several blocks of keys, through which its queries' dq are carried.
  static constexpr bool kCarries = kTakesTurns && kQk > 64;
  static constexpr int kWholeKeys = kCarries ? 384 : kKeys;  // of such an item, at most
  static constexpr int kQkPanels = kQk / kPanelColumns, kVPanels = kV / kPanelColumns;
  static constexpr int kSeenStages = kStages + 2;  // written while two blocks may still be in use

  // Bytes of shared memory. Tiles are panels of 128-byte rows.
  static constexpr int kKeyPanel = kKeys * 128;
  static constexpr int kKeyTile = kQkPanels * kKeyPanel, kValueTile = kVPanels * kKeyPanel;
  static constexpr int kQueryTile = kQkPanels * kQueryPanel, kDoutTile = kVPanels * kQueryPanel;
  static constexpr int kDsTile = kKeys * 128;  // [keys][queries]
  static constexpr int kDqColumns =
      kTakesTurns ? kQk / kGroups : kPanelColumns;  // at a time, of a group
  static constexpr int kDqTile = kQueries * kDqColumns * 4;
  static constexpr int kFoundParts = kSplit ? kQkPanels : kGroups;  // of an item's K

  // Split: which panels of dq are a group's.
  RINGSIDE_HD static constexpr int first_panel(int group) {
    return group == 0 ? 0 : kQkPanels / kGroups;
  }
  RINGSIDE_HD static constexpr int end_panel(int group) {
    return group == 0 ? first_panel(1) : kQkPanels;
  }
  // In how many rounds a block's dq leave, at most, and a group's columns of one. In halves: first
  // of the panel in the middle, then a panel of its own.
  static constexpr int kRounds = kTakesTurns ? 1 : kSplit ? kQkPanels - kQkPanels / kGroups : 2;
  RINGSIDE_HD static constexpr Columns dq_columns(int group, int round) {
    if (kTakesTurns) return {group * kDqColumns, kDqColumns};
    if (kInHalves && round == 0) return {kPanelColumns + group * kHalfPanel, kHalfPanel};
    if (kInHalves) return {group * 2 * kPanelColumns, kPanelColumns};
    const int panel = first_panel(group) + round;
    return {panel * kPanelColumns, panel < end_panel(group) ? kPanelColumns : 0};
  }
};

}  // namespace ringside::hopper::backward_detail
