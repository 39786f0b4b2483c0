// The arithmetic that is worth compiling for more than one processor, and which of it runs here.
//
// Sources that name RINGSIDE_CPU_LEVEL are compiled once for each level of x86-64 (baseline, v3
// with AVX2, v4 with AVX-512) and offer their functions as one table a level; nothing else of the
// wider objects can be linked to. The widest level that the processor runs is used, in every
// thread, or the one that the environment variable RINGSIDE_CPU_LEVEL names. Levels differ in
// rounding alone.
#pragma once

#include <span>
#include <string>

#include "reference/attention/oracle.h"
#include "reference/attention/tile_attention.h"

namespace ringside {

struct CpuKernels {
  void (*tile_forward)(const TileTask&, const ForwardBuffers&);
  void (*tile_backward)(const TileTask&, const BackwardBuffers&);
  oracle::Result (*definition)(const oracle::Attention&, const oracle::Arrays&);
  oracle::Gradients (*definition_backward)(const oracle::Attention&, const oracle::Arrays&,
                                           const double* dout, const oracle::Result& saved);
};

struct CpuLevel {
  const char* name;  // baseline: what the rest of the library is compiled for
  const CpuKernels* kernels;
  bool runs_here;
};

std::span<const CpuLevel> cpu_levels();  // all that this build holds, narrowest first

// The widest level that runs here, or the one with this name. Throws InvalidArgument for a name
// that no level has and Unsupported for one that this processor does not run.
const CpuLevel& choose_cpu_level(std::span<const CpuLevel> levels, const std::string& name = "");

// The level in use: chosen once, by RINGSIDE_CPU_LEVEL where it is set. Throws as above.
const CpuLevel& cpu_level();

}  // namespace ringside
