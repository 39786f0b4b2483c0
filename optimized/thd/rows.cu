// One kernel moves rows: it splits them by bytes (row_tiles.h) and asks a map (row_maps.h) where
// they go. A block looks its sequences up once, then each row of its tile, then streams: all loads
// of a thread before its stores, so that enough bytes are in flight.
#include "optimized/device/launch.cuh"
#include "optimized/tables/thd/row_tiles.h"
#include "optimized/thd/row_ops.cuh"
#include "optimized/thd/row_tables.cuh"
#include "optimized/thd/rows.h"

namespace ringside::thd {
namespace {

struct RowArrays {  // of one launch
  RowArray of[kArraysPerLaunch];
  int count = 0;

  int64_t tiles() const {
    int64_t sum = 0;
    for (int i = 0; i < count; ++i) sum += of[i].tiles;
    return sum;
  }
};

// --- where the rows of a tile go

// The last sequence that begins at or before a row, by a whole warp: 32 at a time.
template <typename Map>
__device__ int find_by_warp(const Map& map, int64_t row) {
  const int lane = threadIdx.x % kLanes;
  int lo = 0, hi = map.last() + 1;
  while (hi - lo > 1) {
    const int step = (hi - lo + kLanes - 1) / kLanes, probe = lo + lane * step;
    const bool before = probe < hi && map.first_move(probe) <= row;
    const int begun = __popc(__ballot_sync(kAllLanes, before));
    if (begun > 1) lo += (begun - 1) * step;
    hi = min(hi, lo + step);
  }
  return min(lo, map.last());
}

struct TileMoves {
  RowMove rows[kTileUnits];
  int ends[2];  // sequences of the first and the last of them

