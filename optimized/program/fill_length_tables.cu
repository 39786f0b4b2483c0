#include <cooperative_groups.h>

#include <algorithm>
#include <cstring>

#include "optimized/device/block_scan.cuh"
#include "optimized/device/error.h"
#include "optimized/program/fill_length_tables.h"
#include "optimized/tables/heads_at_a_time.h"
#include "optimized/tables/sums/documents_ahead.h"

namespace ringside {
namespace {

constexpr int kTableThreads = LengthTables::kChunk, kWarp = 32;
constexpr int kBuckets = LengthTables::kBuckets;
constexpr int kRowsOfThread = 4;
constexpr int kCostOfSlot = 2;  // in rows that are mapped

constexpr int kMostWords = sizeof(WorkItem) / sizeof(int32_t) | 1;

// Of shared memory, a warp's: so many a lane.
__device__ int32_t* words_of_warp() {
  __shared__ int32_t words[kTableThreads / kWarp][kWarp * kMostWords];
  return words[threadIdx.x / kWarp];
}

// Stores a value for each lane of a warp at to[place], of none where place < 0. The warp writes all
// of their words in turn: values side by side make full sectors.
template <typename T>
__device__ void store_together(T* to, int place, const T& value) {
  constexpr int kWords = sizeof(T) / sizeof(int32_t), kStride = kWords | 1;  // no bank conflicts
  static_assert(kStride <= kMostWords);
  int32_t* words = words_of_warp();
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

// Copies the lengths of a chunk of sequences, and looks whether they fit, and how long they are.
__device__ void take_chunk(const LengthTables& t, const LengthTables::Side& x,
                           const DeviceLayout& given, int chunk) {
  const int s = chunk * kTableThreads + static_cast<int>(threadIdx.x);
  const LengthTables::Bounds o = s < t.max_batch ? t.bounds(given, s) : LengthTables::Bounds{};
  const int longest = __reduce_max_sync(~0u, o.end - o.begin);
  if (&x == &t.k && threadIdx.x % kWarp == 0) atomicMax(t.longest_keys, longest);
  if (s >= t.max_batch) return;
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

// Lanes of a warp whose items have the same bucket, and which of them begin segments.
struct Alike {
  unsigned lanes, firsts;

  __device__ bool is_leader() const { return threadIdx.x % kWarp == __ffs(lanes) - 1; }
  __device__ int count(int kind) const { return __popc(of(kind)); }
  // Up to this lane, itself included.
  __device__ int count_through(int kind) const {
    return __popc(of(kind) & (~0u >> (kWarp - 1 - threadIdx.x % kWarp)));
  }

 private:
  __device__ unsigned of(int kind) const { return kind == 0 ? lanes : firsts; }
};
__device__ inline Alike lanes_alike(int bucket, const WorkItem& item) {
  const unsigned lanes = __match_any_sync(~0u, bucket);
  return {lanes, lanes & __ballot_sync(~0u, item.begin == 0)};
}

constexpr int kKinds = 2, kCounts = kKinds * kBuckets;  // all items, and those that begin segments

// The bucket of every slot, and how many items of each bucket a part of the turns has.
__device__ void weigh(const LengthTables& t, const LengthTables::List& list, const Team& team) {
  __shared__ int counts[kKinds][kBuckets];
  int* const own = threadIdx.x < kCounts ? &counts[0][threadIdx.x] : nullptr;
  const auto weigh_slot = [&](int slot, WorkItem& item) {
    int bucket = LengthTables::kNoItem;
    const int segment = t.segment_of(list, slot);
    if (t.item_of(list, slot, segment, item)) bucket = t.bucket_of_item(list, slot, item);
    list.segment_of_slot[slot] = segment;
    list.bucket_of_slot[slot] = static_cast<uint8_t>(bucket);
    return bucket;
  };
  for (int part = team.block; part < list.num_parts(); part += team.blocks) {
    const Interval turns = list.turns_of(part);
    if (own != nullptr) *own = 0;
    __syncthreads();
    for (int begin = turns.begin; begin < turns.end; begin += kTableThreads) {
      const int turn = begin + static_cast<int>(threadIdx.x);
      WorkItem item;
      const int bucket =
          turn < turns.end ? weigh_slot(list.slot_of_turn(turn), item) : LengthTables::kNoItem;
      const Alike alike = lanes_alike(bucket, item);
      if (bucket != LengthTables::kNoItem && alike.is_leader())
        for (int kind = 0; kind < kKinds; ++kind)
          atomicAdd(&counts[kind][bucket], alike.count(kind));
    }
    __syncthreads();
    if (own != nullptr) list.counts[part * kCounts + threadIdx.x] = *own;
  }
}

__device__ void place(const LengthTables& t, const LengthTables::List& list, const Team& team) {
  constexpr int kWarps = kTableThreads / kWarp;
  __shared__ int begins[kKinds][kBuckets];
  __shared__ uint8_t of_warp[kWarps][kKinds][kBuckets];  // of some turns, a warp's
  const int warp = threadIdx.x / kWarp, own = threadIdx.x, kind = own / kBuckets;
  const auto count = [&](int parts) {  // so many, of what a thread counts
    int sum = 0;
    if (own < kCounts)
      for (int part = 0; part < parts; ++part) sum += list.counts[part * kCounts + own];
    return sum;
  };
  const int all = count(list.num_parts());
  const auto sums = thd::block_sums<kTableThreads>(
      thd::Sums<int, kKinds>{{kind == 0 ? all : 0, kind == 1 ? all : 0}});
  const int num_items = sums.total.of[0], num_firsts = sums.total.of[1];
  const DocumentsAhead order{list.documents_ahead, num_firsts};
  if (team.block == 0 && own == 0) *list.num_items = num_items;
  if (team.block == 0 && own == 0 && order.ahead > 0) *list.num_firsts = num_firsts;
  const auto place_turns = [&](int turn, int end) {
    const int slot = turn < end ? list.slot_of_turn(turn) : -1;
    const int bucket = slot < 0 ? LengthTables::kNoItem : list.bucket_of_slot[slot];
    const bool has_item = bucket != LengthTables::kNoItem;
    WorkItem item;
    if (has_item) t.item_of(list, slot, list.segment_of_slot[slot], item);
    const Alike alike = lanes_alike(bucket, item);
    if (has_item && alike.is_leader())
      for (int i = 0; i < kKinds; ++i)
        of_warp[warp][i][bucket] = static_cast<uint8_t>(alike.count(i));
    __syncthreads();
    const auto through = [&](int i) {  // how many come up to this item, itself included
      int sum = begins[i][bucket] + alike.count_through(i);
      for (int before = 0; before < warp; ++before) sum += of_warp[before][i][bucket];
      return sum;
    };
    int at = has_item ? through(0) - 1 : -1;
    if (has_item && order.ahead > 0) {
      const int document = through(1) - 1;
      if (item.begin == 0) {
        list.first_slots[document] = slot, list.first_places[document] = at;
        at = -1;  // once all of these are known
      } else {
        at = order.of_other(document, at);
      }
    }
    store_together(list.items, at, item);
  };
  const int before = kind == 0 ? sums.before.of[0] : sums.before.of[1];
  for (int part = team.block; part < list.num_parts(); part += team.blocks) {
    const Interval turns = list.turns_of(part);
    int begin = before + count(part);
    for (int turn = turns.begin; turn < turns.end; turn += kTableThreads) {
      __syncthreads();  // the places of those before are known
      if (own < kCounts) (&begins[0][0])[own] = begin;
      for (int i = own; i < kWarps * kCounts; i += kTableThreads) (&of_warp[0][0][0])[i] = 0;
      __syncthreads();
      place_turns(turn + own, turns.end);
      if (own < kCounts)
        for (int i = 0; i < kWarps; ++i) begin += (&of_warp[i][0][0])[own];
    }
  }
}

// Of a list that puts them ahead, the items that begin documents.
__device__ void place_firsts(const LengthTables& t, const LengthTables::List& list,
                             const Team& team) {
  if (list.documents_ahead == 0) return;
  const DocumentsAhead order{list.documents_ahead, *list.num_firsts};
  team.for_each_of_warps(order.documents, [&](int document) {
    WorkItem item;
    int at = -1;
    if (document >= 0) {
      const int slot = list.first_slots[document];
      t.item_of(list, slot, list.segment_of_slot[slot], item);
      at = order.of_first(document, list.first_places);
    }
    store_together(list.items, at, item);
  });
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
    if (first) *t.status = 1, *t.longest_keys = 0;
    grid.sync();
  }
  fill_segments(t, {block, blocks});
  grid.sync();
  if (first) {
    *t.unfit = 0;  // everybody has read it
    const int of_rank = (*t.longest_keys + t.cp_size() - 1) / t.cp_size();
    *t.most_heads = heads_of_documents(of_rank, t.group_size, t.in_part);
    *t.longest_keys = 0;
  }
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
  if (!t.has_firsts_ahead) return;
  grid.sync();
  Team{block, blocks}.for_each_list(
      t, [&](const auto& list, const Team& team) { place_firsts(t, list, team); });
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
