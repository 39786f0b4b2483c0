// Tables are on the device when upload() returns, whatever else the device has to do. Skips without
// a device.
#include "optimized/device/memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace ringside {
namespace {

constexpr int kRows = 4'096;  // 16 KiB: cudaMemcpy returns from as little before it is done

bool no_device() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0;
}

// Keeps the default stream busy until it is let go, or for some seconds.
class Stall {
 public:
  Stall() { RINGSIDE_CUDA(cudaLaunchHostFunc(nullptr, &Stall::wait, this)); }
  ~Stall() {
    released_ = true;
    static_cast<void>(cudaDeviceSynchronize());
  }
  bool is_over() const { return over_; }

 private:
  static void wait(void* stall) {
    Stall& self = *static_cast<Stall*>(stall);
    for (int i = 0; i < 20'000 && !self.released_; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    self.over_ = true;
  }
  std::atomic<bool> released_ = false, over_ = false;
};

// What a stream that does not wait for the default one finds.
std::vector<int> read_on(cudaStream_t stream, const int* rows) {
  std::vector<int> found(kRows);
  RINGSIDE_CUDA(
      cudaMemcpyAsync(found.data(), rows, kRows * sizeof(int), cudaMemcpyDeviceToHost, stream));
  RINGSIDE_CUDA(cudaStreamSynchronize(stream));
  return found;
}

TEST(DeviceTables, AreThereForEveryStreamOnceUploaded) {
  if (no_device()) GTEST_SKIP() << "no CUDA device";
  cudaStream_t other = nullptr;
  RINGSIDE_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  int* last = nullptr;
  RINGSIDE_CUDA(cudaMallocHost(reinterpret_cast<void**>(&last), sizeof(int)));
  for (const size_t size : {1'000, 16'000, 200'000, 3'000'000, 20'000'000})
    for (int turn = 1; turn <= 20; ++turn) {
      DeviceTables tables;
      const auto table = tables.add(std::vector<int>(size, turn));
      tables.upload();
      RINGSIDE_CUDA(cudaMemcpyAsync(last, tables.at(table) + size - 1, sizeof(int),
                                    cudaMemcpyDeviceToHost, other));
      RINGSIDE_CUDA(cudaStreamSynchronize(other));
      ASSERT_EQ(*last, turn) << size << " rows";
    }
  RINGSIDE_CUDA(cudaFreeHost(last));
  RINGSIDE_CUDA(cudaStreamDestroy(other));
}

TEST(DeviceTables, DoNotWaitForTheDefaultStream) {
  if (no_device()) GTEST_SKIP() << "no CUDA device";
  std::vector<int> rows(kRows);
  std::iota(rows.begin(), rows.end(), 1);
  DeviceTables tables;
  const auto table = tables.add(rows);
  const auto zeros = tables.reserve<int>(kRows);
  cudaStream_t other = nullptr;
  RINGSIDE_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  const Stall stall;
  tables.upload();
  EXPECT_EQ(read_on(other, tables.at(table)), rows);
  tables.allocate();
  EXPECT_EQ(read_on(other, tables.at(zeros)), std::vector<int>(kRows));
  EXPECT_FALSE(stall.is_over());
  RINGSIDE_CUDA(cudaStreamDestroy(other));
}

}  // namespace
}  // namespace ringside
