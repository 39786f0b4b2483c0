"""Attention over a plan as one operator of torch's, opaque to torch.compile and differentiable.

The operator takes numbers and tensors only: a plan goes by its number, options one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ringside._arrays import programs as _programs
from ringside._attention.differentiable import require_lengths
from ringside._attention.options import Options
from ringside._plan.device.plan import DevicePlan
from ringside._plan.numbers import plan_of
from ringside._plan.plan import Plan


def forward(
    plan: Plan | DevicePlan, q: Tensor, k: Tensor, v: Tensor, options: Options
) -> tuple[Tensor, Tensor]:
    """(out, lse) where the tensors lie: kernels on a GPU, the executor on a CPU.

    The executor computes in float64; out has q's dtype, lse is float32, float64 beside float64.
    """
    if _on_host(plan, q):
        return plan.attention(q, k, v, options=options)
    out, lse = _programs.attention(plan, q, k, v, options)
    return out, lse


def backward(
    plan: Plan | DevicePlan, arrays: dict[str, Any], options: Options, deterministic: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """(dq, dk, dv, dsink); arrays are dout, q, k, v, out, lse."""
    if _on_host(plan, arrays["q"]):
        dq, dk, dv, *dsink = plan.attention_backward(**arrays, options=options)
        return dq, dk, dv, dsink[0] if dsink else None
    return _programs.attention_backward(plan, arrays, options, deterministic=deterministic)


def _on_host(plan: Plan | DevicePlan, q: Tensor) -> bool:
    """A DevicePlan's lengths lie on a GPU: it refuses tensors on the CPU."""
    return q.device.type == "cpu" and isinstance(plan, Plan)


def _options(
    numbers: tuple[float | None, float, float, int], sink: Tensor | None, slopes: Tensor | None
) -> Options:
    scale, softcap, dropout_p, dropout_seed = numbers
    return Options(
        softmax_scale=scale,
        softcap=softcap,
        sink=sink,
        alibi_slopes=slopes,
        dropout_p=dropout_p,
        dropout_seed=dropout_seed % 2**64,  # torch's integers have a sign
    )


@torch.library.custom_op("ringside::varlen_attention", mutates_args=())
def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor | None,
    alibi_slopes: Tensor | None,
    plan: int,
    version: int,
    softmax_scale: float | None,
    softcap: float,
    dropout_p: float,
    dropout_seed: int,
    deterministic: bool,
) -> tuple[Tensor, Tensor]:
    """(out, lse), by the plan of that number and version; `deterministic` is for the gradients."""
    numbers = (softmax_scale, softcap, dropout_p, dropout_seed)
    made = plan_of(plan)
    require_lengths(made, version)
    return forward(made, q, k, v, _options(numbers, sink, alibi_slopes))


@varlen_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    rows, heads = q.shape[:2]
    return q.new_empty(rows, heads, v.shape[-1]), q.new_empty(heads, rows, dtype=wide)


@torch.library.custom_op("ringside::varlen_attention_backward", mutates_args=())
def varlen_attention_backward(
    saved: Sequence[Tensor],
    sink: Tensor | None,
    alibi_slopes: Tensor | None,
    plan: int,
    version: int,
    softmax_scale: float | None,
    softcap: float,
    dropout_p: float,
    dropout_seed: int,
    deterministic: bool,
) -> list[Tensor]:
    """[dq, dk, dv], and dsink where there is a sink; saved are dout, q, k, v, out, lse."""
    numbers = (softmax_scale, softcap, dropout_p, dropout_seed)
    made = plan_of(plan)
    require_lengths(made, version)
    arrays = dict(zip(("dout", "q", "k", "v", "out", "lse"), saved, strict=True))
    options = _options(numbers, sink, alibi_slopes)
    *gradients, dsink = backward(made, arrays, options, deterministic)
    return [*gradients, dsink.to(sink.dtype)] if sink is not None else list(gradients)


@varlen_attention_backward.register_fake
def _(saved: Sequence[Tensor], sink: Tensor | None, *_: Any) -> list[Tensor]:
    like = [*saved[1:4], *([] if sink is None else [sink])]
    return [x.new_empty(x.shape) for x in like]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, sink, slopes, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output, sink, slopes)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, dout: Tensor | None, _dlse: Any) -> tuple[Any, ...]:
    q, k, v, out, lse, sink, slopes = ctx.saved_tensors
    none = (None,) * (1 + len(ctx.rest))  # of the slopes and of what is no tensor
    if dout is None:
        return (None, None, None, None, *none)
    saved = [dout, q, k, v, out, lse]
    dq, dk, dv, *dsink = varlen_attention_backward(saved, sink, slopes, *ctx.rest)
    return (dq, dk, dv, dsink[0] if dsink else None, *none)


varlen_attention.register_autograd(_backward, setup_context=_setup)
