#include "reference/support/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "reference/support/errors.h"

namespace ringside {

double bytes_of_memory() {
  double bytes = static_cast<double>(sysconf(_SC_PAGESIZE)) * sysconf(_SC_PHYS_PAGES);
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    bytes = std::min(bytes, static_cast<double>(limit.rlim_cur));
  return bytes;
}

std::string gibibytes(double bytes) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f GiB", bytes / (1024.0 * 1024 * 1024));
  return text;
}

void require_memory(double bytes, const std::string& what, const std::string& fix) {
  const double all = bytes_of_memory();
  if (bytes <= all) return;
  fail<InvalidArgument>(what, " would take about ", gibibytes(bytes), "; expected at most ",
                        gibibytes(all), ", what this machine has. ", fix);
}

}  // namespace ringside
