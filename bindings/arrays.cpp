#include "bindings/arrays.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "reference/errors.h"

namespace ringside::bindings {

using namespace pybind11::literals;

namespace {

py::array as_array(const py::handle& x) {
  return py::module_::import("numpy").attr("asarray")(x).cast<py::array>();
}

std::string dtype_of(const py::array& x) { return py::str(x.dtype()).cast<std::string>(); }

// Gives a vector's memory to NumPy without copying it.
template <typename T>
py::array_t<T> adopt(std::vector<T>&& data, std::vector<py::ssize_t> shape) {
  auto owned = std::make_unique<std::vector<T>>(std::move(data));
  T* first = owned->data();
  py::capsule free(owned.release(), [](void* p) { delete static_cast<std::vector<T>*>(p); });
  return py::array_t<T>(std::move(shape), first, free);
}

DoubleArray floating(const py::array& x, const char* name) {
  if (x.dtype().kind() != 'f')
    throw py::type_error(concat(name, " has dtype ", dtype_of(x),
                                "; expected float16, float32 or float64. Pass ", name,
                                ".astype(np.float32)"));
  return DoubleArray::ensure(x);
}

}  // namespace

std::string shape_of(const py::array& x) { return py::str(x.attr("shape")).cast<std::string>(); }

std::vector<int32_t> integers(const py::handle& x, const char* name) {
  const py::array array = as_array(x);
  const bool empty_list = array.size() == 0 && !py::isinstance<py::array>(x);
  const char kind = array.dtype().kind();
  if (kind != 'i' && kind != 'u' && !empty_list)
    throw py::type_error(concat(name, " has dtype ", dtype_of(array), "; expected integers. Pass ",
                                name, ".astype(np.int32)"));
  require(array.ndim() == 1, name, " has shape ", shape_of(array),
          "; expected one dimension. Pass ", name, ".reshape(-1) if that is what you mean");
  const auto wide = py::array_t<int64_t, py::array::c_style | py::array::forcecast>::ensure(array);
  std::vector<int32_t> narrow(static_cast<size_t>(wide.size()));
  for (py::ssize_t i = 0; i < wide.size(); ++i) {
    const int64_t value = wide.at(i);
    require(std::numeric_limits<int32_t>::min() <= value &&
                value <= std::numeric_limits<int32_t>::max(),
            name, "[", i, "]=", value,
            " does not fit int32; row numbers are at most 2147483647. Split the pack");
    narrow[static_cast<size_t>(i)] = static_cast<int32_t>(value);
  }
  return narrow;
}

DoubleArray tensor(const py::handle& x, const char* name, const PackedLayout& layout) {
  const py::array array = as_array(x);
  require(array.ndim() == 3, name, " has shape ", shape_of(array),
          "; expected three dimensions [rows, heads, dim] (THD)");
  require(array.shape(1) >= 1 && array.shape(2) >= 1, name, " has shape ", shape_of(array),
          "; expected at least one head and one dimension");
  require(array.shape(0) == layout.num_rows(), name, " has ", array.shape(0),
          " rows but its layout ends at row ", layout.num_rows(),
          "; they must agree. If the last rows are padding, say so: let cu_seqlens_padded end at ",
          array.shape(0));
  return floating(array, name);
}

void require_shape(const DoubleArray& x, const char* name, int heads, int dim, const char* why) {
  require(x.shape(1) == heads && x.shape(2) == dim, name, " has shape ", shape_of(x),
          "; expected [", x.shape(0), ", ", heads, ", ", dim, "]: ", why);
}

DoubleArray lse_array(const py::handle& x, int num_heads, const PackedLayout& layout) {
  const py::array array = as_array(x);
  require(array.ndim() == 2 && array.shape(0) == num_heads && array.shape(1) == layout.num_rows(),
          "lse has shape ", shape_of(array), "; expected [heads, rows] = [", num_heads, ", ",
          layout.num_rows(), "], as attention() returned it");
  return floating(array, "lse");
}

Tensor rows_first(const DoubleArray& lse) {
  const auto cells = lse.unchecked<2>();
  Tensor tensor(static_cast<int>(lse.shape(1)), static_cast<int>(lse.shape(0)), 1, 0.0);
  for (int row = 0; row < tensor.rows; ++row)
    for (int head = 0; head < tensor.heads; ++head) *tensor.at(row, head) = cells(head, row);
  return tensor;
}

py::array_t<double> heads_first(const Tensor& lse) {
  py::array_t<double> array({lse.heads, lse.rows});
  auto cells = array.mutable_unchecked<2>();
  for (int head = 0; head < lse.heads; ++head)
    for (int row = 0; row < lse.rows; ++row) cells(head, row) = *lse.at(row, head);
  return array;
}

TensorView view(const DoubleArray& x) {
  return {x.data(), static_cast<int>(x.shape(0)), static_cast<int>(x.shape(1)),
          static_cast<int>(x.shape(2))};
}

py::array_t<double> to_array(Tensor&& x) {
  return adopt(std::move(x.data), {x.rows, x.heads, x.dim});
}

py::array_t<double> to_array(std::vector<double>&& x, std::vector<py::ssize_t> shape) {
  return adopt(std::move(x), std::move(shape));
}

py::array_t<int32_t> to_array(const std::vector<int32_t>& x) {
  return py::array_t<int32_t>(static_cast<py::ssize_t>(x.size()), x.data());
}

std::vector<py::array> parts_of(const py::sequence& parts, const char* what) {
  std::vector<py::array> arrays;
  for (const py::handle part : parts) {
    const py::array& x = arrays.emplace_back(as_array(part));
    const py::array& first = arrays.front();
    require(x.ndim() >= 1, what, " ", arrays.size() - 1,
            " is a scalar; expected an array of [rows, ...]");
    require(std::equal(x.shape() + 1, x.shape() + x.ndim(), first.shape() + 1,
                       first.shape() + first.ndim()),
            what, " ", arrays.size() - 1, " has shape ", shape_of(x), " and ", what, " 0 has ",
            shape_of(first), "; expected them alike but for the first axis");
  }
  return arrays;
}

py::array room_for(const std::vector<py::array>& parts, int rows) {
  const auto np = py::module_::import("numpy");
  py::list dtypes, shape(parts.at(0).attr("shape"));
  for (const py::array& part : parts) dtypes.append(part.dtype());
  shape[0] = rows;
  return np.attr("empty")(shape, "dtype"_a = np.attr("result_type")(*dtypes));
}

}  // namespace ringside::bindings
