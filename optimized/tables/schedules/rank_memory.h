// Where the buffers of a rank's schedule lie in device memory, in bytes: integers only.
//
// Each array of a payload (k and v, say) has memory of its own in every area. Areas that outlive
// the pass lie in memory of their own, of each rank. The caller's arrays lie elsewhere, dense. A
// block of a buffer is a number of rows of equal width at a pitch, which is what copy engines move.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "reference/schedule/schedule.h"

namespace ringside {

// Bytes of a cell of each array of each payload.
struct CellSizes {
  std::array<std::vector<int>, kPayloads> of_payload;

  const std::vector<int>& of(Payload payload) const {
    return of_payload[static_cast<size_t>(payload)];
  }
};
// Of q, k and v with `element` bytes a number; results, lse, delta and gradients are float32.
CellSizes cell_sizes(Pass pass, int head_dim_qk, int head_dim_v, int element);

struct RankMemory {
  std::vector<std::vector<int64_t>> of_area;  // [area][array]: where it begins
  int64_t end = 0;
  int64_t kept_bytes = 0;  // of the areas that are kept, which begin at 0
};
// Areas one after the other from `begin` on, and those that are kept, at multiples of 256.
RankMemory place_areas(const Schedule& schedule, const CellSizes& sizes, int64_t begin);

struct Rows {  // bytes
  int64_t offset = 0, pitch = 0, width = 0;
  int rows = 0;

  bool dense() const { return rows <= 1 || pitch == width; }
  int64_t bytes() const { return width * rows; }
  bool operator==(const Rows&) const = default;
};
// Of one array of a block; offsets count from the workspace, of what is kept from the memory for
// that, of the caller's from the array.
Rows rows_of(const Schedule& schedule, const RankMemory& memory, const CellSizes& sizes,
             const Block& block, int array);

// Which ranks each process hosts, and which process this is.
struct Hosting {
  std::vector<std::vector<int>> processes;
  int mine = 0;

  const std::vector<int>& hosted() const { return processes.at(mine); }
  int process_of(int rank) const;
};

}  // namespace ringside
