#include "optimized/program/choose_family.h"

#include <span>
#include <string>
#include <string_view>

#include "reference/support/errors.h"

namespace ringside {
namespace {

std::span<const KernelFamily> families_from(std::string_view name) {
  const std::span<const KernelFamily> all = kernel_families();
  if (name.empty()) return all;
  std::string names;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == name) return all.subspan(i);
    names += concat(i == 0 ? "" : ", ", all[i].name);
  }
  throw InvalidArgument(concat("family is \"", name, "\"; expected one of: ", names));
}

}  // namespace

const ProgramOptions& require_head_dims(const ProgramOptions& o) {
  const AttentionShape shape{
      .head_dim_qk = o.head_dim_qk, .head_dim_v = o.head_dim_v, .type = ElementType::float32};
  if (find_family(shape, {}, o.score_options) == nullptr)
    throw Unsupported(concat("backend=\"cuda\" with head_dim_qk=", o.head_dim_qk,
                             ", head_dim_v=", o.head_dim_v,
                             "; head dimensions up to 256 are supported. Nearest supported: "
                             "backend=\"reference\""));
  return o;
}

const KernelFamily& choose_family(AttentionShape& shape, int device_number, const ProgramOptions& o,
                                  int64_t rows) {
  const DeviceProperties device = properties_of(device_number);
  const std::span<const KernelFamily> families = families_from(o.family);
  const auto find = [&](const AttentionShape& s) {
    return find_family(families, s, device, o.score_options, rows);
  };
  const KernelFamily* family = find(shape);
  if (family == nullptr && shape.type != ElementType::float32) {  // columns of zeros at home
    AttentionShape padded = shape;
    for (int* dim : {&padded.head_dim_qk, &padded.head_dim_v}) *dim = (*dim + 7) / 8 * 8;
    family = find(padded);
    if (family != nullptr) shape = padded;
  }
  if (family == nullptr) {  // float32 takes everything else, converted where rows come home
    shape.type = ElementType::float32;
    family = find(shape);
  }
  return *family;
}

}  // namespace ringside
