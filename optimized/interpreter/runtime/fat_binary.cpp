#include "optimized/interpreter/runtime/fat_binary.h"

#include <cstdint>
#include <cstring>

#include "optimized/interpreter/machine/code.h"

namespace ringside::ptx {
namespace {

constexpr uint32_t kWrapper = 0x466243b1, kContainer = 0xba55ed50;
constexpr uint16_t kPtx = 1;

template <typename T>
T at(const char* place) {
  T value;
  std::memcpy(&value, place, sizeof value);
  return value;
}

struct Image {  // one of a container
  const char* begin;

  uint16_t kind() const { return at<uint16_t>(begin); }
  const char* data() const { return begin + at<uint32_t>(begin + 4); }
  uint64_t bytes() const { return at<uint64_t>(begin + 8); }
  uint32_t device() const { return at<uint32_t>(begin + 28); }  // 90: of compute capability 9.0
  const char* end() const { return data() + bytes(); }
};

}  // namespace

std::string ptx_of(const void* registered) {
  const auto* wrapper = static_cast<const char*>(registered);
  if (at<uint32_t>(wrapper) != kWrapper) return "";
  const auto* container = at<const char*>(wrapper + 8);
  if (at<uint32_t>(container) != kContainer) return "";
  Image image{container + at<uint16_t>(container + 6)};
  const char* const end = image.begin + at<uint64_t>(container + 8);
  std::string newest;
  for (uint32_t device = 0; image.begin < end; image.begin = image.end()) {
    if (image.kind() != kPtx || image.device() < device) continue;
    newest.assign(image.data(), strnlen(image.data(), image.bytes()));
    if (newest.find(".version") == newest.npos)
      fail("got compressed PTX, expected it readable\nFix: compile with nvcc --no-compress");
    device = image.device();
  }
  return newest;
}

}  // namespace ringside::ptx
