#include "reference/rows/mask.h"

#include <pybind11/operators.h>
#include <pybind11/typing.h>

#include <span>

#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/module.h"
#include "reference/support/errors.h"
#include "reference/support/names.h"

namespace ringside::bindings {

template <Name kName>
struct Integers {  // a list or an array of one dimension; anything else is for another overload
  std::vector<int32_t> values;
};

template <Name kName>
struct IntegerOrIntegers {
  std::vector<int32_t> values;

  int at(size_t i) const { return values.size() == 1 ? values[0] : values[i]; }
  void check_count(size_t count) const {
    require(values.size() == 1 || values.size() == count, kName.text, " has ", values.size(),
            " entries; expected one for all, or one for each of ", count);
  }
};

}  // namespace ringside::bindings

namespace pybind11::detail {

template <ringside::bindings::Name kName>
struct type_caster<ringside::bindings::Integers<kName>> {
  using Integers = ringside::bindings::Integers<kName>;
  PYBIND11_TYPE_CASTER(Integers,
                       const_name("numpy.typing.NDArray[numpy.integer[typing.Any]] | list[int]"));

  bool load(handle x, bool) {
    if (!ringside::bindings::is_list(x)) return false;
    value.values = ringside::bindings::integers(x, kName.text);
    return true;
  }
};

template <ringside::bindings::Name kName>
struct type_caster<ringside::bindings::IntegerOrIntegers<kName>> {
  using IntegerOrIntegers = ringside::bindings::IntegerOrIntegers<kName>;
  PYBIND11_TYPE_CASTER(IntegerOrIntegers,
                       const_name("typing.SupportsIndex | "
                                  "numpy.typing.NDArray[numpy.integer[typing.Any]] | "
                                  "list[int]"));

  bool load(handle x, bool) {  // throws where x does not fit
    if (ringside::bindings::is_list(x))
      value.values = ringside::bindings::integers(x, kName.text);
    else
      value.values = {ringside::bindings::converted<int32_t>(x, kName.text)};
    return true;
  }
};

}  // namespace pybind11::detail

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;
using MaskClass = py::class_<Mask>;

struct NamedAlign {
  const char* name;
  Align align;
};
constexpr NamedAlign kAligns[] = {{"top_left", Align::top_left},
                                  {"bottom_right", Align::bottom_right}};

Align align_from(const std::string& name) {
  return find_by_name("align", std::span<const NamedAlign>(kAligns), name).align;
}
const char* name_of(Align align) { return kAligns[static_cast<int>(align)].name; }

Mask checked(Mask mask) {
  check_mask(mask);
  return mask;
}

void check_lengths(int len_q, int len_k) {
  require(len_q >= 0 && len_k >= 0, "len_q=", len_q, ", len_k=", len_k,
          "; lengths cannot be negative");
}

void check_query(int q, int len_q) {
  require(0 <= q && q < len_q, "q=", q, " is no query of len_q=", len_q,
          "; expected at least 0 and less than len_q. Padding sees nothing: leave it out");
}

// Rows beyond the queries are padding, which sees nothing.
enum class Asked { queries, rows };

std::string words_of_mask(const Mask& mask) {
  return concat("Mask(window_size=(", mask.left, ", ", mask.right, "), chunk_size=", mask.chunk,
                ", align=\"", name_of(mask.align), "\")");
}

template <Asked kAsked>
py::typing::Tuple<py::array_t<int32_t>, py::array_t<int32_t>> visible_of_each(
    const Mask& mask, const Integers<"q">& queries, const IntegerOrIntegers<"len_q">& len_q,
    const IntegerOrIntegers<"len_k">& len_k) {
  const auto& q = queries.values;
  len_q.check_count(q.size());
  len_k.check_count(q.size());
  std::vector<int32_t> begin(q.size()), end(q.size());
  for (size_t i = 0; i < q.size(); ++i) {
    check_lengths(len_q.at(i), len_k.at(i));
    if (kAsked == Asked::queries) check_query(q[i], len_q.at(i));
    const Interval seen = mask.visible(q[i], len_q.at(i), len_k.at(i));
    begin[i] = seen.begin;
    end[i] = seen.end;
  }
  return py::make_tuple(to_array(begin), to_array(end));
}

py::array_t<bool> to_dense(const Mask& mask, int len_q, int len_k) {
  check_lengths(len_q, len_k);
  py::array_t<bool> dense({len_q, len_k});
  auto cells = dense.mutable_unchecked<2>();
  for (int q = 0; q < len_q; ++q)
    for (int k = 0; k < len_k; ++k) cells(q, k) = mask.allows(q, k, len_q, len_k);
  return dense;
}

void bind_constructors(MaskClass& cls) {
  cls.def(py::init(strictly<"window_size", "chunk_size", "align">(
              [](std::pair<int, int> window_size, int chunk_size, const std::string& align) {
                const auto [left, right] = window_size;
                return checked({left, right, chunk_size, align_from(align)});
              })),
          "window_size"_a = std::pair(kUnbounded, kUnbounded), "chunk_size"_a = 0,
          "align"_a = "top_left")
      .def_static("full", &Mask::full, R"doc(
Every query sees every key of its sequence.

>>> import ringside as rs
>>> rs.Mask.full()
Mask(window_size=(-1, -1), chunk_size=0, align="top_left")
)doc")
      .def_static("causal", strictly<"align">([](const std::string& align) {
                    return Mask::causal(align_from(align));
                  }),
                  py::kw_only(), "align"_a = "top_left", R"doc(
A query sees the keys up to its own position.

>>> import ringside as rs
>>> rs.Mask.causal().to_dense(2, 3).astype(int).tolist()
[[1, 0, 0], [1, 1, 0]]
>>> rs.Mask.causal(align="bottom_right").to_dense(2, 3).astype(int).tolist()
[[1, 1, 0], [1, 1, 1]]
)doc");
}

