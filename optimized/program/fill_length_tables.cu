#include <cooperative_groups.h>

#include <algorithm>
#include <cstring>

#include "optimized/device/block_scan.cuh"
#include "optimized/device/error.h"
#include "optimized/program/fill_length_tables.h"

namespace ringside {
namespace {

constexpr int kTableThreads = LengthTables::kChunk, kWarp = 32;
constexpr int kBuckets = LengthTables::kBuckets;
constexpr int kRowsOfThread = 4;
constexpr int kCostOfSlot = 2;  // in rows that are mapped

// Stores a value for each lane of a warp at to[place], of none where place < 0. The warp writes all
// of their words in turn: values side by side make full sectors.
template <typename T>
__device__ void store_together(T* to, int place, const T& value) {
  constexpr int kWords = sizeof(T) / sizeof(int32_t), kStride = kWords | 1;  // no bank conflicts
  __shared__ int32_t staged[kTableThreads / kWarp][kWarp * kStride];
  int32_t* words = staged[threadIdx.x / kWarp];
  const int lane = threadIdx.x % kWarp;
  std::memcpy(words + lane * kStride, &value, sizeof(T));
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const int word = i * kWarp + lane, from = word / kWords, at = __shfl_sync(~0u, place, from);
    if (at >= 0)
      reinterpret_cast<int32_t*>(to + at)[word % kWords] = words[from * kStride + word % kWords];
  }
  __syncwarp();
}

// Some blocks of the grid that share work.
struct Team {
  int block, blocks;

  template <typename Visit>
  __device__ void for_each(int count, Visit visit) const {
    for (int64_t i = int64_t{block} * kTableThreads + threadIdx.x; i < count;
         i += int64_t{blocks} * kTableThreads)
      visit(static_cast<int>(i));
  }

  // The same with whole warps: those behind the last are told -1.
  template <typename Visit>
  __device__ void for_each_of_warps(int count, Visit visit) const {
    for (int64_t begin = int64_t{block} * kTableThreads; begin < count;
         begin += int64_t{blocks} * kTableThreads) {
      const int64_t i = begin + threadIdx.x;
      visit(i < count ? static_cast<int>(i) : -1);
    }
  }

