"""Attention over a plan as a function that torch can differentiate."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ringside._arrays import cuda as _cuda
from ringside._attention.definition import Options
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
        plan: Any,
        deterministic: bool,
        options: Options,
    ) -> Any:
        out, lse = _cuda.attention(plan, q, k, v, _with_sink(options, sink))
        ctx.save_for_backward(q, k, v, sink, out, lse)
        ctx.plan, ctx.options, ctx.deterministic = plan, options, deterministic
        ctx.lengths = getattr(plan, "_version", 0)
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)  # or torch fills zeros for lse, which nobody reads
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Any, _dlse: Any) -> Any:
        q, k, v, sink, out, lse = ctx.saved_tensors
        if ctx.lengths != getattr(ctx.plan, "_version", 0):
            raise RuntimeError(
                "the plan's lengths were set anew between forward and backward; keep one "
                "DevicePlan for each batch in flight"
            )
        arrays = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
        dq, dk, dv, dsink = _cuda.attention_backward(
            ctx.plan, arrays, _with_sink(ctx.options, sink), deterministic=ctx.deterministic
        )
        if dsink is not None:
            dsink = dsink.to(sink.dtype)
        return dq, dk, dv, dsink, None, None, None


def _with_sink(options: Options, sink: Any) -> Options:
    return options if sink is None else dataclasses.replace(options, sink=sink)


def varlen_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    plan: Plan | DevicePlan,
    *,
    softmax_scale: float | None = None,
    softcap: float = 0.0,
    sink: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int = 0,
    deterministic: bool = False,
    return_lse: bool = False,
) -> Any:
    """Packed attention of CUDA tensors, every rank of the plan on one GPU; differentiable.

    Args:
        q: [rows_q, num_heads, head_dim_qk] float32, float16 or bfloat16 on a CUDA device; k, v
            likewise, see Plan.attention.
        plan: cp_size=1 for plain packed attention; a DevicePlan where lengths stay on the GPU.
        sink: [num_heads], differentiable.
        deterministic: bit-equal gradients from run to run, at some cost.
        return_lse: return (out, lse); lse is not differentiable.
        The rest as for ringside.attention.

    Returns:
        out [rows_q, num_heads, head_dim_v] in q's dtype.

    Raises:
        ValueError, TypeError: tensors that do not fit the plan.
        Unsupported: no CUDA in this build, or no device.
    """
    options = Options(
        softmax_scale=softmax_scale,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        dropout_p=dropout_p,
        dropout_seed=dropout_seed,
    )
    out, lse = _VarlenAttention.apply(q, k, v, sink, plan, deterministic, options)
    return (out, lse) if return_lse else out
