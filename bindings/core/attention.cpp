#include <optional>
#include <utility>

#include "bindings/core/arguments.h"
#include "bindings/core/arrays.h"
#include "bindings/core/interruptible.h"
#include "bindings/core/module.h"
#include "bindings/core/options.h"
#include "reference/attention/oracle.h"
#include "reference/support/errors.h"
#include "reference/verify/validate.h"

namespace ringside::bindings {
namespace {

using namespace pybind11::literals;

struct Call {  // the checked arguments of attention()
  DoubleArray q, k, v;
  oracle::Attention attention;

  oracle::Arrays arrays() const { return {q.data(), k.data(), v.data()}; }
  py::ssize_t rows_q() const { return q.shape(0); }
};

Call check(const py::object& q, const py::object& k, const py::object& v,
           const PackedLayout& layout_q, const std::optional<PackedLayout>& layout_k,
           const Mask& mask, const OptionsArgument& options) {
  const PackedLayout& keys = layout_k ? *layout_k : layout_q;
  Call call{tensor(q, "q", layout_q), tensor(k, "k", keys), tensor(v, "v", keys), {}};
  const auto dim = [](const DoubleArray& x, int axis) { return static_cast<int>(x.shape(axis)); };
  check_problem({layout_q, keys, mask, dim(call.q, 1), dim(call.k, 1)});
  require_shape(call.k, "k", dim(call.k, 1), dim(call.q, 2), "k has q's head dimension");
  require_shape(call.v, "v", dim(call.k, 1), dim(call.v, 2), "v has k's heads");
  call.attention = {layout_q,       keys,
                    mask,           dim(call.q, 1),
                    dim(call.k, 1), dim(call.q, 2),
                    dim(call.v, 2), options.resolve(dim(call.q, 1), dim(call.q, 2))};
  return call;
}

py::tuple attention(const py::object& q, const py::object& k, const py::object& v,
                    const PackedLayout& layout_q, const std::optional<PackedLayout>& layout_k,
                    const Mask& mask, const OptionsArgument& options) {
  const Call call = check(q, k, v, layout_q, layout_k, mask, options);
  oracle::Result result =
      without_gil([&] { return oracle::forward(call.attention, call.arrays()); });
  const oracle::Attention& a = call.attention;
  return py::make_tuple(to_array(std::move(result.out), {call.rows_q(), a.num_heads, a.head_dim_v}),
                        to_array(std::move(result.lse), {a.num_heads, call.rows_q()}),
                        to_array(std::move(result.max_logit), {a.num_heads}));
}

py::tuple attention_backward(const py::object& dout, const py::object& q, const py::object& k,
                             const py::object& v, const py::object& out, const py::object& lse,
                             const PackedLayout& layout_q,
                             const std::optional<PackedLayout>& layout_k, const Mask& mask,
                             const OptionsArgument& options) {
  const Call call = check(q, k, v, layout_q, layout_k, mask, options);
  const oracle::Attention& a = call.attention;
  const DoubleArray dout_array = tensor(dout, "dout", layout_q);
  const DoubleArray out_array = tensor(out, "out", layout_q);
  require_shape(dout_array, "dout", a.num_heads, a.head_dim_v, "the shape of out");
  require_shape(out_array, "out", a.num_heads, a.head_dim_v, "q's heads and v's head dimension");
  const DoubleArray lse_values = lse_array(lse, a.num_heads, layout_q);
  oracle::Gradients g = without_gil([&] {
    const oracle::Result saved{{out_array.data(), out_array.data() + out_array.size()},
                               {lse_values.data(), lse_values.data() + lse_values.size()},
                               {}};
    return oracle::backward(a, call.arrays(), dout_array.data(), saved);
  });
  const py::ssize_t rows_k = call.k.shape(0), sinks = static_cast<py::ssize_t>(g.dsink.size());
  return py::make_tuple(to_array(std::move(g.dq), {call.rows_q(), a.num_heads, a.head_dim_qk}),
                        to_array(std::move(g.dk), {rows_k, a.num_kv_heads, a.head_dim_qk}),
                        to_array(std::move(g.dv), {rows_k, a.num_kv_heads, a.head_dim_v}),
                        to_array(std::move(g.dsink), {sinks}));
}

}  // namespace

void bind_attention(py::module_& m) {
  m.def("attention", strictly<"q", "k", "v", "layout_q", "layout_k", "mask", "options">(&attention),
        "q"_a, "k"_a, "v"_a, "layout_q"_a, "layout_k"_a, "mask"_a, "options"_a,
        "(out, lse, max_logit); see ringside.attention.");
  m.def("attention_backward",
        strictly<"dout", "q", "k", "v", "out", "lse", "layout_q", "layout_k", "mask", "options">(
            &attention_backward),
        "dout"_a, "q"_a, "k"_a, "v"_a, "out"_a, "lse"_a, "layout_q"_a, "layout_k"_a, "mask"_a,
        "options"_a, "(dq, dk, dv, dsink); see ringside.attention_backward.");
}

}  // namespace ringside::bindings