  // A part of one list each where blocks abound, else some whole lists.
  template <typename Visit>
  __device__ void for_each_list(const LengthTables& t, Visit visit) const {
    const int of_list = max(1, blocks / max(1, t.num_lists)), teams = blocks / of_list;
    if (block / of_list >= teams) return;
    for (int i = block / of_list; i < t.num_lists; i += teams)
      visit(t.lists[i], Team{block % of_list, of_list});
  }
};

// Prefix sums of a group's rows over a chunk of sequences, by one block.
__device__ void add_up_chunk(const LengthTables& t, const LengthTables::Groups& g,
                             const DeviceLayout& given, int group, int chunk) {
  const int s = chunk * kTableThreads + static_cast<int>(threadIdx.x);
  thd::Sums<int, 1> rows;
  if (s < t.max_batch) {
    const LengthTables::Bounds o = t.bounds(given, s);
    rows.of[0] = g.owned.rows(group, o.row_begin, o.row_end, given.padded.going_on(given.batch()));
  }
  const auto sums = thd::block_sums<kTableThreads>(rows);
  if (s < t.max_batch) g.row_in_chunk[int64_t{group} * t.max_batch + s] = sums.before.of[0];
  if (threadIdx.x == 0) g.rows_of_chunk[int64_t{group} * t.num_chunks() + chunk] = sums.total.of[0];
}

// Copies the lengths of a chunk of sequences, and looks whether they fit.
__device__ void take_chunk(const LengthTables& t, const LengthTables::Side& x,
                           const DeviceLayout& given, int chunk) {
  const int s = chunk * kTableThreads + static_cast<int>(threadIdx.x);
  if (s >= t.max_batch) return;
  const LengthTables::Bounds o = t.bounds(given, s);
  if (!t.fits(x, s, o)) *t.unfit = 1;
  x.cu_seqlens[s] = o.begin, x.cu_seqlens_padded[s] = o.row_begin;
  if (s + 1 == t.max_batch) x.cu_seqlens[s + 1] = o.end, x.cu_seqlens_padded[s + 1] = o.row_end;
}

// A block takes every gridDim-th chunk of all ranks, and of the groups that are no ranks.
__device__ void add_up_chunks(const LengthTables& t, const DeviceLayout& q, const DeviceLayout& k) {
  const int chunks = t.num_chunks(), ranks = t.cp_size();
  const auto chunks_of = [&](const LengthTables::Side& x) {
    return (ranks + (x.is_gathered() ? x.resident.owned.groups() : 0)) * chunks;
  };
  const int of_q = chunks_of(t.q), all = of_q + chunks_of(t.k);
  for (int i = blockIdx.x; i < all; i += gridDim.x) {
    const LengthTables::Side& x = i < of_q ? t.q : t.k;
    const DeviceLayout& given = i < of_q ? q : k;
    const int group = (i < of_q ? i : i - of_q) / chunks,
              chunk = (i < of_q ? i : i - of_q) % chunks;
    if (group == 0) take_chunk(t, x, given, chunk);
    if (group < ranks)
      add_up_chunk(t, x.home, given, group, chunk);
    else
      add_up_chunk(t, x.resident, given, group - ranks, chunk);
  }
}

__device__ void clear(const LengthTables& t, const Team& team) {
  for (const LengthTables::Side* x : {&t.q, &t.k}) {
    team.for_each(x->home_rows, [&](int i) { x->global_of_home[i] = kNobody; });
    team.for_each(x->max_rows, [&](int i) { x->home_of_global[i] = kNobody; });
    if (x->is_gathered())
      team.for_each(x->home_rows, [&](int i) { x->resident_of_home[i] = kNobody; });
  }
}

__device__ void fill_segments(const LengthTables& t, const Team& team) {
  const auto fill = [&](const LengthTables::Side& x, const LengthTables::Groups& g) {
    const int of_group = t.segments_of(g);
    team.for_each_of_warps(g.owned.groups() * of_group, [&](int i) {
      const Segment own = i < 0 ? Segment{} : t.segment(x, g, i / of_group, i % of_group);
      store_together(g.segments, i, own);
    });
  };
  for (const LengthTables::Side* x : {&t.q, &t.k}) {
    fill(*x, x->home);
    if (x->is_gathered()) fill(*x, x->resident);
  }
}

__device__ void fill_buffers(const LengthTables& t, const Team& team) {
  for (const LengthTables::Side* x : {&t.q, &t.k}) {
    const int of_rank = (x->home.rows + kRowsOfThread - 1) / kRowsOfThread;
    team.for_each(t.cp_size() * of_rank,
                  [&](int i) { t.map_rows<kRowsOfThread>(*x, i / of_rank, i % of_rank, of_rank); });
  }
  for (int number = 0; number < t.num_buffers; ++number) {
    const LengthTables::ResidentBuffer& buffer = t.buffers[number];
    team.for_each_of_warps(t.num_partners_of(buffer), [&](int i) {
      store_together(t.partners + buffer.first_partner, i,
                     i < 0 ? Segment{} : t.partner(buffer, i));
    });
  }
}

// Lanes of a warp that say the same, and how many of them come before this one.
struct Alike {
  unsigned lanes;
  int before;

