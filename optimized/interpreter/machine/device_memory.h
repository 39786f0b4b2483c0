// Memory of the interpreted device: of this process, filled with NaN, a guard page behind each
// allocation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringside::ptx {

// At a multiple of 256 bytes; null where there is no more.
std::byte* allocate(size_t bytes);
bool release(void* data);  // false: not of allocate()
bool is_allocated(const void* data, size_t bytes);

// Memory of the host that kernels may touch.
void register_host(const void* data, size_t bytes);
void unregister_host(const void* data);
bool is_registered(uint64_t address, size_t bytes);

bool in_device_memory(uint64_t address, size_t bytes);

}  // namespace ringside::ptx
