#include <cooperative_groups.h>

#include <algorithm>
#include <cub/block/block_scan.cuh>

#include "optimized/cuda_error.h"
#include "optimized/fill_length_tables.h"

namespace ringside {
namespace {

constexpr int kThreads = 512, kWarp = 32;
constexpr int kSequencesOfThread = 4;

// Adds 1 for every lane that names the counter, in one atomic; returns a lane's turn.
__device__ int count_up(int32_t* counters, int counter) {
  const unsigned active = __activemask(), same = __match_any_sync(active, counter);
  const unsigned lane = threadIdx.x % kWarp, leader = __ffs(static_cast<int>(same)) - 1;
  int begin = 0;
  if (lane == leader) begin = atomicAdd(&counters[counter], __popc(same));
  return __shfl_sync(same, begin, static_cast<int>(leader)) + __popc(same & ((1u << lane) - 1));
}

// Some blocks of the grid that share work.
struct Team {
  int block, blocks;

  template <typename Visit>
  __device__ void for_each(int count, Visit visit) const {
    for (int64_t i = int64_t{block} * kThreads + threadIdx.x; i < count;
         i += int64_t{blocks} * kThreads)
      visit(static_cast<int>(i));
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

struct GivenSide {  // the caller's arrays; sequences behind the last are empty ones at its end
  const int32_t *cu_seqlens, *padded;
  int batch;

  __device__ int32_t at(const int32_t* offsets, int s) const {
    return batch == 0 ? 0 : offsets[s < batch ? s : batch];
  }
  __device__ LengthTables::Offsets of(int s) const {
    return {at(cu_seqlens, s), at(cu_seqlens, s + 1), at(padded, s), at(padded, s + 1)};
  }
};

// Prefix sums of one rank's rows over the sequences, some consecutive ones a thread; one block.
// Returns whether they fit; if not, what was filled means nothing.
__device__ bool fill_home(const LengthTables& t, const LengthTables::Side& x,
                          const GivenSide& given, int rank) {
  using Scan = cub::BlockScan<int, kThreads>;
  __shared__ typename Scan::TempStorage scan;
  const int num_rows = given.at(given.padded, given.batch);
  bool fit = true;
  int before = 0;
  for (int begin = 0; begin < t.max_batch; begin += kThreads * kSequencesOfThread) {
    const int first = begin + threadIdx.x * kSequencesOfThread;
    Segment part[kSequencesOfThread][2];
    int rows[kSequencesOfThread] = {}, sum = 0;
#pragma unroll
    for (int i = 0; i < kSequencesOfThread; ++i) {
      const int s = first + i;
      const LengthTables::Offsets o = given.of(s);
      if (s >= t.max_batch) continue;
      fit &= t.fits(x, s, o);
      rows[i] = t.home_segments(rank, s, o.row_begin, o.row_end, num_rows, part[i]);
      if (rank != 0) continue;
      x.cu_seqlens[s] = o.begin, x.cu_seqlens_padded[s] = o.row_begin;
      if (s + 1 == t.max_batch) x.cu_seqlens[s + 1] = o.end, x.cu_seqlens_padded[s + 1] = o.row_end;
    }
    Scan(scan).ExclusiveSum(rows, rows, sum);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSequencesOfThread; ++i)
      if (const int s = first + i; s < t.max_batch) t.store(x, rank, s, before + rows[i], part[i]);
    before += sum;
  }
  return __syncthreads_and(fit);
}

__device__ void fill_home_if_it_fits(const LengthTables& t, const LengthTables::Side& x,
                                     const GivenSide& given, int rank) {
  if (fill_home(t, x, given, rank)) return;
  if (threadIdx.x == 0) *t.status = 1;
  fill_home(t, x, {given.cu_seqlens, given.padded, 0}, rank);
}

__device__ void clear(const LengthTables& t, const Team& team) {
  for (const LengthTables::Side* x : {&t.q, &t.k}) {
    team.for_each(x->home_rows, [&](int i) { x->global_of_home[i] = kNobody; });
    team.for_each(x->max_rows, [&](int i) { x->home_of_global[i] = kNobody; });
  }
  team.for_each(t.num_lists * LengthTables::kBuckets, [&](int i) {
    const LengthTables::List& list = t.lists[i / LengthTables::kBuckets];
    list.counts[i % LengthTables::kBuckets] = 0;
    list.cursors[i % LengthTables::kBuckets] = 0;
  });
}

__device__ void fill_buffers(const LengthTables& t, const Team& team) {
  for (const LengthTables::Side* x : {&t.q, &t.k})
    team.for_each(t.partition.cp_size * x->rank_rows,
                  [&](int i) { t.map_row(*x, i / x->rank_rows, i % x->rank_rows); });
  for (int b = 0; b < t.num_buffers; ++b)
    team.for_each(t.num_partners(t.buffers[b]), [&](int i) { t.fill_partner(t.buffers[b], i); });
}

__device__ void weigh(const LengthTables& t, const LengthTables::List& list, const Team& team) {
  team.for_each(list.num_slots(), [&](int slot) {
    WorkItem item;
    int bucket = LengthTables::kNoItem;
    if (t.item_of(list, slot, item)) bucket = t.bucket_of(t.weight_of(list, slot, item));
    list.bucket_of_slot[slot] = static_cast<uint8_t>(bucket);
    if (bucket == LengthTables::kNoItem) return;
    list.item_of_slot[slot] = item;
    count_up(list.counts, bucket);
  });
}

// Where each bucket of a list begins, in shared memory.
__device__ void add_up(const LengthTables::List& list, int (&begins)[LengthTables::kBuckets]) {
  constexpr int kOwn = LengthTables::kBuckets / kWarp;
  __syncthreads();  // the list before is done with
  if (threadIdx.x < kWarp) {
    int own[kOwn], sum = 0;
    for (int i = 0; i < kOwn; ++i) own[i] = list.counts[threadIdx.x * kOwn + i], sum += own[i];
    int end = sum;
    for (int lanes = 1; lanes < kWarp; lanes *= 2) {
      const int left = __shfl_up_sync(~0u, end, lanes);
      if (threadIdx.x >= lanes) end += left;
    }
    int begin = end - sum;
    for (int i = 0; i < kOwn; ++i) begins[threadIdx.x * kOwn + i] = begin, begin += own[i];
    if (threadIdx.x == kWarp - 1) *list.num_items = end;
  }
  __syncthreads();
}

__device__ void place(const LengthTables::List& list, const Team& team) {
  __shared__ int begins[LengthTables::kBuckets];
  add_up(list, begins);
  team.for_each(list.num_slots(), [&](int slot) {
    const int bucket = list.bucket_of_slot[slot];
    if (bucket != LengthTables::kNoItem)
      list.items[begins[bucket] + count_up(list.cursors, bucket)] = list.item_of_slot[slot];
  });
}

__global__ void __launch_bounds__(kThreads, 1)
    fill_kernel(const __grid_constant__ LengthTables t,
                const __grid_constant__ DeviceLengths given) {
  const auto grid = cooperative_groups::this_grid();
  const int blocks = gridDim.x, block = blockIdx.x, ranks = t.partition.cp_size;
  for (int i = block; i < 2 * ranks; i += blocks) {
    if (i < ranks)
      fill_home_if_it_fits(t, t.q, {given.cu_seqlens_q, given.cu_seqlens_q_padded, given.batch}, i);
    else
      fill_home_if_it_fits(t, t.k, {given.cu_seqlens_k, given.cu_seqlens_k_padded, given.batch},
                           i - ranks);
  }
  clear(t, {block, blocks});
  grid.sync();
  if (block % 2 == 0)
    fill_buffers(t, {block / 2, (blocks + 1) / 2});
  else
    Team{block / 2, blocks / 2}.for_each_list(
        t, [&](const auto& list, const Team& team) { weigh(t, list, team); });
  grid.sync();
  Team{block, blocks}.for_each_list(t,
                                    [&](const auto& list, const Team& team) { place(list, team); });
}

}  // namespace

void fill_length_tables(const LengthTables& tables, const DeviceLengths& lengths,
                        cudaStream_t stream) {
  int device = 0, processors = 0;
  RINGSIDE_CUDA(cudaGetDevice(&device));
  RINGSIDE_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = processors;
  config.blockDim = kThreads;
  config.stream = stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  RINGSIDE_CUDA(cudaLaunchKernelEx(&config, fill_kernel, tables, lengths));
}

}  // namespace ringside
