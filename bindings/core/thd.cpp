// The peers' primitives, ringside._core.thd. ringside/thd.py documents them.
#include <optional>
#include <utility>

#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/module.h"
#include "reference/support/errors.h"
#include "reference/thd/chunkify.h"
#include "reference/thd/micro_sequence.h"
#include "reference/thd/reorder.h"
#include "reference/thd/step_metadata.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;

// --- rows

std::string dtype_of(const py::array& x) { return py::str(x.dtype()).cast<std::string>(); }

// Rows of plain bytes, back to back: copied if need be.
py::array plain_rows(const py::handle& x, const char* name) {
  const py::array array = as_array(x, name);
  require(array.ndim() >= 1, name, " is a scalar; expected an array of [rows, ...]");
  if (array.dtype().attr("hasobject").cast<bool>())
    throw py::type_error(concat(name, " has dtype ", dtype_of(array),
                                "; expected numbers, booleans or records of them, whose bytes can "
                                "be moved. Convert it, e.g. ",
                                name, ".astype(np.float32)"));
  return py::module_::import("numpy").attr("ascontiguousarray")(array).cast<py::array>();
}

py::array empty_like(const py::array& x) {
  return py::module_::import("numpy").attr("empty")(x.attr("shape"), "dtype"_a = x.dtype());
}

void copy(const thd::RowCopies& copies, const py::array& source, py::array& target) {
  const int64_t row_bytes = source.shape(0) == 0 ? 0 : source.nbytes() / source.shape(0);
  const thd::RowBuffers buffers{static_cast<const std::byte*>(source.data()),
                                static_cast<std::byte*>(target.mutable_data()), row_bytes};
  const py::gil_scoped_release release;
  thd::copy_rows(copies, buffers);
}

using Reorder = thd::RowCopies (*)(const thd::Offsets& cu_seqlens_padded, int cp_size);

template <Reorder reorder>
py::array reordered(const py::object& x, const py::object& cu_seqlens_padded, int cp_size) {
  const py::array source = plain_rows(x, "x");
  const thd::Offsets offsets = integers(cu_seqlens_padded, "cu_seqlens_padded");
  thd::check_covers(offsets, source.shape(0));
  py::array target = empty_like(source);
  copy(reorder(offsets, cp_size), source, target);
  return target;
}

py::array_t<int32_t> partition_indices(const py::object& cu_seqlens_padded, int cp_size, int rank) {
  return to_array(
      thd::partition_indices(integers(cu_seqlens_padded, "cu_seqlens_padded"), {cp_size, rank}));
}

// out as it lies in memory: writing to a copy of it would be lost.
py::array written_in_place(const py::object& out) {
  if (!py::isinstance<py::array>(out))
    throw py::type_error(concat("out is a ", py::str(py::type::of(out)).cast<std::string>(),
                                "; expected a NumPy array, which is written in place. For a tensor "
                                "in CPU memory pass np.asarray(out), which shares its memory"));
  auto array = out.cast<py::array>();
  require(array.writeable(), "out is read-only; expected an array to write to. Pass out.copy()");
  require((array.flags() & py::array::c_style) != 0, "out has strides ",
          py::str(array.attr("strides")).cast<std::string>(), " for shape ", shape_of(array),
          "; expected C-contiguous rows, as it is written in place. Pass "
          "np.ascontiguousarray(out) and keep that array");
  return array;
}

void copy_valid_tokens(const py::object& out, const py::object& step_out,
                       const py::object& cu_seqlens_padded, const py::object& cu_seqlens) {
  py::array target = written_in_place(out);
  plain_rows(target, "out");
  const py::array source = plain_rows(step_out, "step_out");
  require(source.attr("shape").equal(target.attr("shape")) && source.dtype().equal(target.dtype()),
          "step_out is ", dtype_of(source), " ", shape_of(source), " and out is ", dtype_of(target),
          " ", shape_of(target),
          "; expected the same dtype and shape. A step's output has the rows of the whole rank; "
          "convert step_out to the dtype of out");
  const bool overlap =
      py::module_::import("numpy").attr("may_share_memory")(source, target).cast<bool>();
  require(!overlap, "out and step_out share memory; expected two arrays. Pass step_out.copy()");
  copy(thd::valid_token_copies(integers(cu_seqlens_padded, "cu_seqlens_padded"),
                               integers(cu_seqlens, "cu_seqlens"), target.shape(0)),
       source, target);
}

