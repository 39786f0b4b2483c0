// ringside.thd on device arrays, ringside._cuda_core.thd. Shapes and types are checked here; values
// lie on the device and are not: see ringside/thd/_on_device.py.
#include <algorithm>
#include <cstdlib>

#include "bindings/core/arguments.h"
#include "bindings/cuda/device_offsets.h"
#include "optimized/thd/rows.h"
#include "reference/thd/checks.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;
using DeviceArrays = std::vector<DeviceArray>;

int64_t bytes_of(const DeviceArray& x, const char* name) {
  static constexpr std::pair<const char*, int> kBytes[] = {
      {"bool", 1},     {"int8", 1},    {"uint8", 1},  {"int16", 2},  {"uint16", 2},
      {"int32", 4},    {"uint32", 4},  {"int64", 8},  {"uint64", 8}, {"float16", 2},
      {"bfloat16", 2}, {"float32", 4}, {"float64", 8}};
  if (x.dtype.rfind("float8_", 0) == 0) return 1;
  for (const auto& [dtype, bytes] : kBytes)
    if (x.dtype == dtype) return bytes;
  throw py::type_error(
      concat(name, " has dtype ", x.dtype,
             " on the device; expected integers, floating point numbers or "
             "booleans. View it as one of them, complex numbers by torch.view_as_real"));
}

// --- arrays of rows

// Rows may lie anywhere, but each must be dense.
int64_t row_elements(const DeviceArray& x, const char* name) {
  int64_t elements = 1;
  for (size_t i = x.shape.size(); i-- > 1;) {
    require(x.shape[i] == 1 || x.strides[i] == elements || elements == 0, name, " has shape ",
            x.shape_text(), " and a row that is not dense; expected rows without gaps. Pass ", name,
            ".contiguous(), or cupy.ascontiguousarray(", name, ")");
    elements *= x.shape[i];
  }
  constexpr int64_t kMost = int64_t{1} << 30;
  if (elements > kMost)
    throw Unsupported(
        concat("a row of ", name, " has ", elements, " elements; nearest supported: ", kMost));
  return elements;
}

int64_t pitch_of(const DeviceArray& x, int64_t elements) {
  return x.shape[0] > 1 ? x.strides[0] : elements;
}

// An array that is written: its rows must not share memory.
void require_own_rows(const DeviceArray& x, int64_t elements, const char* name) {
  require(std::abs(pitch_of(x, elements)) >= elements, name, " has rows ", pitch_of(x, elements),
          " elements apart but ", elements,
          " long; expected rows that do not overlap. Pass a copy");
}

struct AddressRange {  // [begin, end)
  uintptr_t begin, end;
};

AddressRange memory_of(const DeviceArray& x, int64_t elements, int64_t bytes) {
  if (x.shape[0] == 0 || elements == 0) return {x.data, x.data};
  const int64_t last = (x.shape[0] - 1) * pitch_of(x, elements);
  const int64_t low = std::min(last, int64_t{0}), high = std::max(last, int64_t{0}) + elements;
  return {x.data + low * bytes, x.data + high * bytes};
}

void require_apart(const AddressRange& a, const AddressRange& b, const char* names) {
  const bool empty = a.begin == a.end || b.begin == b.end;
  require(empty || a.end <= b.begin || b.end <= a.begin, names,
          " share memory; expected two arrays. Pass a copy of one");
}

void require_same_rows(const Named& from, const Named& to) {
  const auto tail = [](const DeviceArray& x) {
    return std::vector<int64_t>(x.shape.begin() + 1, x.shape.end());
  };
  require(tail(from.array) == tail(to.array), from.name, " has shape ", from.array.shape_text(),
          " and ", to.name, " has shape ", to.array.shape_text(),
          "; expected rows of the same shape");
}

thd::RowCopyArrays copy_arrays(const Named& from, const Named& to) {
  num_rows_of(from.array, from.name), num_rows_of(to.array, to.name);
  require_same_rows(from, to);
  require(from.array.dtype == to.array.dtype, from.name, " has dtype ", from.array.dtype, " and ",
          to.name, " has ", to.array.dtype, "; expected the same. Convert one");
  const int64_t bytes = bytes_of(from.array, from.name);
  const int64_t elements = row_elements(from.array, from.name);
  row_elements(to.array, to.name);
  require_own_rows(to.array, elements, to.name);
  require_apart(memory_of(from.array, elements, bytes), memory_of(to.array, elements, bytes),
                concat(to.name, " and ", from.name).c_str());
  return {pointer<void>(from.array.data), pointer<void>(to.array.data),
          pitch_of(from.array, elements) * bytes, pitch_of(to.array, elements) * bytes,
          elements * bytes};
}

// --- rows

int64_t table_size(int cp_size, int64_t batch) {
  thd::check_cp_size(cp_size);
  return cp_size * batch;
}

