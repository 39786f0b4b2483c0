"""A call on a device by either kind of plan: formats and kinds of arrays, around programs.py."""

from __future__ import annotations

from typing import Any

from ringside._arrays import kinds as _kinds
from ringside._arrays import programs as _programs
from ringside._arrays.source import Source
from ringside._attention.definition import gradients, results
from ringside._attention.formats import QkvFormat, batch_and_seqlen, lse_to_thd, to_thd
from ringside._attention.options import Options

Arrays = dict[str, Any]


def attention(
    plan: Source,
    named: Arrays,
    options: Options,
    qkv_format: QkvFormat,
    *,
    batch: int | None = None,
    return_max_logit: bool,
) -> tuple[Any, ...]:
    """(out, lse), or (out, lse, max_logit), of the caller's kind of arrays.

    Args:
        plan: a Plan or a DevicePlan.
        named: q, k, v.
        options: of the call.
        qkv_format: of the arrays and of the results.
        batch: of dense results; default that of q.
        return_max_logit: whether max_logit is asked for.
    """
    kind, named, options = _kinds.all_imported(named, options)
    batch = _batch_of(named["q"], qkv_format) if batch is None else batch
    thd = [to_thd(x, name, qkv_format) for name, x in named.items()]
    found = _programs.attention(plan, *thd, options, return_max_logit=return_max_logit)
    out, lse, *more = (kind.exported(x) for x in found)
    return results((out, lse, *more), qkv_format, batch)


def attention_backward(
    plan: Source,
    named: Arrays,
    options: Options,
    qkv_format: QkvFormat,
    *,
    batch: int | None = None,
    deterministic: bool,
) -> tuple[Any, ...]:
    """(dq, dk, dv), and dsink where there is a sink; arrays are dout, q, k, v, out, lse."""
    kind, named, options = _kinds.all_imported(named, options)
    batch = _batch_of(named["q"], qkv_format) if batch is None else batch
    lse = named.pop("lse")
    thd = {name: to_thd(x, name, qkv_format) for name, x in named.items()}
    thd["lse"] = lse_to_thd(lse, qkv_format)
    found = _programs.attention_backward(plan, thd, options, deterministic=deterministic)
    return gradients(tuple(kind.exported(x) for x in found if x is not None), qkv_format, batch)


def _batch_of(q: Any, qkv_format: QkvFormat) -> int:
    return 0 if qkv_format == "thd" else batch_and_seqlen(q, "q", qkv_format)[0]
