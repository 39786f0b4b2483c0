"""The definition as functions of arrays; its arithmetic is C++ (reference/attention/oracle.cpp)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._arguments.gradients import without_gradients
from ringside._arguments.kinds import STATISTIC, answers_in_kind
from ringside._attention.differentiable import HALVES, differentiable_by
from ringside._attention.formats import (
    QkvFormat,
    all_to_thd,
    batch_and_seqlen,
    check_format,
    from_thd,
    lse_from_thd,
)
from ringside._attention.options import (
    OptionKeywords,
    Options,
    Unpack,
    options_of,
    takes_options,
    to_core,
)
from ringside._core import Mask, PackedLayout, arguments

Float64 = npt.NDArray[np.float64]
Array = TypeVar("Array")  # of torch or JAX: results are of its kind


def layout_of_dense(x: npt.ArrayLike, name: str, qkv_format: str) -> PackedLayout:
    """Equal lengths, no padding."""
    batch, seqlen = batch_and_seqlen(x, name, qkv_format)
    return PackedLayout.from_lengths([seqlen] * batch)


def layouts(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    layout_q: PackedLayout | None,
    layout_k: PackedLayout | None,
    qkv_format: str,
) -> tuple[PackedLayout, PackedLayout]:
    """Both layouts, from what was given; dense batches need none."""
    check_format(qkv_format)
    if qkv_format == "thd":
        if layout_q is None:
            raise ValueError('layout_q is missing; "thd" needs to know where the sequences lie')
        return layout_q, layout_k if layout_k is not None else layout_q
    if layout_k is None and layout_q is None:
        layout_k = layout_of_dense(k, "k", qkv_format)
    if layout_q is None:
        layout_q = layout_of_dense(q, "q", qkv_format)
    layout_q = arguments.layout(layout_q, "layout_q")
    return layout_q, layout_q if layout_k is None else arguments.layout(layout_k, "layout_k")


@overload
def attention(
    q: npt.NDArray[Any] | Sequence[Any],
    k: npt.NDArray[Any] | Sequence[Any],
    v: npt.NDArray[Any] | Sequence[Any],
    layout_q: PackedLayout | None = ...,
    layout_k: PackedLayout | None = ...,
    *,
    mask: Mask = ...,
    options: Options | None = ...,
    qkv_format: QkvFormat = ...,
    return_max_logit: Literal[False] = ...,
    **keywords: Unpack[OptionKeywords],
) -> tuple[Float64, Float64]: ...
@overload
def attention(
    q: npt.NDArray[Any] | Sequence[Any],
    k: npt.NDArray[Any] | Sequence[Any],
    v: npt.NDArray[Any] | Sequence[Any],
    layout_q: PackedLayout | None = ...,
    layout_k: PackedLayout | None = ...,
    *,
    mask: Mask = ...,
    options: Options | None = ...,
    qkv_format: QkvFormat = ...,
    return_max_logit: Literal[True],
    **keywords: Unpack[OptionKeywords],
) -> tuple[Float64, Float64, Float64]: ...
@overload
def attention(
    q: Array,
    k: Array,
    v: Array,
    layout_q: PackedLayout | None = ...,
    layout_k: PackedLayout | None = ...,
    *,
    mask: Mask = ...,
    options: Options | None = ...,
    qkv_format: QkvFormat = ...,
    return_max_logit: Literal[False] = ...,
    **keywords: Unpack[OptionKeywords],
) -> tuple[Array, Array]: ...
@overload
def attention(
    q: Array,
    k: Array,
    v: Array,
    layout_q: PackedLayout | None = ...,
    layout_k: PackedLayout | None = ...,
    *,
    mask: Mask = ...,
    options: Options | None = ...,
    qkv_format: QkvFormat = ...,
    return_max_logit: Literal[True],
    **keywords: Unpack[OptionKeywords],
) -> tuple[Array, Array, Array]: ...
@differentiable_by(lambda: attention_backward)
@answers_in_kind("q", STATISTIC)
@takes_options
def attention(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    layout_q: PackedLayout | None = None,
    layout_k: PackedLayout | None = None,
    *,
    mask: Mask = Mask.causal(),  # noqa: B008  (immutable)
    options: Options | None = None,
    qkv_format: QkvFormat = "thd",
    return_max_logit: bool = False,
    **keywords: Unpack[OptionKeywords],
) -> Any:
    """The definition of packed attention: dense, one sequence after another, in float64.

    Slow on purpose and short on purpose; everything else is checked against it. Query head h uses
    kv head h // (num_heads // num_kv_heads).

    Args:
        q: [rows_q, num_heads, head_dim_qk] float16, float32 or float64; computed in float64.
        k: [rows_k, num_kv_heads, head_dim_qk]. num_kv_heads divides num_heads.
        v: [rows_k, num_kv_heads, head_dim_v].
        layout_q: where the sequences of q lie.
        layout_k: those of k and v, as many sequences; default layout_q.
        mask: which keys a query sees inside its sequence.
        options: scale, softcap, sink, ALiBi, dropout; see Options.
        qkv_format: "thd", or "bshd" / "sbhd" for dense batches [batch, seqlen, heads, dim] /
            [seqlen, batch, heads, dim]: equal lengths, layouts optional (to declare padding), out
            in the same format and lse [batch, num_heads, seqlen].
        return_max_logit: return the largest score of each head, too.
        keywords: the fields of Options, one by one: softmax_scale, softcap, sink, alibi_slopes,
            dropout_p, dropout_seed.

    Arrays need not be contiguous (they are copied then). Padding rows are never read.

    NaN and infinities reach what sees them and nothing else: only pairs (row, key) that the mask
    shows take part, in out, lse, max_logit and every gradient, whatever q, k, v, dout, out and lse
    hold elsewhere. A row that sees nothing takes part in nothing, dsink included. A pair that is
    shown is plain IEEE arithmetic: a score of -inf has weight 0 (0 * inf is NaN), a finite one a
    positive weight however small (times inf, inf), one of +inf makes lse +inf and out NaN, one of
    NaN makes lse, out and max_logit NaN, and all weights of its row in the backward pass. A weight
    that dropout drops is multiplied by 0, so that a value of inf gives NaN there. Where all scores
    are -inf, lse is -inf, or the sink, and out is 0, or NaN where a value is infinite or NaN.

    Returns:
        (out, lse): out [rows_q, num_heads, head_dim_v] float64, lse [num_heads, rows_q] float64,
        the natural log of the sum of exp(score). Padding rows have out 0 and lse -inf; so has a row
        that sees nothing, except that its lse is the sink where there is one. With return_max_logit
        (out, lse, max_logit), max_logit [num_heads], -inf where no row sees anything. Of torch
        tensors out is differentiable by q, k, v and a sink; lse and max_logit are not.

    Raises:
        ValueError: shapes, heads, rows or options that do not fit.
        Unsupported: an additive bias.
        TypeError: arrays that are not floating, unknown keywords.

    Source: Vaswani et al., 2017, arXiv:1706.03762; the log-sum-exp as in Dao et al., 2022,
    arXiv:2205.14135; sinks, Xiao et al., 2023, arXiv:2309.17453.

    >>> import numpy as np, ringside as rs
    >>> q = k = np.zeros((3, 1, 2)); v = np.array([[[1.0]], [[3.0]], [[5.0]]])
    >>> out, lse = rs.attention(q, k, v, rs.PackedLayout([0, 2, 3]))
    >>> out.ravel().tolist(), np.exp(lse).round(6).tolist()
    ([1.0, 2.0, 5.0], [[1.0, 2.0, 1.0]])
    >>> rs.attention(q, k, v, rs.PackedLayout([0, 2, 3]), sink=0.0)[0].ravel().round(3).tolist()
    [0.5, 1.333, 2.5]
    """
    options = options_of(attention, options, keywords)
    with_max_logit = arguments.boolean(return_max_logit, "return_max_logit")
    layout_q, layout_k = layouts(q, k, layout_q, layout_k, qkv_format)
    thd = all_to_thd({"q": q, "k": k, "v": v}, qkv_format, layout_q, layout_k)
    found = _core.attention(*thd.values(), layout_q, layout_k, mask, to_core(options))
    return results(asked_for(found, with_max_logit), qkv_format, layout_q.num_sequences)


@without_gradients(HALVES)
@answers_in_kind("q", "k", "v", STATISTIC)
@takes_options
def attention_backward(
    dout: npt.ArrayLike,
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    out: npt.ArrayLike,
    lse: npt.ArrayLike,
    layout_q: PackedLayout | None = None,
    layout_k: PackedLayout | None = None,
    *,
    mask: Mask = Mask.causal(),  # noqa: B008  (immutable)
    options: Options | None = None,
    qkv_format: QkvFormat = "thd",
    **keywords: Unpack[OptionKeywords],
) -> tuple[Float64, ...]:
    """The gradients of sum(dout * out) with respect to q, k, v and sink, dense, in float64.

    Args:
        dout: shaped like out, the gradient of out; padding rows are never read.
        out, lse: what attention() returned for the same arguments.
        options, keywords: those of attention().
        The rest as for attention().

    Returns:
        (dq, dk, dv), float64, shaped like q, k and v; exactly 0 in padding and where a row saw
        nothing. With a sink (dq, dk, dv, dsink), dsink [num_heads].

    Raises:
        ValueError, TypeError: as attention().

    >>> import numpy as np, ringside as rs
    >>> layout = rs.PackedLayout([0, 2])
    >>> q = k = np.zeros((2, 1, 2)); v = np.array([[[1.0]], [[3.0]]])
    >>> out, lse = rs.attention(q, k, v, layout)
    >>> dq, dk, dv = rs.attention_backward(np.ones_like(out), q, k, v, out, lse, layout)
    >>> dv.ravel().tolist()
    [1.5, 0.5]
    """
    options = options_of(attention_backward, options, keywords)
    layout_q, layout_k = layouts(q, k, layout_q, layout_k, qkv_format)
    named = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
    thd = all_to_thd(named, qkv_format, layout_q, layout_k)
    found = _core.attention_backward(*thd.values(), layout_q, layout_k, mask, to_core(options))
    with_sink = options.sink is not None
    return gradients(asked_for(found, with_sink), qkv_format, layout_q.num_sequences)


def results(found: tuple[Any, ...], qkv_format: str, batch: int) -> tuple[Any, ...]:
    """(out, lse) or (out, lse, max_logit) in the caller's format."""
    out, lse, *max_logit = found
    return (from_thd(out, qkv_format, batch), lse_from_thd(lse, qkv_format, batch), *max_logit)


def gradients(found: tuple[Any, ...], qkv_format: str, batch: int) -> tuple[Any, ...]:
    """(dq, dk, dv) or (dq, dk, dv, dsink) in the caller's format."""
    dq, dk, dv, *dsink = found
    return (*(from_thd(x, qkv_format, batch) for x in (dq, dk, dv)), *dsink)


def asked_for(found: tuple[Any, ...], last: bool) -> tuple[Any, ...]:
    """What C++ returns, without its last element where nobody asked for it."""
    return found if last else found[:-1]
