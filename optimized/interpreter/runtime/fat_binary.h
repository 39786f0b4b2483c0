// What nvcc puts beside a file's kernels.
#pragma once

#include <string>

namespace ringside::ptx {

// The PTX of it for the newest device; empty where there is none. Ends the process where it is
// compressed (nvcc --no-compress keeps it readable).
std::string ptx_of(const void* registered);

}  // namespace ringside::ptx
