#include <pybind11/operators.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/module.h"
#include "reference/support/errors.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;
using LayoutClass = py::class_<PackedLayout>;

py::list as_list(const std::vector<int32_t>& x) {
  py::list list;
  for (const int32_t value : x) list.append(value);
  return list;
}

std::string repr(const PackedLayout& layout) {
  std::string text =
      "PackedLayout(cu_seqlens=" + py::repr(as_list(layout.cu_seqlens())).cast<std::string>();
  if (layout.cu_seqlens() != layout.cu_seqlens_padded())
    text +=
        ", cu_seqlens_padded=" + py::repr(as_list(layout.cu_seqlens_padded())).cast<std::string>();
  return text + ")";
}

std::vector<int32_t> lengths(const PackedLayout& layout, int (PackedLayout::*length)(int) const) {
  std::vector<int32_t> all;
  for (int s = 0; s < layout.batch(); ++s) all.push_back((layout.*length)(s));
  return all;
}

py::slice rows(int begin, int count) { return py::slice(begin, begin + count, 1); }

py::array rows_of_layout(const PackedLayout& layout, const py::object& x) {
  const py::array array = as_array(x, "x");
  require(array.ndim() >= 1 && array.shape(0) == layout.num_rows(), "x has shape ", shape_of(array),
          "; expected ", layout.num_rows(), " rows on its first axis, as many as the layout has");
  return array;
}

py::object pack(const PackedLayout& layout, const py::sequence& arrays, const py::object& fill) {
  require(static_cast<int>(py::len(arrays)) == layout.batch(), "got ", py::len(arrays),
          " arrays; expected one for each of the ", layout.batch(), " sequences");
  if (layout.batch() == 0) return py::module_::import("numpy").attr("empty")(0);
  const auto parts = parts_of(arrays, "arrays", "sequence");
  const py::array packed = room_for(parts, layout.num_rows());
  packed.attr("fill")(fill_value(fill, packed.dtype(), "arrays"));
  for (int s = 0; s < layout.batch(); ++s) {
    require(parts[s].shape(0) == layout.len(s), "sequence ", s, " has shape ", shape_of(parts[s]),
            "; expected ", layout.len(s), " tokens on its first axis");
    packed[rows(layout.row_begin(s), layout.len(s))] = parts[s];
  }
  return packed;
}

py::list unpack(const PackedLayout& layout, const py::object& x) {
  const py::array array = rows_of_layout(layout, x);
  py::list sequences;
  for (int s = 0; s < layout.batch(); ++s)
    sequences.append(array[rows(layout.row_begin(s), layout.len(s))].attr("copy")());
  return sequences;
}

py::object roll(const PackedLayout& layout, const py::object& x, int asked,
                const py::object& fill) {
  const py::array array = rows_of_layout(layout, x);
  const int shift = std::clamp(asked, -layout.num_rows(), layout.num_rows());
  const py::object held = fill_value(fill, array.dtype(), "x");
  py::object rolled = py::module_::import("numpy").attr("full_like")(array, held);
  for (int s = 0; s < layout.batch(); ++s) {
    const int row = layout.row_begin(s), kept = layout.len(s) - std::abs(shift);
    if (kept > 0)
      rolled[rows(row + std::max(shift, 0), kept)] = array[rows(row + std::max(-shift, 0), kept)];
  }
  return rolled;
}

PackedLayout from_te(const py::object& cu_seqlens, const py::object& cu_seqlens_padded,
                     std::optional<int> num_rows) {
  auto valid = integers(cu_seqlens, "cu_seqlens");
  auto padded =
      cu_seqlens_padded.is_none() ? valid : integers(cu_seqlens_padded, "cu_seqlens_padded");
  const int rows = num_rows.value_or(padded.empty() ? 0 : padded.back());
  return PackedLayout::from_te(std::move(valid), std::move(padded), rows);
}

