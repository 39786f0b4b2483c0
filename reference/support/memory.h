// Whether what is asked for fits into memory, asked before any of it is taken.
#pragma once

#include <string>

namespace ringside {

// Bytes of this machine, or fewer, where the process may not take as many.
double bytes_of_memory();

std::string gibibytes(double bytes);  // "1.5 GiB"

// Raises InvalidArgument unless that many bytes fit; `what` begins the message, `fix` ends it.
void require_memory(double bytes, const std::string& what, const std::string& fix);

}  // namespace ringside
