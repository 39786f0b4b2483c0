#include "reference/plan/exchange.h"

#include <algorithm>
#include <iterator>

namespace ringside {

const char* name(ExchangeKind kind) {
  constexpr const char* kNames[] = {"none", "ring_shift", "all_gather", "all_to_all"};
  return kNames[static_cast<int>(kind)];
}

bool Exchange::moves(Operand operand) const {
  const auto of_operand = [operand](const Message& m) { return m.operand == operand; };
  return std::any_of(sends.begin(), sends.end(), of_operand) ||
         std::any_of(receives.begin(), receives.end(), of_operand);
}

}  // namespace ringside
