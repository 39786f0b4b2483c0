// Two kernels. entries_kernel: a thread has a sequence, finds its entries, learns from the sums
// over the threads before it where they belong, and writes them. For pieces and indices, of which a
// sequence may have many, the sums are written down first, and then every output has a thread.
#include <algorithm>

#include "optimized/cuda_error.h"
#include "optimized/thd/grid_scan.cuh"
#include "optimized/thd/metadata.h"

namespace ringside::thd {
namespace {

constexpr int kSumsOfStep = 3;  // entries, queries, keys

// --- entries

struct EntrySums {
  uint32_t entries, q, kv;
};

__device__ void write(const EntryArrays& out, uint32_t i, const StepEntry& entry, int sequence,
                      const EntrySums& before) {
  const auto capacity = static_cast<uint32_t>(out.capacity);
  if (i > capacity) return;
  out.cu_seqlens_q[i] = static_cast<int32_t>(before.q);
  out.cu_seqlens_kv[i] = static_cast<int32_t>(before.kv);
  out.cu_seqlens_q_padded[i] = entry.q_row;
  out.cu_seqlens_kv_padded[i] = entry.kv_row;
  if (i == capacity || out.sequence == nullptr) return;
  out.sequence[i] = sequence;
  out.seqused_q[i] = entry.q_len;
  out.seqused_k[i] = entry.kv_len;
  out.window_left[i] = entry.window_left();
  out.window_right[i] = entry.window_right();
}

template <int kSteps>
struct AllEntryArrays {
  EntryArrays of[kSteps];
};

template <typename Task, int kSums = 2 + kSumsOfStep* Task::kMostSteps>
__global__ void __launch_bounds__(kMetadataThreads)
    entries_kernel(const Task task, const AllEntryArrays<Task::kMostSteps> out,
                   uint32_t* of_blocks) {
  const Share share(task.batch());
  Sums<kSums> mine;
  for (int s = share.begin; s < share.end; ++s) {
    const LocalRows rows = task.rows(s);
    mine.of[0] += rows.q, mine.of[1] += rows.kv;
#pragma unroll
    for (int step = 0; step < Task::kMostSteps; ++step) {
      if (step == task.num_steps) break;
      typename Task::Walk walk(task, s, step, {});
      for (StepEntry entry; walk.next(entry);) {
        mine.of[2 + kSumsOfStep * step] += 1;
        mine.of[3 + kSumsOfStep * step] += entry.q_len;
        mine.of[4 + kSumsOfStep * step] += entry.kv_len;
      }
    }
  }
  GridSums<kSums> sums = grid_sums(mine, of_blocks);
  LocalRows before{sums.before.of[0], sums.before.of[1]};
  for (int s = share.begin; s < share.end; ++s) {
#pragma unroll
    for (int step = 0; step < Task::kMostSteps; ++step) {
      if (step == task.num_steps) break;
      uint32_t* const at = &sums.before.of[2 + kSumsOfStep * step];
      typename Task::Walk walk(task, s, step, before);
      for (StepEntry entry; walk.next(entry);) {
        write(out.of[step], at[0], entry, s, {at[0], at[1], at[2]});
        at[0] += 1, at[1] += entry.q_len, at[2] += entry.kv_len;
      }
    }
    const LocalRows rows = task.rows(s);
    before.q += rows.q, before.kv += rows.kv;
  }
  const GridStride stride;
#pragma unroll
  for (int step = 0; step < Task::kMostSteps; ++step) {
    if (step == task.num_steps) break;
    const uint32_t* total = &sums.total.of[2 + kSumsOfStep * step];
    const StepEntry none{static_cast<int>(sums.total.of[0]), 0, static_cast<int>(sums.total.of[1]),
                         0};
    for (int64_t i = total[0] + stride.first; i <= out.of[step].capacity; i += stride.step)
      write(out.of[step], static_cast<uint32_t>(i), none, -1, {total[0], total[1], total[2]});
    if (stride.first == 0 && out.of[step].count != nullptr)
      *out.of[step].count = static_cast<int32_t>(total[0]);
  }
}

// --- pieces and indices

// Sums over the sequences before each one, [batch] each, in the workspace.
struct Before {
  uint32_t *first, *second, *third;
};

__global__ void __launch_bounds__(kMetadataThreads)
    pieces_kernel(const PieceTask task, const PieceArrays out, const Before before,
                  uint32_t* of_blocks) {
  uint32_t *const piece_of = before.first, *const row_of = before.second;
  uint32_t* const token_of = before.third;
  const Share share(task.batch());
  Sums<3> mine;  // pieces, rows, tokens
  for (int s = share.begin; s < share.end; ++s) {
    const ChunkPieces cut = task.pieces(s);
    mine.of[0] += cut.count(), mine.of[1] += cut.rows.num_rows(), mine.of[2] += cut.valid;
  }
  GridSums<3> sums = grid_sums(mine, of_blocks);
  for (int s = share.begin; s < share.end; ++s) {
    const ChunkPieces cut = task.pieces(s);
    piece_of[s] = sums.before.of[0], row_of[s] = sums.before.of[1], token_of[s] = sums.before.of[2];
    sums.before.of[0] += cut.count(), sums.before.of[1] += cut.rows.num_rows();
    sums.before.of[2] += cut.valid;
  }
  cooperative_groups::this_grid().sync();
  const GridStride stride;
  for (int64_t i = stride.first; i <= out.capacity; i += stride.step) {
    uint32_t row = sums.total.of[1], token = sums.total.of[2];
    if (i < sums.total.of[0]) {
      const int s = last_at_or_before(piece_of, i, 0, task.batch() - 1);
      const int begin = task.pieces(s).piece(static_cast<int>(i - piece_of[s])).begin;
      row = row_of[s] + begin, token = token_of[s] + begin;
    }
    out.cu_seqlens[i] = static_cast<int32_t>(token);
    out.cu_seqlens_padded[i] = static_cast<int32_t>(row);
  }
  if (stride.first == 0) *out.count = static_cast<int32_t>(sums.total.of[0]);
}

__global__ void __launch_bounds__(kMetadataThreads)
    indices_kernel(const IndexTask task, const IndexArrays out, const Before before,
                   uint32_t* of_blocks) {
  uint32_t* const row_of = before.first;
  const Share share(task.batch());
  Sums<1> mine;
  for (int s = share.begin; s < share.end; ++s) mine.of[0] += task.chunk(s).local_rows(task.rank);
  GridSums<1> sums = grid_sums(mine, of_blocks);
  for (int s = share.begin; s < share.end; ++s) {
    row_of[s] = sums.before.of[0];
    sums.before.of[0] += task.chunk(s).local_rows(task.rank);
  }
  cooperative_groups::this_grid().sync();
  const GridStride stride;
  for (int64_t i = stride.first; i < out.capacity; i += stride.step) {
    out.rows[i] = -1;
    if (i >= sums.total.of[0]) continue;
    const int s = last_at_or_before(row_of, i, 0, task.batch() - 1);
    const int local = static_cast<int>(i - row_of[s]);
    out.rows[i] = static_cast<int32_t>(task.starts[s] + task.chunk(s).position({task.rank, local}));
  }
  if (stride.first == 0) *out.count = static_cast<int32_t>(sums.total.of[0]);
}

// --- launches

constexpr int64_t kMostSums = 2 + 2 * kSumsOfStep;

// As many blocks as there is work for and as can run at once.
template <typename Kernel>
int blocks_for(Kernel kernel, int64_t work) {
  int device = 0, processors = 0, on_each = 0;
  RINGSIDE_CUDA(cudaGetDevice(&device));
  RINGSIDE_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  RINGSIDE_CUDA(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&on_each, kernel, kMetadataThreads, 0));
  const int64_t wanted = (work + kMetadataThreads - 1) / kMetadataThreads;
  const int64_t most = std::min<int64_t>(kMostBlocks, int64_t{processors} * on_each);
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, most));
}