  template <typename Map>
  __device__ void look_up(const Map& map, const RowTile& tile) {
    const int thread = threadIdx.x, warp = thread / kLanes;
    if (warp < 2) {
      const int s = find_by_warp(map, tile.row + (warp == 0 ? 0 : tile.rows - 1));
      if (thread % kLanes == 0) ends[warp] = s;
    }
    __syncthreads();
    const int lo = ends[0], hi = max(ends[0], ends[1]);
    for (int i = thread; i < tile.rows; i += kRowThreads)
      rows[i] = map.move(static_cast<int>(tile.row) + i, lo, hi);
    __syncthreads();
  }
};

// The map with its table: that of the kernel before, or the block's own.
template <typename Map>
__device__ Map table_made(Map map) {
  __shared__ typename Map::Sum small[kSmallTable];
  if (map.table != nullptr) {
    wait_for_table();
  } else {
    fill_small_table<kRowThreads>(map, small);
    __syncthreads();
    map.table = small;
  }
  return map;
}
__device__ ValidRowMap table_made(const ValidRowMap& map) { return map; }  // needs none

// --- the rows of a tile

template <typename Op>
__device__ void stream_tile(const RowArray& array, const RowTile& tile, const TileMoves& moves) {
  using From = typename Op::From;
  using To = typename Op::To;
  typename Op::Loaded loaded[kRowUnroll];
  To* target[kRowUnroll];
  UnitWalk walk(array, tile, threadIdx.x);
#pragma unroll
  for (int k = 0; k < kRowUnroll; ++k) {
    target[k] = nullptr;
    if (k * kRowThreads + static_cast<int>(threadIdx.x) < tile.units) {
      const RowMove move = moves.rows[walk.row];
      if (move.any()) {
        target[k] = reinterpret_cast<To*>(array.to + move.to * array.to_pitch) + walk.unit;
        loaded[k] = Op::load(
            reinterpret_cast<const From*>(array.from + move.from * array.from_pitch) + walk.unit,
            target[k]);
      }
    }
    walk.next(array);
  }
#pragma unroll
  for (int k = 0; k < kRowUnroll; ++k)
    if (target[k] != nullptr) Op::store(target[k], loaded[k]);
}

// --- kernels

struct OfArray {  // a block's part of a launch
  int array;
  int64_t tile;
};

__device__ OfArray of_block(const RowArrays& arrays) {
  OfArray of{0, blockIdx.x};
  while (of.tile >= arrays.of[of.array].tiles) of.tile -= arrays.of[of.array++].tiles;
  return of;
}

template <typename Map>
__global__ void __launch_bounds__(kRowThreads)
    copy_rows_kernel(const __grid_constant__ RowArrays arrays, const Map map) {
  __shared__ TileMoves moves;
  const OfArray of = of_block(arrays);
  const RowArray& array = arrays.of[of.array];
  const RowTile tile = RowTile::of(array, of.tile);
  moves.look_up(table_made(map), tile);
  switch (array.from_unit) {
    case 16:
      return stream_tile<Copy<uint4>>(array, tile, moves);
    case 8:
      return stream_tile<Copy<uint2>>(array, tile, moves);
    case 4:
      return stream_tile<Copy<uint32_t>>(array, tile, moves);
    case 2:
      return stream_tile<Copy<uint16_t>>(array, tile, moves);
    default:
      return stream_tile<Copy<uint8_t>>(array, tile, moves);
  }
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    add_rows_kernel(const __grid_constant__ RowArray array, const SegmentMap map) {
  __shared__ TileMoves moves;
  const RowTile tile = RowTile::of(array, blockIdx.x);
  moves.look_up(table_made(map), tile);
  if (array.to_unit == 16)
    stream_tile<Add<T, 4>>(array, tile, moves);
  else
    stream_tile<Add<T, 1>>(array, tile, moves);
}

// --- launches

template <typename Map>
bool needs_table(const Map& map) {  // of another kernel
  return map.table != nullptr;
}
bool needs_table(const ValidRowMap&) { return false; }

uint64_t bits(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

RowArray cut(const RowCopyArrays& x, int num_rows) {
  RowArray array;
  array.from = static_cast<const std::byte*>(x.from);
  array.to = static_cast<std::byte*>(x.to);
  array.from_pitch = x.from_pitch, array.to_pitch = x.to_pitch;
  array.from_unit = array.to_unit =
      widest_unit(bits(x.from), bits(x.to), x.from_pitch, x.to_pitch, x.row_bytes);
  array.cut(num_rows, static_cast<int>(x.row_bytes / array.from_unit));
  return array;
}

RowArray cut(const RowSumArrays& x, int element_bytes, int num_rows) {
  RowArray array;
  array.from = static_cast<const std::byte*>(x.from);
  array.to = reinterpret_cast<std::byte*>(x.to);
  array.from_pitch = x.from_pitch * element_bytes, array.to_pitch = x.to_pitch * 4;
  // Four elements at once where all of it allows that, counted in bytes of `to`.
  const int unit = widest_unit(bits(x.from) * (4 / element_bytes), bits(x.to), x.from_pitch * 4,
                               array.to_pitch, x.row_elements * 4);
  const int elements = unit == 16 ? 4 : 1;
  array.to_unit = 4 * elements, array.from_unit = element_bytes * elements;
  array.cut(num_rows, static_cast<int>(x.row_elements / elements));
  return array;
}

// The map as kernels take it: where it has few entries, they make the table themselves.
template <typename Map>
Map with_table(Map map, typename Map::Sum* table, cudaStream_t stream) {
  if (has_small_table(map)) return map;
  launch_table(map, table, stream);
  map.table = table;
  return map;
}

template <typename Map>
void launch_copy(const RowArrays& arrays, const Map& map, cudaStream_t stream) {
  launch(copy_rows_kernel<Map>, {arrays.tiles(), kRowThreads, needs_table(map)}, stream, arrays,
         map);
}

template <typename T>
void launch_add(const RowArray& array, const SegmentMap& map, cudaStream_t stream) {
  launch(add_rows_kernel<T>, {array.tiles, kRowThreads, needs_table(map)}, stream, array, map);
}

}  // namespace

void reorder_rows(std::span<const RowCopyArrays> arrays, const ReorderMap& map, uint32_t* table,
                  cudaStream_t stream) {
  if (map.num_moves() == 0 || map.starts.batch() == 0) return;
  const ReorderMap ready = with_table(map, table, stream);
  RowArrays group;
  const auto launch_group = [&] {
    if (group.count > 0) launch_copy(group, ready, stream);
    group.count = 0;
  };
  for (const RowCopyArrays& x : arrays) {
    if (x.row_bytes == 0) continue;
    group.of[group.count++] = cut(x, map.num_moves());
    if (group.count == kArraysPerLaunch) launch_group();
  }
  launch_group();
}

void copy_valid_rows(const RowCopyArrays& array, const ValidRowMap& map, cudaStream_t stream) {
  if (map.num_rows == 0 || array.row_bytes == 0 || map.starts.batch() == 0) return;
  RowArrays arrays;
  arrays.of[arrays.count++] = cut(array, map.num_rows);
  launch_copy(arrays, map, stream);
}

void move_rows(const RowCopyArrays& array, const SegmentMap& map, int64_t* table,
               cudaStream_t stream) {
  if (map.num_moves() == 0 || array.row_bytes == 0 || map.num_segments == 0) return;
  RowArrays arrays;
  arrays.of[arrays.count++] = cut(array, map.num_moves());
  launch_copy(arrays, with_table(map, table, stream), stream);
}

void add_rows(const RowSumArrays& array, const SegmentMap& map, int64_t* table,
              cudaStream_t stream) {
  if (map.num_moves() == 0 || array.row_elements == 0 || map.num_segments == 0) return;
  const SegmentMap ready = with_table(map, table, stream);
  switch (array.type) {
    case ElementType::float32:
      return launch_add<float>(cut(array, 4, map.num_moves()), ready, stream);
    case ElementType::float16:
      return launch_add<__half>(cut(array, 2, map.num_moves()), ready, stream);
    case ElementType::bfloat16:
      return launch_add<__nv_bfloat16>(cut(array, 2, map.num_moves()), ready, stream);
  }
}

}  // namespace ringside::thd
