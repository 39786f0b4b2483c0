#include <algorithm>

#include "optimized/device/error.h"
#include "optimized/ranks/own_rows.h"

namespace ringside {
namespace {

constexpr int kCutThreads = 256, kMostCuts = 64;

__global__ void cut_kernel(const __grid_constant__ LengthTables t, const OwnRows* own) {
  const OwnRows mine = own[blockIdx.y];
  const int rows = t.side(mine.side).home.rows;
  for (int row = blockIdx.x * kCutThreads + threadIdx.x; row < rows; row += gridDim.x * kCutThreads)
    mine.fill(t, row);
}

}  // namespace

void cut_own_rows(const LengthTables& tables, const OwnRows* own, int count, cudaStream_t stream) {
  if (count == 0) return;
  const int rows = std::max(tables.q.home.rows, tables.k.home.rows);
  const dim3 grid(std::min((rows + kCutThreads - 1) / kCutThreads, kMostCuts), count);
  cut_kernel<<<grid, kCutThreads, 0, stream>>>(tables, own);
  RINGSIDE_CUDA(cudaGetLastError());
}

}  // namespace ringside
