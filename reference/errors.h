// The ways to say no. Messages say what was got, what was expected and how to fix it.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace ringside {

struct InvalidArgument : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// Valid input that this build cannot compute; the message names the nearest supported choice.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A plan that does not say what attention means.
struct PlanError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

template <typename... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw InvalidArgument(concat(parts...));
}

template <typename... Parts>
void plan_require(bool condition, const Parts&... parts) {
  if (!condition) throw PlanError(concat(parts...));
}

}  // namespace ringside
