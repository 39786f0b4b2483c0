// The tables of row maps, built on the device: one small kernel before the rows move.
#pragma once

#include "optimized/thd/block_scan.cuh"
#include "optimized/thd/launch.cuh"
#include "optimized/thd/row_maps.h"

namespace ringside::thd {

inline constexpr int kTableThreads = 1024;

// One block a rank; map.rank_rows.table is `table`. Nothing but the first entry is written where
// 2*cp_size divides all lengths.
__global__ void __launch_bounds__(kTableThreads) rank_rows_kernel(ReorderMap map, int32_t* table) {
  let_next_start();
  const int batch = map.starts.batch(), cp_size = map.rank_rows.cp_size;
  const int rank = static_cast<int>(blockIdx.x), chunks = 2 * cp_size;
  bool divisible = true;
#pragma unroll 8
  for (int s = threadIdx.x; s <= batch; s += kTableThreads)
    divisible &= map.starts[s] == static_cast<int>(map.starts[s]) &&  // a short division
                 static_cast<int>(map.starts[s]) % chunks == 0;
  divisible = __syncthreads_and(divisible);
  if (rank == 0 && threadIdx.x == 0) table[0] = !divisible;
  if (divisible) return;

  int64_t on_earlier_ranks = 0;
  for (int s = threadIdx.x; s < batch; s += kTableThreads) {
    const DualChunk chunk{map.starts.length(s, map.num_moves()), cp_size};
    on_earlier_ranks += chunk.chunk_begin(rank) + chunk.rows - chunk.chunk_begin(chunks - rank);
  }
  int64_t row = 0;
  sum_before<kTableThreads>(on_earlier_ranks, row);
  for (int begin = 0; begin < batch; begin += kTableThreads) {
    const int s = begin + static_cast<int>(threadIdx.x);
    int64_t rows = 0, of_all = 0;
    if (s < batch)
      rows = DualChunk{map.starts.length(s, map.num_moves()), cp_size}.local_rows(rank);
    const int64_t before = sum_before<kTableThreads>(rows, of_all);
    if (s < batch) table[1 + int64_t{rank} * batch + s] = static_cast<int32_t>(row + before);
    row += of_all;
  }
}

// One block. Negative numbers of rows count as none.
__global__ void __launch_bounds__(kTableThreads)
    segment_sums_kernel(SegmentMap map, int64_t* first) {
  let_next_start();
  int64_t sum = 0;
  for (int begin = 0; begin < map.segments; begin += kTableThreads) {
    const int s = begin + static_cast<int>(threadIdx.x);
    int64_t rows = s < map.segments ? map.at(s, SegmentMap::kRows) : 0, of_all = 0;
    if (rows < 0) rows = 0;
    const int64_t before = sum_before<kTableThreads>(rows, of_all);
    if (s < map.segments) first[s] = sum + before;
    sum += of_all;
  }
  if (threadIdx.x == 0) first[map.segments] = sum;
}

}  // namespace ringside::thd
