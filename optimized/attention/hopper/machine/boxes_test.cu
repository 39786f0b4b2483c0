// Boxes of ragged tensor maps on the device: what is loaded, stored and added lies in the rows that
// the caller names, and nowhere else. Skips without a device of compute capability 9.0.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
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

constexpr int kMostRows = 128;  // of a box: of keys, of queries, and of a warp's results
constexpr int kBoxes[] = {kMostRows, kBoxRows, 16};

template <typename T>
inline constexpr int kColumns = kSwizzledBytes / sizeof(T);  // of a box

enum class Move { load, store, add };

// One box between a map and `cells`, which are in order of rows.
template <typename T>
__global__ void move_box(const __grid_constant__ CUtensorMap map, Move move, BoxCoordinates at,
                         int rows, T* cells) {
  __shared__ alignas(1024) T box[kMostRows * kColumns<T>];
  __shared__ Barrier landed;
  if (threadIdx.x == 0) init(landed, 1), publish_barriers();
  const auto cell = [&](int i) -> T& {
    constexpr int kPart = 16 / sizeof(T);
    const int row = i / kColumns<T>, column = i % kColumns<T>;
    return box[swizzled(row, column / kPart) / sizeof(T) + column % kPart];
  };
  const int size = rows * kColumns<T>;
  for (int i = threadIdx.x; i < kMostRows * kColumns<T>; i += blockDim.x)
    cell(i) = move == Move::load || i >= size ? T(NAN) : cells[i];
  show_to_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (move == Move::load) {
      arrive_and_expect(landed, size * sizeof(T));
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
  for (int i = threadIdx.x; i < size; i += blockDim.x) cells[i] = cell(i);
}

struct Buffer {  // [rows, heads, dim], with room between rows and between heads
  int rows, heads, dim, gap;
  int64_t head_stride() const { return dim + gap; }
  int64_t row_stride() const { return heads * head_stride() + 2 * gap; }
  int64_t cells() const { return rows * row_stride(); }
  int64_t at(int row, int head, int column) const {
    return row * row_stride() + head * head_stride() + column;
  }
};

struct Box {
  Move move;
  int rows, head, column, row, valid;
};

// Whole numbers that every type holds, sums of two as well: in the buffer, and others in the box.
float in_buffer(int64_t i) { return static_cast<float>(i % 127); }
float in_box(int i) { return static_cast<float>(128 + i % 127); }

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
  template <typename T>
  struct Moved {
    std::vector<T> buffer, box;
  };
  template <typename T>
  static Moved<T> move(const Buffer& b, const Box& how, ElementType type) {
    Moved<T> all;
    for (int64_t i = 0; i < b.cells(); ++i) all.buffer.push_back(T(in_buffer(i)));
    for (int i = 0; i < how.rows * kColumns<T>; ++i) all.box.push_back(T(in_box(i)));
    const int64_t bytes = b.cells() * sizeof(T), box_bytes = all.box.size() * sizeof(T);
    const DeviceMemory buffer(bytes), box(box_bytes);
    RINGSIDE_CUDA(cudaMemcpy(buffer.data(), all.buffer.data(), bytes, cudaMemcpyHostToDevice));
    RINGSIDE_CUDA(cudaMemcpy(box.data(), all.box.data(), box_bytes, cudaMemcpyHostToDevice));
    CUtensorMap map{};
    EXPECT_TRUE(make_map(map, {buffer.data(), b.row_stride(), b.head_stride(), b.rows},
                         {type, b.dim, b.heads}, how.rows));
    move_box<<<1, 128>>>(map, how.move, ragged_box(how.column, how.head, how.row, how.valid),
                         how.rows, reinterpret_cast<T*>(box.data()));
    RINGSIDE_CUDA(cudaDeviceSynchronize());
    RINGSIDE_CUDA(cudaMemcpy(all.buffer.data(), buffer.data(), bytes, cudaMemcpyDeviceToHost));
    RINGSIDE_CUDA(cudaMemcpy(all.box.data(), box.data(), box_bytes, cudaMemcpyDeviceToHost));
    return all;
  }

  template <typename T>
  static void expect_moved(const Buffer& b, const Box& how, ElementType type) {
    const Moved<T> moved = move<T>(b, how, type);
    std::vector<float> want(b.cells());
    for (int64_t i = 0; i < b.cells(); ++i) want[i] = in_buffer(i);
    for (int r = 0; r < how.rows; ++r)
      for (int c = 0; c < kColumns<T>; ++c) {
        const bool there = r < how.valid && how.column + c < b.dim;
        const int i = r * kColumns<T> + c;
        float* cell = there ? &want[b.at(how.row + r, how.head, how.column + c)] : nullptr;
        if (how.move == Move::load) {
          ASSERT_EQ(static_cast<float>(moved.box[i]), there ? *cell : 0)
              << "row " << r << " column " << c;
        } else if (there) {
          *cell = how.move == Move::store ? in_box(i) : *cell + in_box(i);
        }
      }
    for (int64_t i = 0; i < b.cells(); ++i)
      ASSERT_EQ(static_cast<float>(moved.buffer[i]), want[i]) << "cell " << i;
  }

  // Boxes of each number of rows, from and to rows, heads and columns of each buffer.
  template <typename T>
  static void expect_all_moved(ElementType type, const std::vector<Move>& moves) {
    for (const Buffer& b :
         {Buffer{200, 3, 64, 0}, {200, 3, 72, 8}, {200, 1, 8, 16}, {200, 2, 256, 8}})
      for (const Move how : moves)
        for (const int rows : kBoxes)
          for (const int valid : {1, 7, rows - 1, rows, rows + 1})
            for (const int row : {0, 5, 70})
              for (const int column : {0, kColumns<T>}) {
                SCOPED_TRACE(::testing::Message()
                             << "dim " << b.dim << " move " << static_cast<int>(how) << " rows "
                             << rows << " valid " << valid << " row " << row << " column "
                             << column);
                expect_moved<T>(b, {how, rows, b.heads - 1, column, row, valid}, type);
                if (HasFailure()) return;
              }
  }
};

