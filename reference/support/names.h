// Looking a name up in a table; an unknown name is answered with the known ones.
#pragma once

#include <span>
#include <string>

#include "reference/support/errors.h"

namespace ringside {

template <typename Entry>
std::string known_names(std::span<const Entry> table) {
  std::string names;
  for (const Entry& entry : table) names += concat(names.empty() ? "" : ", ", '"', entry.name, '"');
  return names;
}

template <typename Entry>
const Entry& find_by_name(const char* what, std::span<const Entry> table, const std::string& name) {
  for (const Entry& entry : table)
    if (name == entry.name) return entry;
  throw InvalidArgument(
      concat(what, "=\"", name, "\" is unknown; expected one of ", known_names(table)));
}

}  // namespace ringside
