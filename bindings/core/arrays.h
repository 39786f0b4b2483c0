// Between NumPy and the library: every check of an array argument happens here, once.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reference/attention/tensor.h"
#include "reference/rows/packed_layout.h"

namespace ringside::bindings {

namespace py = pybind11;

// float64, C-contiguous; float16 and float32 are converted, other strides copied.
using DoubleArray = py::array_t<double, py::array::c_style | py::array::forcecast>;

// Whether x is one of numpy.ma, which NumPy would silently unmask.
bool is_masked(const py::handle& x);

// x as NumPy sees it; refuses what it cannot read, and masked arrays.
py::array as_array(const py::handle& x, const std::string& name);

// float64, from float16, float32 or float64; MemoryError where that is too much.
DoubleArray floating(const py::array& x, const char* name);

// One number or several, of any real type, in float64.
DoubleArray numbers(const py::handle& x, const char* name);

// [batch+1] integers of any width that fit int32.
std::vector<int32_t> integers(const py::handle& x, const char* name);

// A floating [rows, heads, dim] array whose rows are the layout's.
DoubleArray tensor(const py::handle& x, const char* name, const PackedLayout& layout);
void require_shape(const DoubleArray& x, const char* name, int heads, int dim, const char* why);

// lse is [num_heads, rows] for users, [rows, num_heads, 1] in a Tensor.
DoubleArray lse_array(const py::handle& x, int num_heads, const PackedLayout& layout);
Tensor rows_first(const DoubleArray& lse);
py::array_t<double> heads_first(const Tensor& lse);

TensorView view(const DoubleArray& x);
py::array_t<double> to_array(Tensor&& x);  // [rows, heads, dim]
py::array_t<double> to_array(std::vector<double>&& x, std::vector<py::ssize_t> shape);
py::array_t<int32_t> to_array(const std::vector<int32_t>& x);
py::array_t<int32_t> to_constant(const std::vector<int32_t>& x);  // which nobody may write to

// Arrays [rows, ...] alike but for their rows, and one that can hold rows of any of them. name is
// the argument's, what is the word for one of them.
std::vector<py::array> parts_of(const py::sequence& parts, const char* name, const char* what);
py::array room_for(const std::vector<py::array>& parts, int rows);

// value as the dtype holds it, see ringside/_fill_value.py; arrays is what the caller calls them.
py::object fill_value(const py::object& value, const py::dtype& dtype, const char* arrays);

std::string shape_of(const py::array& x);

}  // namespace ringside::bindings
