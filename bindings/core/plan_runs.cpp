// Running a plan from Python.
#include <optional>
#include <utility>

#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/interruptible.h"
#include "bindings/core/options.h"
#include "bindings/core/plan_views.h"
#include "reference/execute/execute.h"
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

}  // namespace

void bind_runs(PlanClass& plan) {
  plan.def("_attention", strictly<"q", "k", "v", "options", "backend">(&run_attention), "q"_a,
           "k"_a, "v"_a, "options"_a, "backend"_a,
           "(out, lse, max_logit); see ringside.Plan.attention.")
      .def("_attention_backward",
           strictly<"dout", "q", "k", "v", "out", "lse", "options", "backend">(
               &run_attention_backward),
           "dout"_a, "q"_a, "k"_a, "v"_a, "out"_a, "lse"_a, "options"_a, "backend"_a,
           "(dq, dk, dv, dsink); see ringside.Plan.attention_backward.");
}

}  // namespace ringside::bindings
