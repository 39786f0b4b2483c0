#include "optimized/interpreter/machine/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "optimized/interpreter/machine/code.h"

namespace ringside::ptx {
namespace {

constexpr size_t kPage = 4096, kUnit = 256, kArena = size_t{1} << 38;
constexpr int kNan = 0xff;

struct Place {
  std::byte* begin;
  size_t span;   // with its guard page
  size_t bytes;  // rounded up to units
};

struct Arena {
  std::mutex mutex;  // of all that follows: a rank allocates while another's kernels run
  std::byte* begin;
  size_t used = 0;
  std::multimap<size_t, std::byte*> idle;  // by span
  std::map<const std::byte*, Place> places;
  std::map<uint64_t, size_t> hosts;

  Arena()
      : begin(static_cast<std::byte*>(
            mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (begin == MAP_FAILED) fail("no address space for device memory");
  }
};

Arena& arena() {
  static Arena made;
  return made;
}

using Lock = std::lock_guard<std::mutex>;

size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

template <typename Map, typename Key>
auto at_or_before(Map& map, const Key& key) {
  auto found = map.upper_bound(key);
  return found == map.begin() ? map.end() : --found;
}

}  // namespace

std::byte* allocate(size_t bytes) {
  Arena& a = arena();
  const Lock lock(a.mutex);
  const size_t size = rounded(std::max<size_t>(bytes, 1), kUnit);
  const size_t span = rounded(size, kPage) + kPage;
  std::byte* begin = a.begin + a.used;
  if (const auto found = a.idle.find(span); found != a.idle.end()) {
    begin = found->second;
    a.idle.erase(found);
  } else {
    if (a.used + span > kArena) return nullptr;
    a.used += span;
  }
  if (mprotect(begin, span - kPage, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::memset(begin, kNan, span - kPage);
  std::byte* data = begin + (span - kPage - size);  // ends where the guard page begins
  a.places[data] = {begin, span, size};
  return data;
}

bool release(void* data) {
  Arena& a = arena();
  const Lock lock(a.mutex);
  const auto found = a.places.find(static_cast<std::byte*>(data));
  if (found == a.places.end()) return false;
  const Place place = found->second;
  madvise(place.begin, place.span - kPage, MADV_DONTNEED);
  mprotect(place.begin, place.span, PROT_NONE);
  a.idle.emplace(place.span, place.begin);
  a.places.erase(found);
  return true;
}

bool is_allocated(const void* data, size_t bytes) {
  Arena& a = arena();
  const Lock lock(a.mutex);
  const auto* first = static_cast<const std::byte*>(data);
  const auto found = at_or_before(a.places, first);
  return found != a.places.end() && first + bytes <= found->first + found->second.bytes;
}

void register_host(const void* data, size_t bytes) {
  Arena& a = arena();
  const Lock lock(a.mutex);
  a.hosts[reinterpret_cast<uint64_t>(data)] = bytes;
}

void unregister_host(const void* data) {
  Arena& a = arena();
  const Lock lock(a.mutex);
  a.hosts.erase(reinterpret_cast<uint64_t>(data));
}

bool is_registered(uint64_t address, size_t bytes) {
  Arena& a = arena();
  const Lock lock(a.mutex);
  const auto found = at_or_before(a.hosts, address);
  return found != a.hosts.end() && address + bytes <= found->first + found->second;
}

bool in_device_memory(uint64_t address, size_t bytes) {
  static const auto kBegin = reinterpret_cast<uint64_t>(arena().begin);
  return address - kBegin < kArena - bytes;
}

}  // namespace ringside::ptx