void bind_lengths(LayoutClass& cls) {
  cls.def(py::init([](const py::object& cu_seqlens, const py::object& cu_seqlens_padded) {
            auto valid = integers(cu_seqlens, "cu_seqlens");
            if (cu_seqlens_padded.is_none()) return PackedLayout(std::move(valid));
            return PackedLayout(std::move(valid), integers(cu_seqlens_padded, "cu_seqlens_padded"));
          }),
          "cu_seqlens"_a, "cu_seqlens_padded"_a = py::none())
      .def_static(
          "from_lengths",
          strictly<"lengths", "pad_to_multiple_of">([](const py::object& lengths, int multiple) {
            return PackedLayout::from_lengths(integers(lengths, "lengths"), multiple);
          }),
          "lengths"_a, py::kw_only(), "pad_to_multiple_of"_a = 1, R"doc(
A layout of sequences of these lengths, each one's rows rounded up to a multiple.

Transformer Engine's context parallelism wants multiples of 2*cp_size; Ringside needs none.

>>> import ringside as rs
>>> rs.PackedLayout.from_lengths([5, 7, 0, 3], pad_to_multiple_of=8)
PackedLayout(cu_seqlens=[0, 5, 12, 12, 15], cu_seqlens_padded=[0, 8, 16, 16, 24])
)doc");
}

// Conventions of packages that pack sequences, too.
void bind_offsets_of_others(LayoutClass& cls) {
  cls.def_static("from_te", strictly<"cu_seqlens", "cu_seqlens_padded", "num_rows">(&from_te),
                 "cu_seqlens"_a, "cu_seqlens_padded"_a = py::none(), py::kw_only(),
                 "num_rows"_a = py::none(), R"doc(
From Transformer Engine's arguments: rows behind the last offset, up to num_rows, are padding.

Args:
    cu_seqlens, cu_seqlens_padded: [batch+1] integers, as TE's cu_seqlens_q and cu_seqlens_q_padded.
        Repeated final offsets (placeholders for a static batch size) are empty sequences.
    num_rows: rows of q, where it has more than the offsets say; default their last entry.

>>> import ringside as rs
>>> rs.PackedLayout.from_te([0, 5, 12, 12], [0, 8, 16, 16], num_rows=20)
PackedLayout(cu_seqlens=[0, 5, 12, 12], cu_seqlens_padded=[0, 8, 16, 20])
)doc")
      .def_static(
          "from_flash",
          [](const py::object& cu_seqlens, const py::object& seqused) {
            auto starts = integers(cu_seqlens, "cu_seqlens");
            if (seqused.is_none()) return PackedLayout(std::move(starts));
            return PackedLayout::from_flash(std::move(starts), integers(seqused, "seqused"));
          },
          "cu_seqlens"_a, "seqused"_a = py::none(), R"doc(
From FlashAttention 3's arguments: cu_seqlens says where rows start, seqused how many are valid.

>>> import ringside as rs
>>> rs.PackedLayout.from_flash([0, 8, 16], seqused=[5, 7])
PackedLayout(cu_seqlens=[0, 5, 12], cu_seqlens_padded=[0, 8, 16])
)doc");
}

