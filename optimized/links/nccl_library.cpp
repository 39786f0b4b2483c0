#include "optimized/links/nccl_library.h"

#include <dlfcn.h>

#include "reference/support/errors.h"

namespace ringside {

// It is never unloaded: it has threads of its own.
NcclLibrary::NcclLibrary(const std::string& path)
    : path_(path), handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), [](void*) {}) {
  if (handle_ == nullptr) throw NcclError(concat(path, " cannot be loaded: ", dlerror()));
  load(get_version, "ncclGetVersion");
  load(get_unique_id, "ncclGetUniqueId");
  load(comm_init_rank_config, "ncclCommInitRankConfig");
  load(comm_abort, "ncclCommAbort");
  load(group_start, "ncclGroupStart");
  load(group_end, "ncclGroupEnd");
  load(send, "ncclSend");
  load(receive, "ncclRecv");
  load(error_string, "ncclGetErrorString");
}

template <typename Function>
void NcclLibrary::load(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(handle_.get(), name));
  if (function == nullptr) throw NcclError(concat(path_, " has no ", name, "; expected NCCL 2.19"));
}

void NcclLibrary::check(int result, const char* what) const {
  if (result != 0) throw NcclError(concat(what, ": ", error_string(result)));
}

}  // namespace ringside
