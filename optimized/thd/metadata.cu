// Two kernels. In both a thread has a sequence, and the sums over the threads before it say where
// what comes of it belongs. entries_kernel: the thread writes the entries of its sequence, of which
// there are few. lists_kernel: a sequence may have many pieces or rows, so all blocks of its group
// write them, a thread each. Loops stay loops: these kernels run once, through code that no cache
// holds yet.
#include <algorithm>

#include "optimized/device/error.h"
#include "optimized/device/grid_scan.cuh"
#include "optimized/tables/thd/offsets.h"
#include "optimized/thd/metadata.h"

namespace ringside::thd {
namespace {

template <int kSums>
__device__ void add(Sums<uint32_t, kSums>& sums, const Sums<uint32_t, kSums>& more) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums.of[i] += more.of[i];
}

// --- entries

// Over the entries before one in its step, and over the sequences before its own.
struct Before {
  uint32_t &entries, &q, &kv;
  uint32_t q_rows, kv_rows;
};

__device__ void write(const EntryArrays& out, const StepEntry& entry, int sequence,
                      const Before& before) {
  const uint32_t i = before.entries, capacity = static_cast<uint32_t>(out.capacity);
  if (i > capacity) return;
  out.cu_seqlens_q[i] = static_cast<int32_t>(before.q);
  out.cu_seqlens_kv[i] = static_cast<int32_t>(before.kv);
  out.cu_seqlens_q_padded[i] = static_cast<int32_t>(before.q_rows + entry.q_row);
  out.cu_seqlens_kv_padded[i] = static_cast<int32_t>(before.kv_rows + entry.kv_row);
  if (i == capacity || out.sequence == nullptr) return;
  out.sequence[i] = sequence;
  out.seqused_q[i] = entry.q_len;
  out.seqused_k[i] = entry.kv_len;
  out.window_left[i] = entry.window_left();
  out.window_right[i] = entry.window_right();
}

__device__ void append(const EntryArrays& out, const StepEntry& entry, int sequence,
                       const Before& before) {
  write(out, entry, sequence, before);
  before.entries += 1, before.q += entry.q_len, before.kv += entry.kv_len;
}

template <int kSteps>
struct AllEntryArrays {
  EntryArrays of[kSteps];
};

// Sums over sequences: rows of q and of kv, then for each step entries, queries and keys.
constexpr int kSumsOfRows = 2, kSumsOfStep = 3;
template <int kSums>
__device__ Before before_in(Sums<uint32_t, kSums>& sums, int step) {
  uint32_t* const of_step = &sums.of[kSumsOfRows + kSumsOfStep * step];
  return {of_step[0], of_step[1], of_step[2], sums.of[0], sums.of[1]};
}

template <typename Task, int kSteps, int kSums = kSumsOfRows + kSumsOfStep* kSteps>
__global__ void __launch_bounds__(kMetadataThreads)
    entries_kernel(const Task task, const AllEntryArrays<kSteps> out, uint32_t* of_groups) {
  constexpr int kKept = Task::kOneEntry ? 1 : 4;  // entries that need not be found again
  StepEntry kept[kSteps][kKept];
  const Share share(task.batch(), threadIdx.x);
  const auto add_rows = [&](Sums<uint32_t, kSums>& sums, int s) {
    const LocalRows rows = task.rows(s);
    sums.of[0] += rows.q, sums.of[1] += rows.kv;
  };
  Sums<uint32_t, kSums> mine;
#pragma unroll 1
  for (int s = share.begin; s < share.end; ++s) {
    add_rows(mine, s);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const Before sums = before_in(mine, step);
      typename Task::Walk walk(task, s, step);
      StepEntry entry;
#pragma unroll 1
      for (int k = 0; walk.next(entry); ++k) {
        if (k < kKept) kept[step][kKept == 1 ? 0 : k] = entry;
        sums.entries += 1, sums.q += entry.q_len, sums.kv += entry.kv_len;
      }
    }
  }
  SumsAt<uint32_t, kSums> at = grid_sums(mine, of_groups);
#pragma unroll 1
  for (int s = share.begin; s < share.end; ++s) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const Before before = before_in(at.before, step);
      const int count = static_cast<int>(before_in(mine, step).entries);
      if (share.size() == 1 && count <= kKept) {
#pragma unroll 1
        for (int k = 0; k < count; ++k)
          append(out.of[step], kept[step][kKept == 1 ? 0 : k], s, before);
        continue;
      }
      typename Task::Walk walk(task, s, step);
#pragma unroll 1
      for (StepEntry entry; walk.next(entry);) append(out.of[step], entry, s, before);
    }
    add_rows(at.before, s);
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const GridStride stride;
    const Before end = before_in(at.total, step);
    const uint32_t count = end.entries;
    if (stride.first == 0 && out.of[step].count != nullptr)
      *out.of[step].count = static_cast<int32_t>(count);
