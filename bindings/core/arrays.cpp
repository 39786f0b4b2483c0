#include "bindings/core/arrays.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "bindings/core/arguments.h"
#include "reference/support/errors.h"

namespace ringside::bindings {

using namespace pybind11::literals;

namespace {

std::string dtype_of(const py::array& x) { return py::str(x.dtype()).cast<std::string>(); }

// A copy in C order of another type. Python's own errors, MemoryError above all, go on.
template <typename T>
py::array_t<T, py::array::c_style | py::array::forcecast> copied_to(const py::array& x) {
  return py::array_t<T, py::array::c_style | py::array::forcecast>(x);
}

// Gives a vector's memory to NumPy without copying it.
template <typename T>
py::array_t<T> adopt(std::vector<T>&& data, std::vector<py::ssize_t> shape) {
  auto owned = std::make_unique<std::vector<T>>(std::move(data));
  T* first = owned->data();
  py::capsule free(owned.release(), [](void* p) { delete static_cast<std::vector<T>*>(p); });
  return py::array_t<T>(std::move(shape), first, free);
}

// Heads and dimensions are int in the library.
void require_int_shape(const py::array& x, const char* name) {
  constexpr py::ssize_t kMost = std::numeric_limits<int32_t>::max();
  if (std::any_of(x.shape(), x.shape() + x.ndim(), [](py::ssize_t n) { return n > kMost; }))
    throw Unsupported(concat(name, " has shape ", shape_of(x), "; nearest supported: at most ",
                             kMost, " an axis"));
}

template <typename T>
int32_t narrow(T value, const char* name, py::ssize_t i) {
  require(std::in_range<int32_t>(value), name, "[", i, "]=", value,
          " does not fit int32; row numbers are at most 2147483647. Split the pack");
  return static_cast<int32_t>(value);
}

template <typename T>
std::vector<int32_t> narrowed(const py::array& x, const char* name) {
  const auto wide = copied_to<T>(x);
  std::vector<int32_t> narrow_ones(static_cast<size_t>(wide.size()));
  for (py::ssize_t i = 0; i < wide.size(); ++i)
    narrow_ones[static_cast<size_t>(i)] = narrow(wide.data()[i], name, i);
  return narrow_ones;
}

}  // namespace

std::string shape_of(const py::array& x) { return py::str(x.attr("shape")).cast<std::string>(); }

bool is_masked(const py::handle& x) {
  return py::isinstance(x, py::module_::import("numpy.ma").attr("MaskedArray"));
}

py::array as_array(const py::handle& x, const std::string& name) {
  if (is_masked(x))
    refuse_kind(x, name, "one that hides nothing. Pass " + name + ".filled(...), or its .data");
  try {
    return py::module_::import("numpy").attr("asarray")(x).cast<py::array>();
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_ValueError) && !error.matches(PyExc_TypeError)) throw;
    throw py::type_error(concat(name, " is ", kind_of(x), " that NumPy cannot read (",
                                py::str(error.value()).cast<std::string>(),
                                "); expected an array. Pass a NumPy array"));
  }
}

std::vector<int32_t> integers(const py::handle& x, const char* name) {
  const py::array array = as_array(x, name);
  const bool empty_list = array.size() == 0 && !py::isinstance<py::array>(x);
  const char kind = array.dtype().kind();
  if (kind != 'i' && kind != 'u' && !empty_list)
    throw py::type_error(concat(name, " has dtype ", dtype_of(array),
                                "; expected integers. Convert ", name, " to int32"));
  require(array.ndim() == 1, name, " has shape ", shape_of(array),
          "; expected one dimension. Pass ", name, ".reshape(-1) if that is what you mean");
  return kind == 'u' ? narrowed<uint64_t>(array, name) : narrowed<int64_t>(array, name);
}

DoubleArray floating(const py::array& x, const char* name) {
  if (x.dtype().kind() != 'f')
    throw py::type_error(concat(name, " has dtype ", dtype_of(x),
                                "; expected float16, float32 or float64. Convert ", name,
                                " to one of them"));
  require_int_shape(x, name);
  return copied_to<double>(x);
}

