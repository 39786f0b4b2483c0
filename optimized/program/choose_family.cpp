#include "optimized/program/choose_family.h"

#include "reference/support/errors.h"

namespace ringside {

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

const KernelFamily& choose_family(AttentionShape& shape, int device_number, bool score_options) {
  const DeviceProperties device = properties_of(device_number);
  const KernelFamily* family = find_family(shape, device, score_options);
  if (family == nullptr && shape.type != ElementType::float32) {  // columns of zeros at home
    AttentionShape padded = shape;
    for (int* dim : {&padded.head_dim_qk, &padded.head_dim_v}) *dim = (*dim + 7) / 8 * 8;
    family = find_family(padded, device, score_options);
    if (family != nullptr) shape = padded;
  }
  if (family == nullptr) {  // float32 takes everything else, converted where rows come home
    shape.type = ElementType::float32;
    family = find_family(shape, device, score_options);
  }
  return *family;
}

}  // namespace ringside