TEST_F(Boxes, TouchTheRowsThatTheyAreGivenAndNoOthers) {
  expect_all_moved<float>(ElementType::float32, {Move::load, Move::store, Move::add});
}

TEST_F(Boxes, OfSixteenBitsTouchTheRowsThatTheyAreGiven) {
  expect_all_moved<__half>(ElementType::float16, {Move::load, Move::store});
  expect_all_moved<__nv_bfloat16>(ElementType::bfloat16, {Move::load, Move::store});
}

TEST_F(Boxes, OfNoRowsAreZeros) {
  for (const int rows : kBoxes)
    for (const int valid : {0, -20}) {
      const Box box{Move::load, rows, 1, 0, 40, valid};
      expect_moved<float>({200, 2, 64, 0}, box, ElementType::float32);
      expect_moved<__half>({200, 2, 64, 0}, box, ElementType::float16);
    }
}

TEST_F(Boxes, ReachRowsBehindFourGigabytes) {
  constexpr int kRows = 40, kDim = 32, kCells = kBoxRows * kColumns<float>;
  constexpr int64_t kStride = int64_t{1} << 28;  // bytes; 10 GiB in all
  const DeviceMemory buffer(kStride * kRows), box(kCells * 4);
  const int row = 20, valid = 15;
  std::vector<float> cells(kDim, 3.5f);
  auto* bytes = static_cast<std::byte*>(buffer.data());
  for (int r = 0; r < kRows; ++r) {
    for (float& x : cells) x = static_cast<float>(r);
    RINGSIDE_CUDA(cudaMemcpy(bytes + r * kStride, cells.data(), kDim * 4, cudaMemcpyHostToDevice));
  }
  CUtensorMap map{};
  ASSERT_TRUE(make_map(map, {bytes, kStride / 4, kDim, kRows}, {ElementType::float32, kDim, 1}));
  move_box<<<1, 128>>>(map, Move::load, ragged_box(0, 0, row, valid), kBoxRows,
                       reinterpret_cast<float*>(box.data()));
  RINGSIDE_CUDA(cudaDeviceSynchronize());
  std::vector<float> got(kCells);
  RINGSIDE_CUDA(cudaMemcpy(got.data(), box.data(), kCells * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCells; ++i)
    ASSERT_EQ(got[i], i / kColumns<float> < valid ? row + i / kColumns<float> : 0) << i;
}

}  // namespace
}  // namespace ringside::hopper
