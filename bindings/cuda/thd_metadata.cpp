// Metadata on the device, ringside._cuda_core.thd: outputs come as arrays of a capacity.
#include <array>
#include <optional>

#include "bindings/core/arguments.h"
#include "bindings/cuda/device_offsets.h"
#include "optimized/thd/metadata.h"
#include "reference/thd/chunkify.h"
#include "reference/thd/step_metadata.h"
#include "reference/verify/validate.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;
using DeviceArrays = std::vector<DeviceArray>;

const DeviceLayout& layout_like(const DeviceLayout& k, const DeviceLayout& q) {
  require(k.batch() == q.batch(), "layout holds ", q.batch(), " sequences and layout_k ", k.batch(),
          "; expected as many. Pass the layouts of the same batch");
  return k;
}

// Arrays that Python has just made: [capacity], or one longer.
int32_t* ints(const DeviceArray& x) { return pointer<int32_t>(x.data); }

thd::EntryArrays entry_arrays(const DeviceArrays& out) {
  require(out.size() == 10, "expected ten arrays of a step");
  thd::EntryArrays arrays;
  int32_t** const fields[] = {
      &arrays.sequence,      &arrays.cu_seqlens_q,         &arrays.cu_seqlens_q_padded,
      &arrays.cu_seqlens_kv, &arrays.cu_seqlens_kv_padded, &arrays.seqused_q,
      &arrays.seqused_k,     &arrays.window_left,          &arrays.window_right,
      &arrays.count};
  for (size_t i = 0; i < out.size(); ++i) *fields[i] = ints(out[i]);
  arrays.capacity = num_rows_of(out[0], "capacity");
  return arrays;
}

struct Layouts {
  DeviceLayout q, k;
  bool equal;  // k is q
};

struct StepArguments {
  Layouts layouts;
  Mask mask;
  thd::CpRank cp;
  thd::Keys keys;
  thd::RingStep ring;  // of a rank's keys

  static StepArguments all_gather(const Layouts& layouts, const Mask& mask, const thd::CpRank& cp) {
    check_mask(mask);
    thd::check_rank(cp);
    return {layouts, mask, cp, thd::Keys::gathered, {thd::kAllRanks}};
  }
  static StepArguments p2p(const Layouts& layouts, const Mask& mask, const thd::CpRank& cp,
                           int step) {
    return {layouts, mask, cp, thd::Keys::of_a_rank, thd::ring_step(mask, layouts.equal, cp, step)};
  }

  int64_t most_entries(int64_t rows) const {
    const int64_t batch = layouts.q.batch();
    return thd::most_entries(mask, keys, layouts.equal, batch, rows);
  }
};

template <bool kOneEntry>
void write_steps(const StepArguments& a, const std::vector<thd::EntryArrays>& out,
                 uint32_t* workspace, const DeviceStream& place) {
  thd::StepTask<kOneEntry> task{a.layouts.q, {}, a.mask, a.cp.cp_size, a.cp.rank, a.ring.kv_rank};
  task.layout_k = layout_like(a.layouts.k, task.layout_q);
  if (a.keys == thd::Keys::gathered)
    task.half[0] = thd::Half::first, task.half[1] = thd::Half::second;
  else if (a.ring.is_upper())
    task.half[0] = thd::Half::second;
  const py::gil_scoped_release release;
  const OnDevice on(place.device);
  thd::write_steps<kOneEntry>(task, out, workspace, place.handle());
}

void steps(const StepArguments& a, const std::vector<DeviceArrays>& out, uintptr_t workspace,
           const DeviceStream& place) {
  require(out.size() == (a.keys == thd::Keys::gathered ? 2 : 1), "expected arrays for all steps");
  std::vector<thd::EntryArrays> arrays;
  for (const DeviceArrays& of_step : out) arrays.push_back(entry_arrays(of_step));
  const bool one = thd::has_one_entry(a.mask, a.keys, a.layouts.equal);
  (one ? write_steps<true> : write_steps<false>)(a, arrays, pointer<uint32_t>(workspace), place);
}

int64_t most_pieces(int64_t batch, int64_t rows, int chunk_size) {
  thd::check_chunk_size(chunk_size);
  return thd::most_pieces(batch, rows, chunk_size);
}

void pieces(const DeviceLayout& layout, int chunk_size, const std::optional<thd::CpRank>& cp,
            const std::array<DeviceArray, 3>& out, uintptr_t workspace, const DeviceStream& place) {
  thd::check_chunk_size(chunk_size);
  thd::PieceTask task{layout, chunk_size};  // of all rows
  if (cp) {
    thd::check_rank(*cp);
    task.chunks = cp->cp_size, task.rank = cp->rank;
  }
  const int capacity = num_rows_of(out[0], "capacity") - 1;
  const thd::PieceArrays arrays{ints(out[0]), ints(out[1]), ints(out[2]), capacity};
  const py::gil_scoped_release release;
  const OnDevice on(place.device);
  thd::write_pieces(task, arrays, pointer<uint32_t>(workspace), place.handle());
}

