// For tests of thd: what a call is refused with, and how that begins.
#pragma once

#include <string>

#include "reference/test_support/test_errors.h"

namespace ringside::thd {

using testing::refusal;

inline bool begins_with(const std::string& text, const std::string& begin) {
  return text.compare(0, begin.size(), begin) == 0;
}

}  // namespace ringside::thd