void bind_windows_and_chunks(MaskClass& cls) {
  cls.def_static(
         "sliding_window",
         strictly<"left", "right", "align">([](int left, int right, const std::string& align) {
           return checked(Mask::sliding_window(left, right, align_from(align)));
         }),
         "left"_a, "right"_a, py::kw_only(), "align"_a = "top_left", R"doc(
A query sees `left` keys before its position and `right` behind it, itself included; -1 is unbounded.

>>> import ringside as rs
>>> rs.Mask.sliding_window(1, 1).to_dense(3, 3).astype(int).tolist()
[[1, 1, 0], [1, 1, 1], [0, 1, 1]]
)doc")
      .def_static("chunked",
                  strictly<"chunk_size", "align">([](int chunk_size, const std::string& align) {
                    require(chunk_size >= 1, "chunk_size=", chunk_size,
                            "; expected at least 1 token. For no chunks use Mask.causal()");
                    return Mask::chunked(chunk_size, align_from(align));
                  }),
                  "chunk_size"_a, py::kw_only(), "align"_a = "top_left", R"doc(
Causal inside chunks of chunk_size tokens (Llama 4).

>>> import ringside as rs
>>> rs.Mask.chunked(2).to_dense(4, 4).astype(int).tolist()
[[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
)doc");
}

void bind_visible(MaskClass& cls) {
  cls.def_property_readonly("window_size",
                            [](const Mask& mask) { return std::pair(mask.left, mask.right); })
      .def_property_readonly("chunk_size", [](const Mask& mask) { return mask.chunk; })
      .def_property_readonly("align", [](const Mask& mask) { return name_of(mask.align); })
      .def("_visible", &visible_of_each<Asked::rows>, "q"_a, "len_q"_a, "len_k"_a,
           "visible() of rows, [n]: those that are padding see nothing.")
      .def("visible", &visible_of_each<Asked::queries>, "q"_a, "len_q"_a, "len_k"_a)
      .def("visible",
           strictly<"q", "len_q", "len_k">([](const Mask& mask, int q, int len_q, int len_k) {
             check_lengths(len_q, len_k);
             check_query(q, len_q);
             const Interval visible = mask.visible(q, len_q, len_k);
             return std::pair(visible.begin, visible.end);
           }),
           "q"_a, "len_q"_a, "len_k"_a, R"doc(
The keys that query q sees: one interval (begin, end), end not included; begin == end for none.

Of several queries q [n], begin and end are [n] int32 each; the lengths are one, or one for each.

Raises:
    ValueError: a query that is not 0 to len_q - 1, a negative length.

>>> import numpy as np, ringside as rs
>>> rs.Mask.causal().visible(3, len_q=5, len_k=5)
(0, 4)
>>> begin, end = rs.Mask.sliding_window(1, 0).visible(np.arange(4), len_q=4, len_k=4)
>>> begin.tolist(), end.tolist()
([0, 0, 1, 2], [1, 2, 3, 4])
)doc");
}

void bind_pairs(MaskClass& cls) {
  cls.def("allows",
          strictly<"q", "k", "len_q", "len_k">(
              [](const Mask& mask, int q, int k, int len_q, int len_k) {
                check_lengths(len_q, len_k);
                return mask.allows(q, k, len_q, len_k);
              }),
          "q"_a, "k"_a, "len_q"_a, "len_k"_a, R"doc(
Whether query q sees key k: the definition.

>>> import ringside as rs
>>> rs.Mask.causal().allows(3, 4, len_q=5, len_k=5)
False
)doc")
      .def("to_dense", strictly<"len_q", "len_k">(&to_dense), "len_q"_a, "len_k"_a, R"doc(
The mask of one sequence as a [len_q, len_k] array of bool, True where visible.

>>> import ringside as rs
>>> rs.Mask.full().to_dense(1, 2).tolist()
[[True, True]]
)doc");
}

}  // namespace

void bind_mask(py::module_& m) {
  MaskClass cls(m, "Mask", R"doc(
Which keys a query may see: a window, chunks and an alignment. Not a kind: full, causal, sliding-window
and chunked masks are values of the same three settings and combine.

With p = q (align="top_left") or p = q + len_k - len_q ("bottom_right", FlashAttention's convention),
query q of a sequence sees key k if p-left <= k <= p+right and, with chunks, floor(p/chunk_size) ==
k // chunk_size. Positions count from the start of the sequence, lengths are its valid lengths.

Args:
    window_size: (left, right), inclusive numbers of tokens; -1 is unbounded. (-1, 0) is causal.
    chunk_size: tokens of a chunk (Llama 4); 0 for none. Chunks restart at each sequence.
    align: "top_left" or "bottom_right"; they differ only where q and k have unequal lengths.

Raises:
    ValueError: a bound below -1, a negative chunk_size, an unknown alignment.

>>> import ringside as rs
>>> rs.Mask(window_size=(2, 0)).visible(5, len_q=8, len_k=8)
(3, 6)
)doc");
  bind_constructors(cls);
  bind_windows_and_chunks(cls);
  bind_visible(cls);
  bind_pairs(cls);
  cls.def(py::self == py::self)
      .def("__hash__",
           [](const Mask& mask) {
             return py::hash(
                 py::make_tuple(mask.left, mask.right, mask.chunk, static_cast<int>(mask.align)));
           })
      .def("__reduce__",
           [](const py::object& self) {
             const auto& mask = self.cast<const Mask&>();
             return constructor_call(self, std::pair(mask.left, mask.right), mask.chunk,
                                     name_of(mask.align));
           })
      .def("__repr__", &words_of_mask);
}

}  // namespace ringside::bindings
