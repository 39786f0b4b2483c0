#include "optimized/program/in_place_arrays.h"

#include <cstdint>

#include "reference/support/errors.h"

namespace ringside {
namespace {

void take(move::GlobalArray& x, const char* name, const KernelFamily& family) {
  DeviceMatrix& matrix = x.matrix;
  const int64_t element = move::bytes_of(x.type), aligned = 16 / element;
  const auto rounded = [&](int64_t size) { return (size + aligned - 1) / aligned * aligned; };
  if (x.heads <= 1 || matrix.rows == 0) matrix.head_stride = rounded(x.dim);
  if (matrix.rows <= 1) matrix.row_stride = rounded(int64_t{x.heads} * x.dim);
  require(reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 && matrix.row_stride % aligned == 0 &&
              matrix.head_stride % aligned == 0,
          name, " has rows or heads that do not begin at multiples of 16 bytes. Copy it");
  if (family.takes_array != nullptr)
    require(family.takes_array(matrix, x.type, x.heads), name, " has strides of ",
            matrix.row_stride * element, " and ", matrix.head_stride * element,
            " bytes; expected more than 0, below 2^35 from row to row and below 2^40 from head to "
            "head. Copy it");
}

}  // namespace

ForwardCall as_taken(ForwardCall call, const KernelFamily& family) {
  take(call.q, "q", family), take(call.k, "k", family), take(call.v, "v", family);
  take(call.out, "out", family);
  return call;
}

BackwardCall as_taken(BackwardCall call, const KernelFamily& family) {
  take(call.q, "q", family), take(call.k, "k", family), take(call.v, "v", family);
  take(call.dout, "dout", family), take(call.dq, "dq", family);
  take(call.dk, "dk", family), take(call.dv, "dv", family);
  return call;
}

}  // namespace ringside
