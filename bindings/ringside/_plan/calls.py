"""All ranks of a plan in this process: attention, its gradients, and single exchanges.

These are methods of Plan; they stand here because they are a concept of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ringside._arguments.gradients import without_gradients
from ringside._arguments.kinds import STATISTIC, answers_in_kind
from ringside._arrays import calls as _device_calls
from ringside._attention.definition import asked_for, gradients, results
from ringside._attention.differentiable import HALVES, differentiable_by
from ringside._attention.formats import QkvFormat, all_to_thd, check_format
from ringside._attention.options import (
    OptionKeywords,
    Options,
    Unpack,
    options_of,
    takes_options,
    to_core,
)
from ringside._core import arguments

if TYPE_CHECKING:
    from ringside._plan.plan import Plan

Float64 = npt.NDArray[np.float64]
Array = TypeVar("Array")  # of torch, CuPy or JAX: results are of its kind


@overload
def attention(
    self: Plan,
    q: npt.NDArray[Any] | Sequence[Any],
    k: npt.NDArray[Any] | Sequence[Any],
    v: npt.NDArray[Any] | Sequence[Any],
    *,
    options: Options | None = ...,
    qkv_format: QkvFormat = ...,
    return_max_logit: Literal[False] = ...,
    backend: str = ...,
    **keywords: Unpack[OptionKeywords],
) -> tuple[Float64, Float64]: ...


@overload
def attention(
    self: Plan,
    q: npt.NDArray[Any] | Sequence[Any],
    k: npt.NDArray[Any] | Sequence[Any],
    v: npt.NDArray[Any] | Sequence[Any],
    *,
    options: Options | None = ...,
    qkv_format: QkvFormat = ...,
    return_max_logit: Literal[True],
    backend: str = ...,
    **keywords: Unpack[OptionKeywords],
) -> tuple[Float64, Float64, Float64]: ...


@overload
def attention(
    self: Plan,
    q: Array,
    k: Array,
    v: Array,
    *,
    options: Options | None = ...,
    qkv_format: QkvFormat = ...,
    return_max_logit: Literal[False] = ...,
    backend: str = ...,
    **keywords: Unpack[OptionKeywords],
) -> tuple[Array, Array]: ...


@overload
def attention(
    self: Plan,
    q: Array,
    k: Array,
    v: Array,
    *,
    options: Options | None = ...,
    qkv_format: QkvFormat = ...,
    return_max_logit: Literal[True],
    backend: str = ...,
    **keywords: Unpack[OptionKeywords],
) -> tuple[Array, Array, Array]: ...
@differentiable_by(lambda: attention_backward)
@answers_in_kind("q", STATISTIC)
@takes_options
def attention(
    self: Plan,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    options: Options | None = None,
    qkv_format: QkvFormat = "thd",
    return_max_logit: bool = False,
    backend: str = "reference",
    **keywords: Unpack[OptionKeywords],
) -> Any:
    """Runs every rank of the plan in this process, global arrays in and out.

    Args:
        q: [rows_q, num_heads, head_dim_qk] float16, float32 or float64.
        k: [rows_k, num_kv_heads, head_dim_qk].
        v: [rows_k, num_kv_heads, head_dim_v].
        backend: "reference" (CPU, float64), or "cuda" (one GPU, every rank virtual): torch,
            CuPy or JAX arrays on the device, float32, float16 or bfloat16; the result is the
            same kind of array, out in q's dtype, on the current stream. Other objects with
            __dlpack__ or __cuda_array_interface__ are taken as they are too, and give torch or
            CuPy arrays, whichever is loaded, or else installed.
        The rest as for ringside.attention. A sink enters once, after all steps are merged;
        dropout drops the same weights whatever the partition. An infinity or NaN reaches the
        rows that see it and no others, with either backend.

    Returns:
        (out, lse), or (out, lse, max_logit) with return_max_logit, as ringside.attention. Of torch
        tensors out is differentiable by q, k, v and a sink; lse and max_logit are not.

    Raises:
        ValueError, TypeError: arrays that do not fit the plan.
        Unsupported: a backend that this build does not have.

    >>> import numpy as np, ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 2]), cp_size=2)
    >>> q = k = np.zeros((2, 1, 4)); v = np.array([[[1.0]], [[3.0]]])
    >>> plan.attention(q, k, v)[0].ravel().tolist()
    [1.0, 2.0]
    """
    options = options_of(attention, options, keywords)
    check_format(qkv_format)
    named, batch = {"q": q, "k": k, "v": v}, self.layout_q.num_sequences
    asked = arguments.boolean(return_max_logit, "return_max_logit")
    if arguments.text(backend, "backend") == "cuda":
        layouts = (self.layout_q, self.layout_k)
        return _device_calls.attention(
            self, named, options, qkv_format, layouts=layouts, return_max_logit=asked
        )
    thd = all_to_thd(named, qkv_format, self.layout_q, self.layout_k)
    found = self._attention(*thd.values(), to_core(options, self._dropout_origin), backend)
    return results(asked_for(found, asked), qkv_format, batch)


@without_gradients(HALVES)
@answers_in_kind("q", "k", "v", STATISTIC)
@takes_options
def attention_backward(
    self: Plan,
    dout: npt.ArrayLike,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    out: npt.ArrayLike,
    lse: npt.ArrayLike,
    *,
    options: Options | None = None,
    qkv_format: QkvFormat = "thd",
    deterministic: bool = False,
    backend: str = "reference",
    **keywords: Unpack[OptionKeywords],
) -> tuple[npt.NDArray[np.float64], ...]:
    """Gradients of sum(dout * out): the transposed plan, steps reversed, exchanges transposed.

    Args:
        dout: shaped like out.
        out, lse: what attention() returned for the same arguments.
        options, keywords: those of attention().
        deterministic: bit-equal results from run to run. The reference and the float32
            kernels always are; on tensor cores it costs a second pass over the scores, or,
            with Hopper's kernels on one rank, a wait for each other's sums.
        The rest as for attention().

    Returns:
        (dq, dk, dv), and dsink [num_heads] where there is a sink; float64, shaped like q, k, v;
        exactly 0 in padding.

    >>> import numpy as np, ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 2]), cp_size=2)
    >>> q = k = np.zeros((2, 1, 4)); v = np.array([[[1.0]], [[3.0]]])
    >>> out, lse = plan.attention(q, k, v)
    >>> plan.attention_backward(np.ones_like(out), q, k, v, out, lse)[2].ravel().tolist()
    [1.5, 0.5]
    """
    options = options_of(attention_backward, options, keywords)
    check_format(qkv_format)
    named = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
    batch = self.layout_q.num_sequences
    deterministic = arguments.boolean(deterministic, "deterministic")
    if arguments.text(backend, "backend") == "cuda":
        layouts = (self.layout_q, self.layout_k)
        return _device_calls.attention_backward(
            self, named, options, qkv_format, layouts=layouts, deterministic=deterministic
        )
    thd = all_to_thd(named, qkv_format, self.layout_q, self.layout_k)
    core = to_core(options, self._dropout_origin)
    found = self._attention_backward(*thd.values(), core, backend)
    return gradients(asked_for(found, options.sink is not None), qkv_format, batch)


@without_gradients("exchange_transposed(), the gradient of exchange()")
@answers_in_kind("buffers")
def exchange(
    self: Plan, step: int, operand: Literal["q", "kv"], buffers: Sequence[npt.ArrayLike]
) -> list[npt.NDArray[np.float64]]:
    """Moves every rank's buffer [rows, heads, dim] as the exchange before a step does.

    Args:
        step: which exchange.
        operand: "q" or "kv".
        buffers: what each rank holds before the step.

    Returns:
        What each rank holds in the step; rows that nobody sent are NaN.

    >>> import numpy as np, ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 2]), mask=rs.Mask.full(), cp_size=2)
    >>> moved = plan.exchange(1, "kv", [np.full((1, 1, 1), 5.0), np.full((1, 1, 1), 6.0)])
    >>> [x.item() for x in moved]
    [6.0, 5.0]
    """
    return self._exchange(step, operand, buffers)


@without_gradients("exchange(), the gradient of exchange_transposed()")
@answers_in_kind("buffers")
def exchange_transposed(
    self: Plan, step: int, operand: Literal["q", "kv"], buffers: Sequence[npt.ArrayLike]
) -> list[npt.NDArray[np.float64]]:
    """The transpose of exchange: every block goes back where it came from and is added there.

    >>> import numpy as np, ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 2]), cp_size=2, comm="all_gather")
    >>> back = plan.exchange_transposed(0, "kv", [np.ones((2, 1, 1)), np.ones((2, 1, 1))])
    >>> [x.item() for x in back]
    [2.0, 2.0]
    """
    return self._exchange_transposed(step, operand, buffers)
