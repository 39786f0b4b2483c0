// Boxes of ragged tensor maps on the device: what is loaded, stored and added lies in the rows that
// the caller names, and nowhere else. Skips without a device of compute capability 9.0.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "optimized/attention/hopper/machine/bulk_tensor.h"
#include "optimized/attention/hopper/machine/tensor_map.h"
#include "optimized/device/error.h"
#include "optimized/device/memory.h"
#include "optimized/device/properties.h"

namespace ringside::hopper {
namespace {

constexpr int kFloats = kSwizzledBytes / sizeof(float);  // columns of a box of float32
constexpr int kBoxCells = kBoxRows * kFloats;

enum class Move { load, store, add };

// One box between a map and `cells`, which are in order of rows.
__global__ void move_box(const __grid_constant__ CUtensorMap map, Move move, BoxCoordinates at,
                         float* cells) {
  __shared__ alignas(1024) float box[kBoxCells];
  __shared__ Barrier landed;
  if (threadIdx.x == 0) init(landed, 1), publish_barriers();
  const auto cell = [&](int i) -> float& {
    const int row = i / kFloats, column = i % kFloats;
    return box[swizzled(row, column / 4) / sizeof(float) + column % 4];
  };
  for (int i = threadIdx.x; i < kBoxCells; i += blockDim.x)
    cell(i) = move == Move::load ? NAN : cells[i];
  show_to_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (move == Move::load) {
      arrive_and_expect(landed, sizeof(box));
      load_box(shared_address(box), map, at, landed);
    } else {
      if (move == Move::store)
        store_box(map, at, shared_address(box));
      else
        add_box(map, at, shared_address(box));
      commit_stores();
      wait_until_stored<0>();
    }
  }
  if (move != Move::load) return;
  wait(landed, 0);
  for (int i = threadIdx.x; i < kBoxCells; i += blockDim.x) cells[i] = cell(i);
}

struct Buffer {  // [rows, heads, dim] float32, with room between rows and between heads
  int rows, heads, dim, gap;
  int64_t head_stride() const { return dim + gap; }
  int64_t row_stride() const { return heads * head_stride() + 2 * gap; }
  int64_t cells() const { return rows * row_stride(); }
  int64_t at(int row, int head, int column) const {
    return row * row_stride() + head * head_stride() + column;
  }
};

class Boxes : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
      GTEST_SKIP() << "no CUDA device";
    if (properties_of(current_device()).compute_capability != 90) GTEST_SKIP() << "no Hopper GPU";
    if (!driver_makes_maps()) GTEST_SKIP() << "a driver without tensor maps";
  }

  // Every cell of the buffer after one box has been moved, and the box.
  struct Moved {
    std::vector<float> buffer, box;
  };
  static Moved move(const Buffer& b, Move how, int head, int column, int row, int valid) {
    Moved all;
    for (int64_t i = 0; i < b.cells(); ++i) all.buffer.push_back(static_cast<float>(i % 1021));
    for (int i = 0; i < kBoxCells; ++i) all.box.push_back(static_cast<float>(2000 + i));
    const int64_t bytes = b.cells() * 4, box_bytes = kBoxCells * 4;
    const DeviceMemory buffer(bytes), box(box_bytes);
    RINGSIDE_CUDA(cudaMemcpy(buffer.data(), all.buffer.data(), bytes, cudaMemcpyHostToDevice));
    RINGSIDE_CUDA(cudaMemcpy(box.data(), all.box.data(), box_bytes, cudaMemcpyHostToDevice));
    CUtensorMap map{};
    EXPECT_TRUE(make_map(map, {buffer.data(), b.row_stride(), b.head_stride(), b.rows},
                         {ElementType::float32, b.dim, b.heads}));
    move_box<<<1, 128>>>(map, how, ragged_box(column, head, row, valid),
                         reinterpret_cast<float*>(box.data()));
    RINGSIDE_CUDA(cudaDeviceSynchronize());
    RINGSIDE_CUDA(cudaMemcpy(all.buffer.data(), buffer.data(), bytes, cudaMemcpyDeviceToHost));
    RINGSIDE_CUDA(cudaMemcpy(all.box.data(), box.data(), box_bytes, cudaMemcpyDeviceToHost));
    return all;
  }

  static void expect_moved(const Buffer& b, Move how, int head, int column, int row, int valid) {
    const Moved moved = move(b, how, head, column, row, valid);
    std::vector<float> want(b.cells());
    for (int64_t i = 0; i < b.cells(); ++i) want[i] = static_cast<float>(i % 1021);
    for (int r = 0; r < kBoxRows; ++r)
      for (int c = 0; c < kFloats; ++c) {
        const bool there = r < valid && column + c < b.dim;
        const float in_box = static_cast<float>(2000 + r * kFloats + c);
        float* cell = there ? &want[b.at(row + r, head, column + c)] : nullptr;
        if (how == Move::load) {
          ASSERT_EQ(moved.box[r * kFloats + c], there ? *cell : 0)
              << "row " << r << " column " << c;
        } else if (there) {
          *cell = how == Move::store ? in_box : *cell + in_box;
        }
      }
    ASSERT_EQ(moved.buffer, want);
  }
};