void check_offsets(const py::object& cu_seqlens_padded, const py::object& cu_seqlens,
                   std::optional<int64_t> num_rows, bool covers) {
  const thd::Offsets starts = integers(cu_seqlens_padded, "cu_seqlens_padded");
  const int64_t end = starts.empty() ? 0 : starts.back();
  if (covers)
    thd::check_covers(starts, num_rows.value_or(end));
  else
    thd::check_offsets("cu_seqlens_padded", starts, num_rows.value_or(end));
  if (!cu_seqlens.is_none())
    thd::valid_token_copies(starts, integers(cu_seqlens, "cu_seqlens"), end);
}

// --- steps

py::dict as_dict(const thd::StepMetadata& step) {
  return py::dict(
      "section"_a = step.section,
      "kv_rank"_a = step.kv_rank < 0 ? py::object(py::none()) : py::int_(step.kv_rank),
      "sequence"_a = to_array(step.sequence), "cu_seqlens_q"_a = to_array(step.cu_seqlens_q),
      "cu_seqlens_q_padded"_a = to_array(step.cu_seqlens_q_padded),
      "cu_seqlens_kv"_a = to_array(step.cu_seqlens_kv),
      "cu_seqlens_kv_padded"_a = to_array(step.cu_seqlens_kv_padded),
      "seqused_q"_a = to_array(step.seqused_q), "seqused_k"_a = to_array(step.seqused_k),
      "window_left"_a = to_array(step.window_left), "window_right"_a = to_array(step.window_right),
      "max_seqlen_q"_a = step.max_seqlen_q, "max_seqlen_kv"_a = step.max_seqlen_kv);
}

py::list all_gather_step_metadata(const PackedLayout& layout_q, const PackedLayout& layout_k,
                                  int cp_size, int rank, const Mask& mask) {
  py::list steps;
  for (const thd::StepMetadata& step :
       thd::all_gather_step_metadata({layout_q, layout_k, mask}, {cp_size, rank}))
    steps.append(as_dict(step));
  return steps;
}

py::dict p2p_step_metadata(const PackedLayout& layout_q, const PackedLayout& layout_k, int cp_size,
                           int rank, int step, const Mask& mask) {
  return as_dict(thd::p2p_step_metadata({layout_q, layout_k, mask}, {cp_size, rank}, step));
}

// --- chunks

py::tuple as_tuple(const thd::Pieces& pieces) {
  return py::make_tuple(to_array(pieces.cu_seqlens), to_array(pieces.cu_seqlens_padded));
}

py::tuple chunkify(const PackedLayout& layout, int chunk_size) {
  return as_tuple(thd::chunkify(layout, chunk_size));
}

py::tuple chunkify_p2p(const PackedLayout& layout, int chunk_size, int cp_size, int rank) {
  return as_tuple(thd::chunkify_p2p(layout, chunk_size, {cp_size, rank}));
}

using ChunkifyPairs = thd::PiecePairs (*)(const PackedLayout& layout, int chunk_size,
                                          thd::CpRank cp, int kv_rank);

template <ChunkifyPairs chunkify_pairs>
py::tuple piece_pairs(const PackedLayout& layout, int chunk_size, int cp_size, int rank,
                      int kv_rank) {
  const thd::PiecePairs pairs = chunkify_pairs(layout, chunk_size, {cp_size, rank}, kv_rank);
  return as_tuple(pairs.q) + as_tuple(pairs.kv);
}