template <typename... Parameters, typename... Arguments>
void launch_together(void (*kernel)(Parameters...), int64_t work, cudaStream_t stream,
                     Arguments&&... arguments) {
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks_for(kernel, work)));
  config.blockDim = dim3(kMetadataThreads);
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = 1;
  RINGSIDE_CUDA(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
}

Before sums_before(uint32_t* workspace, int batch) {
  uint32_t* const first = workspace + kMostSums * kMostBlocks;
  return {first, first + batch, first + 2 * int64_t{batch}};
}

constexpr int64_t kOutputsOfThread = 4;

}  // namespace

int64_t metadata_workspace_size(int64_t batch) { return kMostSums * kMostBlocks + 3 * batch; }

template <bool kOneEntry>
void write_steps(const StepTask<kOneEntry>& task, const EntryArrays* out, uint32_t* workspace,
                 cudaStream_t stream) {
  AllEntryArrays<2> all;
  std::copy_n(out, task.num_steps, all.of);
  launch_together(entries_kernel<StepTask<kOneEntry>>, task.batch(), stream, task, all, workspace);
}
template void write_steps<true>(const StepTask<true>&, const EntryArrays*, uint32_t*, cudaStream_t);
template void write_steps<false>(const StepTask<false>&, const EntryArrays*, uint32_t*,
                                 cudaStream_t);

void write_pairs(const PairTask& task, const EntryArrays& out, uint32_t* workspace,
                 cudaStream_t stream) {
  launch_together(entries_kernel<PairTask>, task.batch(), stream, task, AllEntryArrays<1>{{out}},
                  workspace);
}

void write_pieces(const PieceTask& task, const PieceArrays& out, uint32_t* workspace,
                  cudaStream_t stream) {
  const int64_t work = std::max<int64_t>(task.batch(), out.capacity / kOutputsOfThread);
  launch_together(pieces_kernel, work, stream, task, out, sums_before(workspace, task.batch()),
                  workspace);
}

void write_indices(const IndexTask& task, const IndexArrays& out, uint32_t* workspace,
                   cudaStream_t stream) {
  const int64_t work = std::max<int64_t>(task.batch(), out.capacity / kOutputsOfThread);
  launch_together(indices_kernel, work, stream, task, out, sums_before(workspace, task.batch()),
                  workspace);
}

}  // namespace ringside::thd
