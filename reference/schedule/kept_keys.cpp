#include "reference/schedule/kept_keys.h"

namespace ringside {
namespace {

bool replaces(const Plan& plan, int rank, std::span<const Step> steps, size_t step) {
  const Buffer& before = step == 0 ? plan.home_kv[rank] : steps[step - 1].kv;
  return steps[step].before.moves(Operand::kv) || !(before == steps[step].kv);
}

}  // namespace

bool keeps_keys(const Plan& plan, int rank, std::span<const Step> steps, int step) {
  const auto first = static_cast<size_t>(step);
  const Buffer& keys = steps[first].kv;
  if (!replaces(plan, rank, steps, first) || keys == plan.home_kv[rank]) return false;
  if (plan.rows(keys) == 0 || keys.heads.size() == 0) return false;
  for (size_t i = first; i < steps.size() && (i == first || !replaces(plan, rank, steps, i)); ++i)
    if (!plan.tiles(steps[i]).empty()) return true;
  return false;
}

}  // namespace ringside