TEST_F(Boxes, TouchTheRowsThatTheyAreGivenAndNoOthers) {
  const Buffer buffers[] = {{200, 3, 64, 0}, {200, 3, 72, 4}, {200, 1, 8, 12}, {200, 2, 256, 8}};
  for (const Buffer& b : buffers)
    for (const Move how : {Move::load, Move::store, Move::add})
      for (const int valid : {1, 7, 63, 64, 65, 130})
        for (const int row : {0, 5, 70})
          for (const int column : {0, 32}) {
            SCOPED_TRACE(::testing::Message()
                         << "dim " << b.dim << " move " << static_cast<int>(how) << " valid "
                         << valid << " row " << row << " column " << column);
            expect_moved(b, how, b.heads - 1, column, row, valid);
            if (HasFailure()) return;
          }
}

TEST_F(Boxes, OfNoRowsAreZeros) {
  expect_moved({100, 2, 64, 0}, Move::load, 1, 0, 40, 0);
  expect_moved({100, 2, 64, 0}, Move::load, 1, 0, 40, -20);
}

TEST_F(Boxes, ReachRowsBehindFourGigabytes) {
  constexpr int kRows = 40, kDim = 32;
  constexpr int64_t kStride = int64_t{1} << 28;  // bytes; 10 GiB in all
  const DeviceMemory buffer(kStride * kRows), box(kBoxCells * 4);
  const int row = 20, valid = 15;
  std::vector<float> cells(kDim, 3.5f);
  auto* bytes = static_cast<std::byte*>(buffer.data());
  for (int r = 0; r < kRows; ++r) {
    for (float& x : cells) x = static_cast<float>(r);
    RINGSIDE_CUDA(cudaMemcpy(bytes + r * kStride, cells.data(), kDim * 4, cudaMemcpyHostToDevice));
  }
  CUtensorMap map{};
  ASSERT_TRUE(make_map(map, {bytes, kStride / 4, kDim, kRows}, {ElementType::float32, kDim, 1}));
  move_box<<<1, 128>>>(map, Move::load, ragged_box(0, 0, row, valid),
                       reinterpret_cast<float*>(box.data()));
  RINGSIDE_CUDA(cudaDeviceSynchronize());
  std::vector<float> got(kBoxCells);
  RINGSIDE_CUDA(cudaMemcpy(got.data(), box.data(), kBoxCells * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kBoxCells; ++i)
    ASSERT_EQ(got[i], i / kFloats < valid ? row + i / kFloats : 0) << i;
}

}  // namespace
}  // namespace ringside::hopper