// --- micro-sequences

py::tuple canonical_cu_seqlens_k(const py::object& lengths, int begin, int end) {
  const auto micro = thd::canonical_cu_seqlens_k(integers(lengths, "lengths"), begin, end);
  return py::make_tuple(to_array(micro.cu_seqlens_q), to_array(micro.cu_seqlens_k),
                        micro.first_document_begin);
}

void check_canonical_cu_seqlens_k(const py::object& cu_seqlens_k) {
  thd::check_canonical_cu_seqlens_k(integers(cu_seqlens_k, "cu_seqlens_k"));
}

}  // namespace

void bind_thd(py::module_& m) {
  py::module_ thd = m.def_submodule("thd", "The C++ half of ringside.thd. Import that instead.");
  thd.def("sequence_order_to_cp_rank_order",
          strictly<"x", "cu_seqlens_padded", "cp_size">(
              &reordered<thd::sequence_order_to_cp_rank_order>),
          "x"_a, "cu_seqlens_padded"_a, "cp_size"_a);
  thd.def("cp_rank_order_to_sequence_order",
          strictly<"x", "cu_seqlens_padded", "cp_size">(
              &reordered<thd::cp_rank_order_to_sequence_order>),
          "x"_a, "cu_seqlens_padded"_a, "cp_size"_a);
  thd.def("partition_indices", strictly<"cu_seqlens_padded", "cp_size", "rank">(&partition_indices),
          "cu_seqlens_padded"_a, "cp_size"_a, "rank"_a);
  thd.def("copy_valid_tokens", &copy_valid_tokens, "out"_a, "step_out"_a, "cu_seqlens_padded"_a,
          "cu_seqlens"_a);
  thd.def("check_offsets",
          strictly<"cu_seqlens_padded", "cu_seqlens", "num_rows", "covers">(&check_offsets),
          "cu_seqlens_padded"_a, "cu_seqlens"_a, "num_rows"_a, "covers"_a);
  thd.def("all_gather_step_metadata",
          strictly<"layout", "layout_k", "cp_size", "rank", "mask">(&all_gather_step_metadata),
          "layout"_a, "layout_k"_a, "cp_size"_a, "rank"_a, "mask"_a);
  thd.def("p2p_step_metadata",
          strictly<"layout", "layout_k", "cp_size", "rank", "step", "mask">(&p2p_step_metadata),
          "layout"_a, "layout_k"_a, "cp_size"_a, "rank"_a, "step"_a, "mask"_a);
  thd.def("chunkify", strictly<"layout", "chunk_size">(&chunkify), "layout"_a, "chunk_size"_a);
  thd.def("chunkify_p2p", strictly<"layout", "chunk_size", "cp_size", "rank">(&chunkify_p2p),
          "layout"_a, "chunk_size"_a, "cp_size"_a, "rank"_a);
  thd.def("chunkify_p2p_below_diagonal",
          strictly<"layout", "chunk_size", "cp_size", "rank", "kv_rank">(
              &piece_pairs<thd::chunkify_p2p_below_diagonal>),
          "layout"_a, "chunk_size"_a, "cp_size"_a, "rank"_a, "kv_rank"_a);
  thd.def("chunkify_p2p_above_diagonal",
          strictly<"layout", "chunk_size", "cp_size", "rank", "kv_rank">(
              &piece_pairs<thd::chunkify_p2p_above_diagonal>),
          "layout"_a, "chunk_size"_a, "cp_size"_a, "rank"_a, "kv_rank"_a);
  thd.def("canonical_cu_seqlens_k", strictly<"lengths", "begin", "end">(&canonical_cu_seqlens_k),
          "lengths"_a, "begin"_a, "end"_a);
  thd.def("check_canonical_cu_seqlens_k", &check_canonical_cu_seqlens_k, "cu_seqlens_k"_a);
}

}  // namespace ringside::bindings
