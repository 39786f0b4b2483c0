// Code for each type of element.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "optimized/device/types.h"

namespace ringside {

// Calls run(T{}) with the element of a type.
template <typename Run>
auto with_type(ElementType type, Run run) {
  switch (type) {
    case ElementType::float16:
      return run(__half{});
    case ElementType::bfloat16:
      return run(__nv_bfloat16{});
    case ElementType::float32:
      break;
  }
  return run(float{});
}

}  // namespace ringside
