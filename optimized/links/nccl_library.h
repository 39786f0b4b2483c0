// NCCL, loaded at run time: the functions of its host interface that messages need.
//
// Nothing is linked, and no header of NCCL's is read, so that this builds and imports where it is
// absent and takes the one that the process has. The types below are what its interface promises
// for all 2.x.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>

namespace ringside {

struct NcclError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using NcclComm = void*;
struct NcclUniqueId {
  std::array<char, 128> bytes;
};

// The first fields of ncclConfig_t, those of 2.18: newer libraries read as many as `size` says.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 1;
  int cga_cluster_size = 1;  // a cluster would wait for several free multiprocessors at once
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;

  static constexpr int kUndefined = INT32_MIN;
};

class NcclLibrary {
 public:
  explicit NcclLibrary(const std::string& path);  // raises NcclError

  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(NcclUniqueId*) = nullptr;
  int (*comm_init_rank_config)(NcclComm*, int, NcclUniqueId, int, NcclConfig*) = nullptr;
  int (*comm_abort)(NcclComm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, size_t, int, int, NcclComm, cudaStream_t) = nullptr;
  int (*receive)(void*, size_t, int, int, NcclComm, cudaStream_t) = nullptr;
  const char* (*error_string)(int) = nullptr;

  void check(int result, const char* what) const;

 private:
  template <typename Function>
  void load(Function& function, const char* name);

  std::string path_;
  std::shared_ptr<void> handle_;
};

}  // namespace ringside
