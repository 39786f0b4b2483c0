"""Attention over a plan as a function that torch can differentiate."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ringside._arrays import cuda as _cuda
from ringside._arrays.source import Source
from ringside._attention.options import (
    OptionKeywords,
    Options,
    Unpack,
    options_of,
    takes_options,
)
from ringside._plan.device_plan import DevicePlan
from ringside._plan.plan import Plan


class _VarlenAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Any,
        k: Any,
        v: Any,
        sink: Any,
        plan: Source,
        deterministic: bool,
        options: Options,
    ) -> Any:
        out, lse = _cuda.attention(plan, q, k, v, _with_sink(options, sink))
        ctx.save_for_backward(q, k, v, sink, out, lse)
        ctx.plan, ctx.options, ctx.deterministic = plan, options, deterministic
        ctx.lengths = plan._version
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)  # or torch fills zeros for lse, which nobody reads
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Any, _dlse: Any) -> Any:
        q, k, v, sink, out, lse = ctx.saved_tensors
        if ctx.lengths != ctx.plan._version:
            raise RuntimeError(
                "the plan's lengths were set anew between forward and backward; keep one "
                "DevicePlan for each batch in flight"
            )
        arrays = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
        dq, dk, dv, dsink = _cuda.attention_backward(
            ctx.plan, arrays, _with_sink(ctx.options, sink), deterministic=ctx.deterministic
        )
        dsink = None if sink is None else dsink.to(sink.dtype)
        return dq, dk, dv, dsink, None, None, None


def _with_sink(options: Options, sink: Any) -> Options:
    return options if sink is None else dataclasses.replace(options, sink=sink)


@takes_options
def varlen_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    plan: Plan | DevicePlan,
    *,
    options: Options | None = None,
    deterministic: bool = False,
    return_lse: bool = False,
    **keywords: Unpack[OptionKeywords],
) -> Any:
    """Packed attention of CUDA tensors, every rank of the plan on one GPU; differentiable.

    Args:
        q: [rows_q, num_heads, head_dim_qk] float32, float16 or bfloat16 on a CUDA device; k, v
            likewise, see Plan.attention.
        plan: cp_size=1 for plain packed attention; a DevicePlan where lengths stay on the GPU.
        options, keywords: as for ringside.attention. A sink that is a tensor, [num_heads], is
            differentiable.
        deterministic: bit-equal gradients from run to run, at some cost.
        return_lse: return (out, lse); lse is not differentiable.

    Returns:
        out [rows_q, num_heads, head_dim_v] in q's dtype.

    Raises:
        ValueError, TypeError: tensors that do not fit the plan.
        Unsupported: no CUDA in this build, or no device.

    >>> import ringside as rs, torch
    >>> from ringside.torch import varlen_attention
    >>> plan = rs.plan(rs.PackedLayout([0, 2]), cp_size=1)
    >>> q = k = v = torch.ones(2, 1, 8, device="cuda", requires_grad=True)
    >>> varlen_attention(q, k, v, plan, options=rs.Options(softcap=30.0)).shape
    torch.Size([2, 1, 8])
    """
    options, sink = options_of(varlen_attention, options, keywords), None
    if isinstance(options.sink, torch.Tensor):  # goes where torch sees it
        options, sink = dataclasses.replace(options, sink=None), options.sink
    out, lse = _VarlenAttention.apply(q, k, v, sink, plan, deterministic, options)
    return (out, lse) if return_lse else out