void reorder(const DeviceArrays& from, const DeviceArrays& to, const DeviceArray& starts,
             int cp_size, bool to_ranks, uintptr_t table, const DeviceStream& place) {
  thd::check_cp_size(cp_size);
  require(!from.empty() && from.size() == to.size(), "expected as many arrays as results");
  const DeviceOffsets offsets_of_sequences = offsets({starts, "cu_seqlens_padded"});
  const int rows = num_rows_of(from[0], "x");
  std::vector<thd::RowCopyArrays> arrays;
  for (size_t i = 0; i < from.size(); ++i) {
    arrays.push_back(copy_arrays({from[i], "x"}, {to[i], "the result"}));
    require(from[i].shape[0] == rows, "array ", i, " has ", from[i].shape[0],
            " rows and the first one has ", rows,
            "; expected arrays of the same rows. Reorder the others in a call of their own");
  }
  const thd::ReorderMap map{offsets_of_sequences, cp_size, rows, to_ranks};
  const py::gil_scoped_release release;
  const OnDevice on(place.device);
  thd::reorder_rows(arrays, map, pointer<uint32_t>(table), place.handle());
}

void copy_valid_tokens(const DeviceArray& out, const DeviceArray& step_out,
                       const DeviceArray& starts, const DeviceArray& valid,
                       const DeviceStream& place) {
  require(out.shape == step_out.shape, "step_out has shape ", step_out.shape_text(),
          " and out has shape ", out.shape_text(),
          "; expected the same. A step's output has the rows of the whole rank");
  const thd::RowCopyArrays arrays = copy_arrays({step_out, "step_out"}, {out, "out"});
  const thd::ValidRowMap map{offsets({starts, "cu_seqlens_padded"}), offsets({valid, "cu_seqlens"}),
                             num_rows_of(out, "out")};
  require(map.starts.size == map.valid.size, "cu_seqlens has ", map.valid.size,
          " entries and cu_seqlens_padded has ", map.starts.size,
          "; both must have [batch+1]. Pass one entry a sequence in each, plus the leading one");
  const py::gil_scoped_release release;
  const OnDevice on(place.device);
  thd::copy_valid_rows(arrays, map, place.handle());
}

thd::SegmentMap segment_map(const DeviceArray& segments, const DeviceArray& to,
                            const DeviceArray& from) {
  const bool wide = is_wide({segments, "segments"});
  require(segments.shape.size() == 2 && segments.shape[1] == thd::SegmentMap::kColumns,
          "segments has shape ", segments.shape_text(),
          "; expected [segments, 5]: from_row, from_step, to_row, to_step, rows");
  const int count = num_rows_of(segments, "segments");
  require(count <= 1 || segments.strides == std::vector<int64_t>{thd::SegmentMap::kColumns, 1},
          "segments is not dense in memory. Pass a contiguous copy");
  return {pointer<void>(segments.data), count, wide, num_rows_of(from, "x"),
          num_rows_of(to, "out")};
}

void copy_rows(const DeviceArray& out, const DeviceArray& x, const DeviceArray& segments,
               uintptr_t table, const DeviceStream& place) {
  const thd::RowCopyArrays arrays = copy_arrays({x, "x"}, {out, "out"});
  const thd::SegmentMap map = segment_map(segments, out, x);
  const py::gil_scoped_release release;
  const OnDevice on(place.device);
  thd::move_rows(arrays, map, pointer<int64_t>(table), place.handle());
}

void add_rows(const DeviceArray& sum, const DeviceArray& x, const DeviceArray& segments,
              uintptr_t table, const DeviceStream& place) {
  const thd::SegmentMap map = segment_map(segments, sum, x);
  require_same_rows({x, "x"}, {sum, "accumulator"});
  if (sum.dtype != "float32")
    throw py::type_error(concat("accumulator has dtype ", sum.dtype,
                                "; expected float32, in which sums are kept. Convert it"));
  const ElementType type = x.type();
  const int64_t elements = row_elements(x, "x"), bytes = bytes_of(x, "x");
  row_elements(sum, "accumulator");
  require_own_rows(sum, elements, "accumulator");
  require_apart(memory_of(x, elements, bytes), memory_of(sum, elements, sizeof(float)),
                "accumulator and x");
  const thd::RowSumArrays arrays{pointer<void>(x.data),
                                 pointer<float>(sum.data),
                                 pitch_of(x, elements),
                                 pitch_of(sum, elements),
                                 elements,
                                 type};
  const py::gil_scoped_release release;
  const OnDevice on(place.device);
  thd::add_rows(arrays, map, pointer<int64_t>(table), place.handle());
}

}  // namespace

void bind_cuda_thd(py::module_& m) {
  py::module_ thd = m.def_submodule("thd", "ringside.thd on device arrays. Import that instead.");
  py::class_<DeviceStream>(thd, "DeviceStream", "A device and a stream of it.")
      .def(py::init<int, uintptr_t>(), "device"_a, "stream"_a);
  thd.def("table_size", strictly<"cp_size", "batch">(&table_size), "cp_size"_a, "batch"_a,
          "int32 elements of reorder()'s table.");
  thd.def(
      "reorder",
      strictly<"x", "out", "cu_seqlens_padded", "cp_size", "to_ranks", "table", "place">(&reorder),
      "x"_a, "out"_a, "cu_seqlens_padded"_a, "cp_size"_a, "to_ranks"_a, "table"_a, "place"_a);
  thd.def("copy_valid_tokens", &copy_valid_tokens, "out"_a, "step_out"_a, "cu_seqlens_padded"_a,
          "cu_seqlens"_a, "place"_a);
  thd.def("copy_rows", &copy_rows, "out"_a, "x"_a, "segments"_a, "table"_a, "place"_a);
  thd.def("add_rows", &add_rows, "accumulator"_a, "x"_a, "segments"_a, "table"_a, "place"_a);
  bind_cuda_thd_metadata(thd);
}

}  // namespace ringside::bindings