#pragma unroll 1
    for (int64_t i = count + stride.first; i <= out.of[step].capacity; i += stride.step) {
      end.entries = static_cast<uint32_t>(i);
      write(out.of[step], {}, -1, end);
    }
  }
}

// --- lists

struct PieceLists {
  static constexpr int kSums = 3;  // pieces, rows, tokens
  PieceTask task;
  PieceArrays out;

  int64_t room() const { return int64_t{out.capacity} + 1; }
  __device__ Sums<uint32_t, 3> sums(int s) const {
    const ChunkPieces cut = task.pieces(s);
    return {{static_cast<uint32_t>(cut.count()), static_cast<uint32_t>(cut.rows.num_rows()),
             static_cast<uint32_t>(cut.valid)}};
  }
  __device__ void write(int64_t i, int s, const Sums<uint32_t, 3>& before) const {
    const int begin = task.pieces(s).piece(static_cast<int>(i - before.of[0])).begin;
    write_end(i, {{0, before.of[1] + begin, before.of[2] + begin}});
  }
  __device__ void write_end(int64_t i, const Sums<uint32_t, 3>& before) const {
    out.cu_seqlens_padded[i] = static_cast<int32_t>(before.of[1]);
    out.cu_seqlens[i] = static_cast<int32_t>(before.of[2]);
  }
};

struct IndexLists {
  static constexpr int kSums = 1;  // local rows
  IndexTask task;
  IndexArrays out;

  int64_t room() const { return out.capacity; }
  __device__ Sums<uint32_t, 1> sums(int s) const {
    return {{static_cast<uint32_t>(task.runs(s).num_rows())}};
  }
  __device__ void write(int64_t i, int s, const Sums<uint32_t, 1>& before) const {
    const int position = task.runs(s).position_at(static_cast<int>(i - before.of[0]));
    out.rows[i] = static_cast<int32_t>(static_cast<uint32_t>(task.starts[s]) + position);
  }
  __device__ void write_end(int64_t i, const Sums<uint32_t, 1>&) const { out.rows[i] = -1; }
};

// By thread of a block, with the end of the last one.
template <int kSums>
struct SumsOfThreads {
  Sums<uint32_t, kSums> before[kMetadataThreads + 1];
  __device__ uint32_t operator[](int thread) const { return before[thread].of[0]; }
};

template <typename Lists>
__device__ void write_item(const Lists& lists, int64_t i, int thread,
                           Sums<uint32_t, Lists::kSums> before) {
  const Share share(lists.task.batch(), thread);
#pragma unroll 1
  for (int s = share.begin; s < share.end; ++s) {
    const auto of_sequence = lists.sums(s);
    if (i < int64_t{before.of[0]} + of_sequence.of[0]) return lists.write(i, s, before);
    add(before, of_sequence);
  }
}

