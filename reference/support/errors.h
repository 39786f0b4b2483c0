// The ways to say no. Messages say what was got, what was expected and how to fix it.
#pragma once

#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace ringside {

// The place of a plan that a message speaks of; -1: of none. As a part of a message it is words.
struct At {
  int rank = -1, step = -1, tile = -1;
  int row = -1, key = -1;  // of the pack's queries, of its keys; messages name them by document
  bool operator==(const At&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const At& at) {
  const char* space = "";
  for (const auto& [name, number] :
       {std::pair("rank ", at.rank), std::pair("step ", at.step), std::pair("tile ", at.tile)}) {
    if (number < 0) continue;
    out << space << name << number;
    space = " ";
  }
  return out;
}

struct Unsaid {  // a place that a message names in other words
  At at;
};
inline std::ostream& operator<<(std::ostream& out, const Unsaid&) { return out; }

struct InvalidArgument : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
  At at;
};

// Valid input that this build cannot compute; the message names the nearest supported choice.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A plan that does not say what attention means.
struct PlanError : std::runtime_error {
  using std::runtime_error::runtime_error;
  At at;
};

template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// The first place that a part of a message names: an At, or what has one.
template <typename Part>
void note_place(At& at, const Part& part) {
  if (at != At{}) return;
  if constexpr (std::is_same_v<Part, At>)
    at = part;
  else if constexpr (requires { At{part.at}; })
    at = part.at;
}

template <typename Error, typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  Error error(concat(parts...));
  (note_place(error.at, parts), ...);
  throw error;
}

template <typename... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) fail<InvalidArgument>(parts...);
}

template <typename... Parts>
void plan_require(bool condition, const Parts&... parts) {
  if (!condition) fail<PlanError>(parts...);
}

}  // namespace ringside
