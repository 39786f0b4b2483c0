#include "reference/attention/cpu_kernels.h"

#include <cstdlib>

#include "reference/support/errors.h"
#include "reference/support/names.h"

namespace ringside {

extern "C" {
extern const CpuKernels ringside_cpu_kernels_baseline;
#ifdef RINGSIDE_CPU_DISPATCH
extern const CpuKernels ringside_cpu_kernels_v3, ringside_cpu_kernels_v4;
#endif
}

std::span<const CpuLevel> cpu_levels() {
#ifdef RINGSIDE_CPU_DISPATCH
  __builtin_cpu_init();
  static const CpuLevel levels[] = {
      {"baseline", &ringside_cpu_kernels_baseline, true},
      {"v3", &ringside_cpu_kernels_v3, __builtin_cpu_supports("x86-64-v3") != 0},
      {"v4", &ringside_cpu_kernels_v4, __builtin_cpu_supports("x86-64-v4") != 0}};
#else
  static const CpuLevel levels[] = {{"baseline", &ringside_cpu_kernels_baseline, true}};
#endif
  return levels;
}

const CpuLevel& choose_cpu_level(std::span<const CpuLevel> levels, const std::string& name) {
  const CpuLevel* widest = nullptr;
  for (const CpuLevel& level : levels)
    if (level.runs_here) widest = &level;
  if (name.empty()) return *widest;
  for (const CpuLevel& level : levels) {
    if (name != level.name) continue;
    if (level.runs_here) return level;
    throw Unsupported(concat("RINGSIDE_CPU_LEVEL: got \"", name,
                             "\", which this processor does not run; expected \"", widest->name,
                             "\" or a narrower one. Unset it to use \"", widest->name, "\"."));
  }
  throw InvalidArgument(concat("RINGSIDE_CPU_LEVEL: got \"", name, "\", expected one of ",
                               known_names(levels), ", which this build holds. Unset it to use \"",
                               widest->name, "\"."));
}

const CpuLevel& cpu_level() {
  static const CpuLevel& level = [&]() -> const CpuLevel& {
    const char* name = std::getenv("RINGSIDE_CPU_LEVEL");
    return choose_cpu_level(cpu_levels(), name ? name : "");
  }();
  return level;
}

void tile_forward(const TileTask& task, const ForwardBuffers& x) {
  cpu_level().kernels->tile_forward(task, x);
}

void tile_backward(const TileTask& task, const BackwardBuffers& x) {
  cpu_level().kernels->tile_backward(task, x);
}

namespace oracle {

Result forward(const Attention& a, const Arrays& x) {
  return cpu_level().kernels->definition(a, x);
}

Gradients backward(const Attention& a, const Arrays& x, const double* dout, const Result& saved) {
  return cpu_level().kernels->definition_backward(a, x, dout, saved);
}

}  // namespace oracle
}  // namespace ringside