void bind_ids_of_rows(LayoutClass& cls) {
  cls.def_static(
         "from_position_ids",
         [](const py::object& position_ids) {
           return PackedLayout::from_position_ids(integers(position_ids, "position_ids"));
         },
         "position_ids"_a, R"doc(
From one position a row, restarting at 0 where a document begins (Hugging Face's packing).

Positions cannot tell padding from tokens: rows that count on behind a document are taken as its
tokens. Where there is padding, use from_segment_ids or give cu_seqlens_padded.

>>> import ringside as rs
>>> rs.PackedLayout.from_position_ids([0, 1, 2, 0, 1])
PackedLayout(cu_seqlens=[0, 3, 5])
)doc")
      .def_static(
          "from_segment_ids",
          [](const py::object& segment_ids) {
            return PackedLayout::from_segment_ids(integers(segment_ids, "segment_ids"));
          },
          "segment_ids"_a, R"doc(
From one document id a row; 0 is padding (JAX's and T5's packing). A document is one run of rows.

>>> import ringside as rs
>>> rs.PackedLayout.from_segment_ids([1, 1, 0, 2, 2, 2])
PackedLayout(cu_seqlens=[0, 2, 5], cu_seqlens_padded=[0, 3, 6])
)doc");
}

void bind_numbers(LayoutClass& cls) {
  cls.def_property_readonly(
         "cu_seqlens", [](const PackedLayout& l) { return to_constant(l.cu_seqlens()); },
         "[batch+1] int32: cumulative numbers of valid tokens.")
      .def_property_readonly(
          "cu_seqlens_padded",
          [](const PackedLayout& l) { return to_constant(l.cu_seqlens_padded()); },
          "[batch+1] int32: the row where each sequence starts; last, the number of rows.")
      .def_property_readonly(
          "lengths",
          [](const PackedLayout& l) { return to_constant(lengths(l, &PackedLayout::len)); },
          "[batch] int32: valid tokens of each sequence.")
      .def_property_readonly(
          "padded_lengths",
          [](const PackedLayout& l) { return to_constant(lengths(l, &PackedLayout::padded_len)); },
          "[batch] int32: rows of each sequence, padding included.")
      .def_property_readonly("num_sequences", &PackedLayout::batch)
      .def_property_readonly("num_rows", &PackedLayout::num_rows, "Rows, padding included.")
      .def_property_readonly("num_tokens", &PackedLayout::num_tokens, "Valid tokens.");
}

void bind_rows(LayoutClass& cls) {
  cls.def("pack", strictly<"arrays", "fill_value">(&pack), "arrays"_a, py::kw_only(),
          "fill_value"_a = 0, R"doc(
One array of all rows from one array [tokens, ...] a sequence; padding rows hold fill_value.

>>> import numpy as np, ringside as rs
>>> layout = rs.PackedLayout([0, 2, 3], [0, 3, 5])
>>> layout.pack([np.array([1, 2]), np.array([3])], fill_value=-1).tolist()
[1, 2, -1, 3, -1]
)doc")
      .def("unpack", &unpack, "x"_a, R"doc(
One array [tokens, ...] a sequence from an array of all rows; the inverse of pack.

>>> import numpy as np, ringside as rs
>>> layout = rs.PackedLayout([0, 2, 3], [0, 3, 5])
>>> [a.tolist() for a in layout.unpack(np.array([1, 2, -1, 3, -1]))]
[[1, 2], [3]]
)doc")
      .def("roll", strictly<"x", "shift", "fill_value">(&roll), "x"_a, "shift"_a = -1,
           py::kw_only(), "fill_value"_a = 0, R"doc(
Shifts x along its rows within each sequence; nothing crosses into a neighbour.

With the default shift of -1 token i gets the value of token i+1: next-token labels. Tokens without a
source, and padding, get fill_value (-100 is what cross-entropy losses ignore).

>>> import numpy as np, ringside as rs
>>> layout = rs.PackedLayout([0, 3, 5])
>>> layout.roll(np.array([1, 2, 3, 7, 8]), fill_value=-100).tolist()
[2, 3, -100, 8, -100]
)doc");
}

}  // namespace

void bind_layout(py::module_& m) {
  LayoutClass cls(m, "PackedLayout", R"doc(
Sequences packed end to end (THD): how many tokens each has, and in which rows they lie.

Args:
    cu_seqlens: [batch+1] integers, cumulative numbers of VALID tokens, starting at 0.
    cu_seqlens_padded: [batch+1] integers, the row where each sequence starts and, last, the number
        of rows. Rows behind a sequence's tokens are padding: never read, always zero in results.
        Default: cu_seqlens, that is no padding.

int32 and int64 are accepted (range-checked), lists too. Zero-length sequences are legal. These are
the conventions of FlashAttention's varlen functions and of Transformer Engine's THD format.

Raises:
    ValueError: not starting at 0, falling, unequal lengths, more tokens than rows, beyond int32.
    TypeError: not integers.

>>> import ringside as rs
>>> layout = rs.PackedLayout([0, 5, 12], [0, 8, 16])
>>> layout.lengths.tolist(), layout.padded_lengths.tolist(), layout.num_rows
([5, 7], [8, 8], 16)
)doc");
  bind_lengths(cls);
  bind_offsets_of_others(cls);
  bind_ids_of_rows(cls);
  bind_numbers(cls);
  bind_rows(cls);
  cls.def(py::self == py::self)
      .def("__reduce__",
           [](const py::object& self) {
             const auto& layout = self.cast<const PackedLayout&>();
             return constructor_call(self, to_array(layout.cu_seqlens()),
                                     to_array(layout.cu_seqlens_padded()));
           })
      .def("__repr__", &repr);
}

}  // namespace ringside::bindings