  __device__ int count() const { return __popc(lanes); }
  __device__ bool is_first() const { return before == 0; }
};
__device__ inline Alike lanes_alike(int number) {
  const unsigned lanes = __match_any_sync(~0u, number), lane = threadIdx.x % kWarp;
  return {lanes, __popc(lanes & ((1u << lane) - 1))};
}

// The bucket of every slot, and how many items of each bucket a part of the turns has.
__device__ void weigh(const LengthTables& t, const LengthTables::List& list, const Team& team) {
  __shared__ int counts[kBuckets];
  const auto weigh_slot = [&](int slot) {
    WorkItem item;
    int bucket = LengthTables::kNoItem;
    const int segment = t.segment_of(list, slot);
    if (t.item_of(list, slot, segment, item)) bucket = t.bucket_of_item(list, slot, item);
    list.segment_of_slot[slot] = segment;
    list.bucket_of_slot[slot] = static_cast<uint8_t>(bucket);
    return bucket;
  };
  for (int part = team.block; part < list.num_parts(); part += team.blocks) {
    const Interval turns = list.turns_of(part);
    if (threadIdx.x < kBuckets) counts[threadIdx.x] = 0;
    __syncthreads();
    for (int begin = turns.begin; begin < turns.end; begin += kTableThreads) {
      const int turn = begin + static_cast<int>(threadIdx.x);
      const int bucket =
          turn < turns.end ? weigh_slot(list.slot_of_turn(turn)) : LengthTables::kNoItem;
      const Alike alike = lanes_alike(bucket);
      if (bucket != LengthTables::kNoItem && alike.is_first())
        atomicAdd(&counts[bucket], alike.count());
    }
    __syncthreads();
    if (threadIdx.x < kBuckets) list.counts[part * kBuckets + threadIdx.x] = counts[threadIdx.x];
  }
}

__device__ void place(const LengthTables& t, const LengthTables::List& list, const Team& team) {
  constexpr int kWarps = kTableThreads / kWarp;
  __shared__ int begins[kBuckets];
  __shared__ uint8_t of_warp[kWarps][kBuckets];             // of some turns, a warp's items
  const int warp = threadIdx.x / kWarp, own = threadIdx.x;  // a thread's bucket
  const auto count = [&](int parts) {                       // so many
    int sum = 0;
    if (own < kBuckets)
      for (int part = 0; part < parts; ++part) sum += list.counts[part * kBuckets + own];
    return sum;
  };
  const auto items = thd::block_sums<kTableThreads>(thd::Sums<int, 1>{{count(list.num_parts())}});
  if (team.block == 0 && threadIdx.x == 0) *list.num_items = items.total.of[0];
  const auto place_turns = [&](int turn, int end) {
    const int slot = turn < end ? list.slot_of_turn(turn) : -1;
    const int bucket = slot < 0 ? LengthTables::kNoItem : list.bucket_of_slot[slot];
    const bool has_item = bucket != LengthTables::kNoItem;
    const Alike alike = lanes_alike(bucket);
    if (has_item && alike.is_first()) of_warp[warp][bucket] = static_cast<uint8_t>(alike.count());
    __syncthreads();
    WorkItem item;
    int at = -1;
    if (has_item) {
      t.item_of(list, slot, list.segment_of_slot[slot], item);
      at = begins[bucket] + alike.before;
      for (int i = 0; i < warp; ++i) at += of_warp[i][bucket];
    }
    store_together(list.items, at, item);
  };
  for (int part = team.block; part < list.num_parts(); part += team.blocks) {
    const Interval turns = list.turns_of(part);
    int begin = items.before.of[0] + count(part);
    for (int turn = turns.begin; turn < turns.end; turn += kTableThreads) {
      __syncthreads();  // the places of those before are known
      if (own < kBuckets) begins[own] = begin;
      for (int i = own; i < kWarps * kBuckets; i += kTableThreads) (&of_warp[0][0])[i] = 0;
      __syncthreads();
      place_turns(turn + own, turns.end);
      if (own < kBuckets)
        for (int i = 0; i < kWarps; ++i) begin += of_warp[i][own];
    }
  }
}

// Blocks for the lists, of a grid whose others fill the buffers; one alone does both.
__device__ int blocks_of_lists(const LengthTables& t, int blocks) {
  const float slots = static_cast<float>(t.num_slots) * kCostOfSlot;
  const float rows = static_cast<float>(t.cp_size()) * (t.q.home.rows + t.k.home.rows) +
                     static_cast<float>(t.num_partners);
  return max(min(static_cast<int>(blocks * (slots / (slots + rows))), blocks - 1), 1);
}

__global__ void __launch_bounds__(kTableThreads, 1)
    fill_kernel(const __grid_constant__ LengthTables t, const __grid_constant__ DeviceLayout q,
                const __grid_constant__ DeviceLayout k) {
  const auto grid = cooperative_groups::this_grid();
  const int blocks = gridDim.x, block = blockIdx.x;
  const bool first = block == 0 && threadIdx.x == 0;
  add_up_chunks(t, q, k);
  clear(t, {block, blocks});
  grid.sync();
  if (*t.unfit != 0) {  // the same in every block
    add_up_chunks(t, {}, {});
    if (first) *t.status = 1;
    grid.sync();
  }
  fill_segments(t, {block, blocks});
  grid.sync();
  if (first) *t.unfit = 0;  // everybody has read it
  const int of_lists = blocks_of_lists(t, blocks);
  if (block < of_lists)
    Team{block, of_lists}.for_each_list(
        t, [&](const auto& list, const Team& team) { weigh(t, list, team); });
  if (blocks == 1)
    fill_buffers(t, {0, 1});
  else if (block >= of_lists)
    fill_buffers(t, {block - of_lists, blocks - of_lists});
  grid.sync();
  Team{block, blocks}.for_each_list(
      t, [&](const auto& list, const Team& team) { place(t, list, team); });
}

}  // namespace

void fill_length_tables(const LengthTables& tables, const DeviceLayout& q, const DeviceLayout& k,
                        cudaStream_t stream) {
  int device = 0, processors = 0;
  RINGSIDE_CUDA(cudaGetDevice(&device));
  RINGSIDE_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = processors;
  config.blockDim = kTableThreads;
  config.stream = stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  RINGSIDE_CUDA(cudaLaunchKernelEx(&config, fill_kernel, tables, q, k));
}

bool take_status(int32_t* on_device, cudaStream_t stream) {
  int32_t status = 0;
  RINGSIDE_CUDA(
      cudaMemcpyAsync(&status, on_device, sizeof(status), cudaMemcpyDeviceToHost, stream));
  RINGSIDE_CUDA(cudaMemsetAsync(on_device, 0, sizeof(status), stream));
  RINGSIDE_CUDA(cudaStreamSynchronize(stream));
  return status == 0;
}

}  // namespace ringside
