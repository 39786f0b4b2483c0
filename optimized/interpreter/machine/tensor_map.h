// What the interpreter's driver puts into the 128 bytes of a tensor map.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ringside::ptx {

constexpr uint64_t kMapMark = 0x52494e4753494445;

struct TensorMap {
  uint64_t mark;
  std::byte* data;
  std::array<uint64_t, 5> size, stride;  // stride in bytes; that of elements is theirs
  std::array<uint16_t, 5> box;
  uint8_t rank, element_bytes;
  uint8_t swizzle_bits;  // 7, 3, 1, or 0 for none: of the line, flipped in the place of 16 bytes
};
static_assert(sizeof(TensorMap) <= 128);

}  // namespace ringside::ptx
