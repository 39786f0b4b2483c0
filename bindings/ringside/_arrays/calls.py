"""A call on a device by either kind of plan: formats and kinds of arrays, around programs.py."""

from __future__ import annotations

from typing import Any

from ringside._arrays import kinds as _kinds
from ringside._arrays import programs as _programs
from ringside._arrays.source import Source
from ringside._attention.definition import gradients, results
from ringside._attention.formats import QkvFormat, all_to_thd, batch_and_seqlen
from ringside._attention.options import Options
from ringside._core import PackedLayout

Arrays = dict[str, Any]


def attention(
    plan: Source,
    named: Arrays,
    options: Options,
    qkv_format: QkvFormat,
    *,
    layouts: tuple[PackedLayout, PackedLayout] | None = None,
    return_max_logit: bool,
) -> tuple[Any, ...]:
    """(out, lse), or (out, lse, max_logit), of the caller's kind of arrays.

    Args:
        plan: a Plan or a DevicePlan.
        named: q, k, v.
        options: of the call.
        qkv_format: of the arrays and of the results.
        layouts: of q and of k, whose sequences dense batches have; None: the device knows.
        return_max_logit: whether max_logit is asked for.
    """
    kind, named, options = _kinds.all_imported(named, options)
    thd, batch = _to_thd(named, qkv_format, layouts)
    found = _programs.attention(
        plan, *thd.values(), options=options, return_max_logit=return_max_logit
    )
    out, lse, *more = (kind.exported(x) for x in found)
    return results((out, lse, *more), qkv_format, batch)


def attention_backward(
    plan: Source,
    named: Arrays,
    options: Options,
    qkv_format: QkvFormat,
    *,
    layouts: tuple[PackedLayout, PackedLayout] | None = None,
    deterministic: bool,
) -> tuple[Any, ...]:
    """(dq, dk, dv), and dsink where there is a sink; arrays are dout, q, k, v, out, lse."""
    kind, named, options = _kinds.all_imported(named, options)
    thd, batch = _to_thd(named, qkv_format, layouts)
    found = _programs.attention_backward(plan, thd, options, deterministic=deterministic)
    return gradients(tuple(kind.exported(x) for x in found if x is not None), qkv_format, batch)


def _to_thd(
    named: Arrays, qkv_format: QkvFormat, layouts: tuple[PackedLayout, PackedLayout] | None
) -> tuple[Arrays, int]:
    """The arrays packed, and how many sequences a dense batch of them has."""
    if layouts is not None:
        return all_to_thd(named, qkv_format, *layouts), layouts[0].num_sequences
    if qkv_format == "thd":
        return named, 0
    batches = {x: batch_and_seqlen(named[x], x, qkv_format)[0] for x in named if x != "lse"}
    for name, batch in batches.items():
        if batch != batches["q"]:
            raise ValueError(
                f"{name} has shape {tuple(named[name].shape)}, {batch} sequences; expected "
                f"{batches['q']}, as q has. Pass batches of the same sequences"
            )
    return all_to_thd(named, qkv_format, None, None), batches["q"]