DoubleArray numbers(const py::handle& x, const char* name) {
  const py::array array = as_array(x, name);
  if (std::strchr("fiu", array.dtype().kind()) == nullptr)
    throw py::type_error(concat(name, " has dtype ", dtype_of(array),
                                "; expected numbers. Pass floats, or convert ", name,
                                " to float64"));
  require_int_shape(array, name);
  return copied_to<double>(array);
}

namespace {

// What to do about an array of other rows than the layout's.
std::string other_rows(const py::array& x, const std::string& name, const PackedLayout& layout) {
  const py::ssize_t rows = x.shape(0);
  if (x.shape(1) == layout.num_rows())
    return concat("Its second axis has as many: where that is [heads, rows, dim], pass ", name,
                  ".swapaxes(0, 1)");
  if (rows < layout.num_rows() && rows == layout.num_tokens())
    return "These are the tokens without their padding: give them their rows, layout.pack() of "
           "one array a sequence, or pass a layout without padding, PackedLayout(cu_seqlens)";
  if (rows < layout.num_rows())
    return concat("Pass all rows of the pack, or the layout of the ", rows, " that there are");
  return concat(
      "Where sequences are padded, give the layout cu_seqlens_padded as what padded them "
      "has it (Transformer Engine's cu_seqlens_q_padded). Where the ",
      rows - layout.num_rows(),
      " rows behind the last sequence are padding, and only there, take "
      "PackedLayout.from_te(..., num_rows=",
      rows, ")");
}

}  // namespace

DoubleArray tensor(const py::handle& x, const char* name, const PackedLayout& layout) {
  const py::array array = as_array(x, name);
  require(array.ndim() == 3, name, " has shape ", shape_of(array),
          "; expected three dimensions [rows, heads, dim] (THD)");
  require(array.shape(1) >= 1 && array.shape(2) >= 1, name, " has shape ", shape_of(array),
          "; expected at least one head and one dimension");
  if (array.shape(0) != layout.num_rows())
    fail<InvalidArgument>(name, " has ", array.shape(0), " rows but its layout ends at row ",
                          layout.num_rows(), "; they must agree. ",
                          other_rows(array, name, layout));
  return floating(array, name);
}

void require_shape(const DoubleArray& x, const char* name, int heads, int dim, const char* why) {
  require(x.shape(1) == heads && x.shape(2) == dim, name, " has shape ", shape_of(x),
          "; expected [", x.shape(0), ", ", heads, ", ", dim, "]: ", why);
}

DoubleArray lse_array(const py::handle& x, int num_heads, const PackedLayout& layout) {
  const py::array array = as_array(x, "lse");
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

py::array_t<int32_t> to_constant(const std::vector<int32_t>& x) {
  py::array_t<int32_t> array = to_array(x);
  array.attr("flags").attr("writeable") = false;
  return array;
}

std::vector<py::array> parts_of(const py::sequence& parts, const char* name, const char* what) {
  const py::list held(parts);  // whatever parts makes up as it is read lives as long as this
  std::vector<py::array> arrays;
  for (size_t i = 0; i < held.size(); ++i) {
    const py::array& x = arrays.emplace_back(as_array(held[i], concat(name, "[", i, "]")));
    const py::array& first = arrays.front();
    require(x.ndim() >= 1, what, " ", i, " is a scalar; expected an array of [rows, ...]");
    require(std::equal(x.shape() + 1, x.shape() + x.ndim(), first.shape() + 1,
                       first.shape() + first.ndim()),
            what, " ", i, " has shape ", shape_of(x), " and ", what, " 0 has ", shape_of(first),
            "; expected them alike but for the first axis");
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

py::object fill_value(const py::object& value, const py::dtype& dtype, const char* arrays) {
  const auto fill = py::module_::import("ringside._arguments.fill_value").attr("fill_value");
  return fill(value, dtype, "fill_value", arrays);
}

}  // namespace ringside::bindings
