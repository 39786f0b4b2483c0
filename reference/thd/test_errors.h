// For tests: the message of what `call` throws, empty if it does not.
#pragma once

#include <string>

#include "reference/support/errors.h"

namespace ringside::thd {

template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

inline bool begins_with(const std::string& text, const std::string& begin) {
  return text.compare(0, begin.size(), begin) == 0;
}

}  // namespace ringside::thd
