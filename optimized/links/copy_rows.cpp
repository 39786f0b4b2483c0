#include "optimized/device/error.h"
#include "optimized/links/communicator.h"

namespace ringside {

void copy_rows(const DeviceRows& from, const DeviceRows& to, cudaStream_t stream) {
  require(from.bytes() == to.bytes(), from.bytes(), " bytes to a place of ", to.bytes());
  if (from.bytes() == 0) return;
  if (from.dense() && to.dense()) {
    RINGSIDE_CUDA(
        cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDeviceToDevice, stream));
    return;
  }
  require(from.width == to.width, "rows of ", from.width, " bytes to rows of ", to.width);
  RINGSIDE_CUDA(cudaMemcpy2DAsync(to.data, static_cast<size_t>(to.pitch), from.data,
                                  static_cast<size_t>(from.pitch), static_cast<size_t>(from.width),
                                  static_cast<size_t>(from.rows), cudaMemcpyDeviceToDevice,
                                  stream));
}

}  // namespace ringside
