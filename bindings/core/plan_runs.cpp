// Running a plan from Python, all of it or one of its exchanges.
#include <optional>
#include <utility>

#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/interruptible.h"
#include "bindings/core/options.h"
#include "bindings/core/plan_views.h"
#include "reference/execute/carry.h"
#include "reference/execute/execute.h"
#include "reference/plan/residency.h"
#include "reference/support/errors.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;

void check_backend(const std::string& backend) {
  if (backend == "reference") return;
  if (backend == "nccl")
    throw Unsupported(
        "backend=\"nccl\" is not part of this build. Nearest supported: backend=\"cuda\" (one GPU, "
        "every rank virtual) or backend=\"reference\" (CPU, float64)");
  throw InvalidArgument(concat("backend=\"", backend,
                               "\" is unknown; expected one of \"reference\", \"cuda\", \"nccl\""));
}

struct Arrays {
  DoubleArray q, k, v;
  AttentionOptions options;

  AttentionInputs inputs() const { return {view(q), view(k), view(v), options}; }
};

Arrays check(const Plan& plan, const py::object& q, const py::object& k, const py::object& v,
             const OptionsArgument& options) {
  const Problem& p = plan.problem;
  Arrays x{tensor(q, "q", p.layout_q), tensor(k, "k", p.layout_k), tensor(v, "v", p.layout_k), {}};
  const int dim_qk = static_cast<int>(x.q.shape(2));
  require_shape(x.q, "q", p.num_heads, dim_qk, "the plan's num_heads");
  require_shape(x.k, "k", p.num_kv_heads, dim_qk, "the plan's num_kv_heads, q's head dimension");
  require_shape(x.v, "v", p.num_kv_heads, static_cast<int>(x.v.shape(2)),
                "the plan's num_kv_heads");
  x.options = options.resolve(p.num_heads, dim_qk);
  return x;
}

py::tuple run_attention(const Plan& plan, const py::object& q, const py::object& k,
                        const py::object& v, const OptionsArgument& options,
                        const std::string& backend) {
  check_backend(backend);
  const Arrays x = check(plan, q, k, v, options);
  AttentionOutput result = without_gil([&] { return attention(plan, x.inputs()); });
  auto lse = heads_first(result.lse);
  return py::make_tuple(to_array(std::move(result.out)), std::move(lse),
                        to_array(std::move(result.max_logit), {plan.problem.num_heads}));
}

py::tuple run_attention_backward(const Plan& plan, const py::object& dout, const py::object& q,
                                 const py::object& k, const py::object& v, const py::object& out,
                                 const py::object& lse, const OptionsArgument& options,
                                 const std::string& backend) {
  check_backend(backend);
  const Arrays x = check(plan, q, k, v, options);
  const Problem& p = plan.problem;
  const int dim_v = static_cast<int>(x.v.shape(2));
  const DoubleArray dout_array = tensor(dout, "dout", p.layout_q);
  const DoubleArray out_array = tensor(out, "out", p.layout_q);
  require_shape(dout_array, "dout", p.num_heads, dim_v, "the shape of out");
  require_shape(out_array, "out", p.num_heads, dim_v, "q's heads and v's head dimension");
  AttentionOutput saved;
  saved.lse = rows_first(lse_array(lse, p.num_heads, p.layout_q));
  saved.out = Tensor(p.layout_q.num_rows(), p.num_heads, dim_v, 0.0);
  std::copy(out_array.data(), out_array.data() + out_array.size(), saved.out.data.begin());
  AttentionGradients g =
      without_gil([&] { return attention_backward(plan, x.inputs(), view(dout_array), saved); });
  const auto sinks = static_cast<py::ssize_t>(g.dsink.size());
  return py::make_tuple(to_array(std::move(g.dq)), to_array(std::move(g.dk)),
                        to_array(std::move(g.dv)), to_array(std::move(g.dsink), {sinks}));
}

// --- exchanges ---

PerRank buffers_from(const Plan& plan, const py::sequence& arrays, int step, Operand operand) {
  require(static_cast<int>(py::len(arrays)) == plan.cp_size(), "got ", py::len(arrays),
          " buffers; expected one for each of the ", plan.cp_size(), " ranks");
  const py::list held(arrays);
  PerRank buffers;
  for (int rank = 0; rank < plan.cp_size(); ++rank) {
    const Buffer& buffer = resident_before(plan, rank, step, operand);
    const DoubleArray x = numbers(held[rank], concat("buffers[", rank, "]").c_str());
    require(x.ndim() == 3 && x.shape(0) == plan.rows(buffer) && x.shape(1) == buffer.heads.size() &&
                x.shape(2) >= 1,
            "buffer ", rank, " has shape ", shape_of(x), "; expected [", plan.rows(buffer), ", ",
            buffer.heads.size(), ", dim]");
    Tensor& tensor = buffers.emplace_back(plan.rows(buffer), buffer.heads.size(),
                                          static_cast<int>(x.shape(2)), 0.0);
    std::copy(x.data(), x.data() + x.size(), tensor.data.begin());
    require(tensor.dim == buffers[0].dim, "buffer ", rank, " has ", tensor.dim,
            " dimensions and buffer 0 has ", buffers[0].dim);
  }
  return buffers;
}

void check_step(const Plan& plan, int step) {
  require(0 <= step && step < plan.num_steps(), "step=", step, "; expected 0 to ",
          plan.num_steps() - 1);
}

py::list to_list(PerRank&& tensors) {
  py::list arrays;
  for (Tensor& tensor : tensors) arrays.append(to_array(std::move(tensor)));
  return arrays;
}

py::list exchange(const Plan& plan, int step, const std::string& operand,
                  const py::sequence& buffers) {
  check_step(plan, step);
  const Operand what = operand_from(operand);
  return to_list(carry(plan, step, what, buffers_from(plan, buffers, step, what)));
}

py::list exchange_transposed(const Plan& plan, int step, const std::string& operand,
                             const py::sequence& buffers) {
  check_step(plan, step);
  const Operand what = operand_from(operand);
  return to_list(carry_back(plan, step, what, buffers_from(plan, buffers, step + 1, what)));
}

}  // namespace

void bind_runs(PlanClass& plan) {
  plan.def("_attention", strictly<"q", "k", "v", "options", "backend">(&run_attention), "q"_a,
           "k"_a, "v"_a, "options"_a, "backend"_a,
           "(out, lse, max_logit); see ringside.Plan.attention.")
      .def("_attention_backward",
           strictly<"dout", "q", "k", "v", "out", "lse", "options", "backend">(
               &run_attention_backward),
           "dout"_a, "q"_a, "k"_a, "v"_a, "out"_a, "lse"_a, "options"_a, "backend"_a,
           "(dq, dk, dv, dsink); see ringside.Plan.attention_backward.")
      .def("_exchange", strictly<"step", "operand", "buffers">(&exchange), "step"_a, "operand"_a,
           "buffers"_a, "Moves every rank's buffer as before a step.")
      .def("_exchange_transposed", strictly<"step", "operand", "buffers">(&exchange_transposed),
           "step"_a, "operand"_a, "buffers"_a, "The transpose of exchange.");
}

}  // namespace ringside::bindings
