#include <pybind11/stl.h>

#include <optional>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/module.h"
#include "reference/errors.h"
#include "reference/oracle.h"
#include "reference/validate.h"

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
           const Mask& mask, const py::object& softmax_scale) {
  const PackedLayout& keys = layout_k ? *layout_k : layout_q;
  Call call{tensor(q, "q", layout_q), tensor(k, "k", keys), tensor(v, "v", keys), {}};
  const auto dim = [](const DoubleArray& x, int axis) { return static_cast<int>(x.shape(axis)); };
  check_problem({layout_q, keys, mask, dim(call.q, 1), dim(call.k, 1)});
  require_shape(call.k, "k", dim(call.k, 1), dim(call.q, 2), "k has q's head dimension");
  require_shape(call.v, "v", dim(call.k, 1), dim(call.v, 2), "v has k's heads");
  call.attention = {layout_q,       keys,
                    mask,           dim(call.q, 1),
                    dim(call.k, 1), dim(call.q, 2),
                    dim(call.v, 2), softmax_scale_or_default(softmax_scale, dim(call.q, 2))};
  return call;
}

py::tuple attention(const py::object& q, const py::object& k, const py::object& v,
                    const PackedLayout& layout_q, const std::optional<PackedLayout>& layout_k,
                    const Mask& mask, const py::object& softmax_scale) {
  const Call call = check(q, k, v, layout_q, layout_k, mask, softmax_scale);
  oracle::Result result;
  {
    const py::gil_scoped_release release;
    result = oracle::forward(call.attention, call.arrays());
  }
  const oracle::Attention& a = call.attention;
  return py::make_tuple(to_array(std::move(result.out), {call.rows_q(), a.num_heads, a.head_dim_v}),
                        to_array(std::move(result.lse), {a.num_heads, call.rows_q()}));
}

py::tuple attention_backward(const py::object& dout, const py::object& q, const py::object& k,
                             const py::object& v, const py::object& out, const py::object& lse,
                             const PackedLayout& layout_q,
                             const std::optional<PackedLayout>& layout_k, const Mask& mask,
                             const py::object& softmax_scale) {
  const Call call = check(q, k, v, layout_q, layout_k, mask, softmax_scale);
  const oracle::Attention& a = call.attention;
  const DoubleArray dout_array = tensor(dout, "dout", layout_q);
  const DoubleArray out_array = tensor(out, "out", layout_q);
  require_shape(dout_array, "dout", a.num_heads, a.head_dim_v, "the shape of out");
  require_shape(out_array, "out", a.num_heads, a.head_dim_v, "q's heads and v's head dimension");
  const DoubleArray lse_values = lse_array(lse, a.num_heads, layout_q);
  oracle::Gradients g;
  {
    const py::gil_scoped_release release;
    const oracle::Result saved{{out_array.data(), out_array.data() + out_array.size()},
                               {lse_values.data(), lse_values.data() + lse_values.size()}};
    g = oracle::backward(a, call.arrays(), dout_array.data(), saved);
  }
  const py::ssize_t rows_k = call.k.shape(0);
  return py::make_tuple(to_array(std::move(g.dq), {call.rows_q(), a.num_heads, a.head_dim_qk}),
                        to_array(std::move(g.dk), {rows_k, a.num_kv_heads, a.head_dim_qk}),
                        to_array(std::move(g.dv), {rows_k, a.num_kv_heads, a.head_dim_v}));
}

}  // namespace

void bind_attention(py::module_& m) {
  m.def("attention", &attention, "q"_a, "k"_a, "v"_a, "layout_q"_a, "layout_k"_a = py::none(),
        py::kw_only(), "mask"_a = Mask::causal(), "softmax_scale"_a = py::none(), R"doc(
The definition of packed attention: dense, one sequence after another, in float64.

Slow on purpose and short on purpose; everything else is checked against it. Query head h uses kv head
h // (num_heads // num_kv_heads).

Args:
    q: [rows_q, num_heads, head_dim_qk] float16, float32 or float64; computed in float64.
    k: [rows_k, num_kv_heads, head_dim_qk]. num_kv_heads divides num_heads.
    v: [rows_k, num_kv_heads, head_dim_v].
    layout_q: where the sequences of q lie.
    layout_k: those of k and v, as many sequences; default layout_q.
    mask: which keys a query sees inside its sequence.
    softmax_scale: multiplies q.k; default 1/sqrt(head_dim_qk).

Arrays need not be contiguous (they are copied then). Padding rows are never read.

Returns:
    (out, lse): out [rows_q, num_heads, head_dim_v] float64, lse [num_heads, rows_q] float64, the
    natural log of the sum of exp(score). A row that sees nothing, and padding, has out 0, lse -inf.

Raises:
    ValueError: shapes, heads or rows that do not fit, a scale that is not finite.
    TypeError: arrays that are not floating.

Source: Vaswani et al., 2017, arXiv:1706.03762; the log-sum-exp as in Dao et al., 2022,
arXiv:2205.14135.

>>> import numpy as np, ringside as rs
>>> q = k = np.zeros((3, 1, 2)); v = np.array([[[1.0]], [[3.0]], [[5.0]]])
>>> out, lse = rs.attention(q, k, v, rs.PackedLayout([0, 2, 3]))
>>> out.ravel().tolist(), np.exp(lse).round(6).tolist()
([1.0, 2.0, 5.0], [[1.0, 2.0, 1.0]])
)doc");
  m.def("attention_backward", &attention_backward, "dout"_a, "q"_a, "k"_a, "v"_a, "out"_a, "lse"_a,
        "layout_q"_a, "layout_k"_a = py::none(), py::kw_only(), "mask"_a = Mask::causal(),
        "softmax_scale"_a = py::none(), R"doc(
The gradients of sum(dout * out) with respect to q, k and v, dense, in float64.

Args:
    dout: [rows_q, num_heads, head_dim_v], the gradient of out; padding rows are never read.
    out, lse: what attention() returned for the same arguments.
    The rest as for attention().

Returns:
    (dq, dk, dv), float64, shaped like q, k and v; exactly 0 in padding and where a row saw nothing.

Raises:
    ValueError, TypeError: as attention().

>>> import numpy as np, ringside as rs
>>> layout = rs.PackedLayout([0, 2])
>>> q = k = np.zeros((2, 1, 2)); v = np.array([[[1.0]], [[3.0]]])
>>> out, lse = rs.attention(q, k, v, layout)
>>> dq, dk, dv = rs.attention_backward(np.ones_like(out), q, k, v, out, lse, layout)
>>> dv.ravel().tolist()
[1.5, 0.5]
)doc");
}

}  // namespace ringside::bindings
