// The tables of row maps, filled in on the device: by each block for itself, in shared memory,
// where there are few sequences; else by a small kernel before the rows move.
#pragma once

#include <algorithm>

#include "optimized/device/block_scan.cuh"
#include "optimized/device/launch.cuh"
#include "optimized/tables/thd/row_maps.h"

namespace ringside::thd {

inline constexpr int kTableThreads = 1024;
inline constexpr int kSmallTable = 256;  // entries, of which a warp fills in a row

template <typename Map>
bool has_small_table(const Map& map) {
  return map.table_columns() <= kLanes &&
         int64_t{map.table_rows()} * map.table_columns() <= kSmallTable;
}

// By a block of kThreads; whoever reads it waits for them.
template <int kThreads, typename Map>
__device__ void fill_small_table(const Map& map, typename Map::Sum* table) {
  using Sum = typename Map::Sum;
  const int column = threadIdx.x % kLanes, columns = map.table_columns();
  for (int row = threadIdx.x / kLanes; row < map.table_rows(); row += kThreads / kLanes) {
    const bool inside = column < columns;
    const Sum behind = inside ? map.term(row, column, false) : 0;
    const Sum change = inside ? map.term(row, column, true) - behind : 0;
    const Sum sum = warp_sum(behind) + warp_sum_through(change) - change;
    if (inside) table[row * columns + column] = sum;
  }
}

// Blocks share the columns, gridDim.y the rows. Each block first sums the terms of all columns, as
// if its own were all behind the one it fills in: that is quicker than to wait for other blocks.
template <typename Map>
__global__ void __launch_bounds__(kTableThreads)
    table_kernel(const Map map, const int columns_of_block, typename Map::Sum* table) {
  using Sum = typename Map::Sum;
  let_next_start();
  const int columns = map.table_columns(), row = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * columns_of_block;
  const int last = min(columns - first, columns_of_block) + first;
  Sums<Sum, 2> sums;  // of the terms; of what changes in passing a column
#pragma unroll 4
  for (int c = threadIdx.x; c < columns; c += kTableThreads)
    sums.of[0] += map.term(row, c, c < first);
  Sum sum = 0;
  for (int begin = first; begin < last; begin += kTableThreads) {
    const int c = begin + static_cast<int>(threadIdx.x);
    sums.of[1] = c < last ? map.term(row, c, true) - map.term(row, c, false) : 0;
    const SumsAt<Sum, 2> at = block_sums<kTableThreads>(sums);
    sum += at.total.of[0];
    if (c < last) table[int64_t{row} * columns + c] = sum + at.before.of[1];
    sum += at.total.of[1];
    sums.of[0] = 0;
  }
}

// Few enough blocks that all of them run at once, as each of them goes through all columns.
template <typename Map>
void launch_table(const Map& map, typename Map::Sum* table, cudaStream_t stream) {
  constexpr int kBlocks = 128;
  const int blocks = std::max(kBlocks / map.table_rows(), 1);
  const int64_t share = (int64_t{map.table_columns()} + blocks - 1) / blocks;
  const int64_t columns = (share + kTableThreads - 1) / kTableThreads * kTableThreads;
  const dim3 grid(static_cast<unsigned>((map.table_columns() + columns - 1) / columns),
                  static_cast<unsigned>(map.table_rows()));
  table_kernel<Map><<<grid, kTableThreads, 0, stream>>>(map, static_cast<int>(columns), table);
  RINGSIDE_CUDA(cudaGetLastError());
}

}  // namespace ringside::thd