template <typename Lists>
__global__ void __launch_bounds__(kMetadataThreads)
    lists_kernel(const Lists lists, const int64_t room, uint32_t* of_groups) {
  __shared__ SumsOfThreads<Lists::kSums> first;
  const int thread = threadIdx.x;
  const Share share(lists.task.batch(), thread);
  Sums<uint32_t, Lists::kSums> mine;
#pragma unroll 1
  for (int s = share.begin; s < share.end; ++s) add(mine, lists.sums(s));
  const auto at = grid_sums(mine, of_groups);
  first.before[thread] = at.before;
  if (thread == kMetadataThreads - 1) add(mine, at.before), first.before[thread + 1] = mine;
  __syncthreads();
  const int64_t end = min(int64_t{first[kMetadataThreads]}, room);
  const int64_t part = int64_t{blockIdx.y} * kMetadataThreads + thread;
#pragma unroll 1
  for (int64_t i = first[0] + part; i < end; i += int64_t{gridDim.y} * kMetadataThreads) {
    const int of = last_at_or_before(first, i, 0, kMetadataThreads - 1);
    write_item(lists, i, of, first.before[of]);
  }
  const GridStride stride;
#pragma unroll 1
  for (int64_t i = at.total.of[0] + stride.first; i < room; i += stride.step)
    lists.write_end(i, at.total);
  if (stride.first == 0) *lists.out.count = static_cast<int32_t>(at.total.of[0]);
}

// --- launches

// As many blocks as can run at once.
template <typename Kernel>
int most_blocks(Kernel kernel) {
  int device = 0, processors = 0, on_each = 0;
  RINGSIDE_CUDA(cudaGetDevice(&device));
  RINGSIDE_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  RINGSIDE_CUDA(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&on_each, kernel, kMetadataThreads, 0));
  return processors * on_each;
}

int blocks_for(int64_t work, int64_t most) {
  return static_cast<int>(std::clamp<int64_t>((work + kMetadataThreads - 1) / kMetadataThreads, 1,
                                              std::max<int64_t>(most, 1)));
}

template <typename... Parameters, typename... Arguments>
void launch_groups(void (*kernel)(Parameters...), dim3 grid, cudaStream_t stream,
                   Arguments&&... arguments) {
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(kMetadataThreads);
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = grid.x > 1 ? 1 : 0;
  RINGSIDE_CUDA(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
}

template <int kSteps, typename Task>
void write_entries(const Task& task, const EntryArrays* out, uint32_t* workspace,
                   cudaStream_t stream) {
  AllEntryArrays<kSteps> all;
  std::copy_n(out, kSteps, all.of);
  const auto kernel = entries_kernel<Task, kSteps>;
  const int groups = blocks_for(task.batch(), std::min(most_blocks(kernel), kMostGroups));
  launch_groups(kernel, dim3(groups), stream, task, all, workspace);
}

template <typename Lists>
void write_lists(const Lists& lists, uint32_t* workspace, cudaStream_t stream) {
  constexpr int kItemsOfThread = 2;
  const auto kernel = lists_kernel<Lists>;
  const int most = most_blocks(kernel);
  const int groups = blocks_for(lists.task.batch(), std::min(most, kMostGroups));
  const int parts = blocks_for(lists.room() / (int64_t{groups} * kItemsOfThread), most / groups);
  launch_groups(kernel, dim3(groups, parts), stream, lists, lists.room(), workspace);
}

}  // namespace

int64_t metadata_workspace_size() { return int64_t{kSumsOfRows + 2 * kSumsOfStep} * kMostGroups; }

template <bool kOneEntry>
void write_steps(const StepTask<kOneEntry>& task, std::span<const EntryArrays> out,
                 uint32_t* workspace, cudaStream_t stream) {
  if (out.size() == 1)
    write_entries<1>(task, out.data(), workspace, stream);
  else
    write_entries<2>(task, out.data(), workspace, stream);
}
template void write_steps<true>(const StepTask<true>&, std::span<const EntryArrays>, uint32_t*,
                                cudaStream_t);
template void write_steps<false>(const StepTask<false>&, std::span<const EntryArrays>, uint32_t*,
                                 cudaStream_t);

void write_pairs(const PairTask& task, const EntryArrays& out, uint32_t* workspace,
                 cudaStream_t stream) {
  write_entries<1>(task, &out, workspace, stream);
}

void write_pieces(const PieceTask& task, const PieceArrays& out, uint32_t* workspace,
                  cudaStream_t stream) {
  write_lists(PieceLists{task, out}, workspace, stream);
}

void write_indices(const IndexTask& task, const IndexArrays& out, uint32_t* workspace,
                   cudaStream_t stream) {
  write_lists(IndexLists{task, out}, workspace, stream);
}

}  // namespace ringside::thd
