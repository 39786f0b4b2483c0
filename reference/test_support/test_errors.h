// For the C++ tests: a call must fail, and its message must say what it has to.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "reference/support/errors.h"

namespace ringside::testing {

// `call` raises Error, and the message holds every one of `parts`.
template <typename Error, typename Call>
void expect_error(Call call, std::initializer_list<const char*> parts) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos)
          << "\"" << part << "\" is missing in: " << message;
    return;
  }
  ADD_FAILURE() << "expected an error with \"" << (parts.size() ? *parts.begin() : "") << "\"";
}

// The message of the InvalidArgument that `call` throws, empty if it does not.
template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

}  // namespace ringside::testing