enum class Diagonal { below, above };  // on which side of it

template <Diagonal kDiagonal>
void pairs(const DeviceLayout& layout, int chunk_size, const thd::CpRank& cp, int kv_rank,
           const std::array<DeviceArray, 4>& out, uintptr_t workspace, const DeviceStream& place) {
  (kDiagonal == Diagonal::below ? thd::check_below_diagonal : thd::check_above_diagonal)(
      chunk_size, cp, kv_rank);
  const thd::PairTask task{layout, chunk_size, cp.cp_size, cp.rank, kv_rank};
  thd::EntryArrays arrays;
  arrays.cu_seqlens_q = ints(out[0]), arrays.cu_seqlens_q_padded = ints(out[1]);
  arrays.cu_seqlens_kv = ints(out[2]), arrays.cu_seqlens_kv_padded = ints(out[3]);
  arrays.capacity = num_rows_of(out[0], "capacity") - 1;
  const py::gil_scoped_release release;
  const OnDevice on(place.device);
  thd::write_pairs(task, arrays, pointer<uint32_t>(workspace), place.handle());
}

void indices(const DeviceArray& starts, int64_t num_rows, const thd::CpRank& cp,
             const std::array<DeviceArray, 2>& out, uintptr_t workspace,
             const DeviceStream& place) {
  thd::check_rank(cp);
  const DeviceLayout layout = device_layout(starts, starts, num_rows);
  const thd::IndexTask task{layout.padded, layout.num_rows, cp.cp_size, cp.rank};
  const thd::IndexArrays arrays{ints(out[0]), ints(out[1]), num_rows_of(out[0], "capacity")};
  const py::gil_scoped_release release;
  const OnDevice on(place.device);
  thd::write_indices(task, arrays, pointer<uint32_t>(workspace), place.handle());
}

}  // namespace

void bind_cuda_thd_metadata(py::module_& thd) {
  py::class_<DeviceLayout>(thd, "Layout", "cu_seqlens, cu_seqlens_padded, and the rows.")
      .def(py::init(strictly<"cu_seqlens", "cu_seqlens_padded", "num_rows">(&device_layout)),
           "cu_seqlens"_a, "cu_seqlens_padded"_a, "num_rows"_a);
  py::class_<thd::CpRank>(thd, "CpRank", "A rank of a group.")
      .def(py::init(strictly<"cp_size", "rank">([](int cp_size, int rank) {
             return thd::CpRank{cp_size, rank};
           })),
           "cp_size"_a, "rank"_a);
  py::class_<Layouts>(thd, "Layouts", "Of q and of k.")
      .def(py::init<DeviceLayout, DeviceLayout, bool>(), "q"_a, "k"_a, "equal"_a);
  py::class_<StepArguments>(thd, "Step", "What a step's metadata is computed from.")
      .def_static("all_gather", strictly<"layouts", "mask", "cp">(&StepArguments::all_gather),
                  "layouts"_a, "mask"_a, "cp"_a)
      .def_static("p2p", strictly<"layouts", "mask", "cp", "step">(&StepArguments::p2p),
                  "layouts"_a, "mask"_a, "cp"_a, "step"_a)
      .def("most_entries", &StepArguments::most_entries, "rows"_a,
           "For sequences of `rows` query rows in all.")
      .def_property_readonly("section", [](const StepArguments& a) { return a.ring.section; })
      .def_property_readonly("kv_rank", [](const StepArguments& a) { return a.ring.kv_rank; });
  thd.def("workspace_size", &thd::metadata_workspace_size, "In int32.");
  thd.def("most_pieces", strictly<"batch", "rows", "chunk_size">(&most_pieces), "batch"_a, "rows"_a,
          "chunk_size"_a);
  thd.def("steps", &steps, "step"_a, "out"_a, "workspace"_a, "place"_a);
  thd.def("pieces", strictly<"layout", "chunk_size", "cp", "out", "workspace", "place">(&pieces),
          "layout"_a, "chunk_size"_a, "cp"_a, "out"_a, "workspace"_a, "place"_a);
  thd.def("pairs_below_diagonal",
          strictly<"layout", "chunk_size", "cp", "kv_rank", "out", "workspace", "place">(
              &pairs<Diagonal::below>),
          "layout"_a, "chunk_size"_a, "cp"_a, "kv_rank"_a, "out"_a, "workspace"_a, "place"_a);
  thd.def("pairs_above_diagonal",
          strictly<"layout", "chunk_size", "cp", "kv_rank", "out", "workspace", "place">(
              &pairs<Diagonal::above>),
          "layout"_a, "chunk_size"_a, "cp"_a, "kv_rank"_a, "out"_a, "workspace"_a, "place"_a);
  thd.def("indices", &indices, "cu_seqlens_padded"_a, "num_rows"_a, "cp"_a, "out"_a, "workspace"_a,
          "place"_a);
}

}  // namespace ringside::bindings
