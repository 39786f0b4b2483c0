"""Attention over a plan as a function that torch can differentiate, on a GPU and on a CPU."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, overload

import torch

from ringside import _torch_operator as _operator
from ringside import _torch_traced as traced
from ringside._arrays.source import Source
from ringside._attention.differentiable import require_lengths
from ringside._attention.options import (
    DEFAULTS,
    OptionKeywords,
    Options,
    Unpack,
    is_set,
    options_of,
    takes_options,
)
from ringside._attention.torch_halves import differentiable_once
from ringside._core import InvalidArgument, Unsupported
from ringside._group.group import Group
from ringside._group.refused import telling
from ringside._plan.device.plan import DevicePlan
from ringside._plan.plan import Plan
from ringside._torch_arguments import (
    require_flags,
    require_kinds,
    require_no_gradient,
    require_plan,
)

try:  # torch.compiler.disable, but for that it imports torch._dynamo, 2 s, only when it is called
    from torch._compile import _disable_dynamo as _untraced
except ImportError:
    _untraced = torch.compiler.disable

__all__ = ["varlen_attention"]


class _VarlenAttention(torch.autograd.Function):
    """The operator without the dispatcher's time: what a call outside torch.compile takes."""

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
        out, lse = _operator.forward(plan, q, k, v, _with_sink(options, sink))
        ctx.save_for_backward(q, k, v, sink, out, lse)
        ctx.plan, ctx.options, ctx.deterministic = plan, options, deterministic
        ctx.lengths = plan._version
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)  # or torch fills zeros for lse, which nobody reads
        return out, lse

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, dout: Any, _dlse: Any) -> Any:
        if dout is None:  # nobody asked for out's gradient
            return (None,) * 7
        q, k, v, sink, out, lse = ctx.saved_tensors
        require_lengths(ctx.plan, ctx.lengths)
        arrays = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
        dq, dk, dv, dsink = _operator.backward(
            ctx.plan, arrays, _with_sink(ctx.options, sink), ctx.deterministic
        )
        dsink = None if sink is None else dsink.to(sink.dtype)
        return dq, dk, dv, dsink, None, None, None


class _RankAttention(torch.autograd.Function):
    """Of the rank that this process hosts: saves its own rows only."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Any,
        k: Any,
        v: Any,
        sink: Any,
        plan: Plan | DevicePlan,
        group: Group,
        options: _OfRank,
    ) -> Any:
        given = _with_sink(options.options, sink)
        out, lse, *kept = plan.attention_rank(
            q, k, v, group=group, options=given, keep_kv=options.keep_kv
        )
        ctx.save_for_backward(q, k, v, sink, out, lse)
        ctx.kept = kept[0] if kept else None
        ctx.plan, ctx.group, ctx.options = plan, group, options
        ctx.lengths, ctx.call = plan._version, group._calls
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, dout: Any, _dlse: Any) -> Any:
        if dout is None:  # nobody asked for out's gradient, on no rank
            return (None,) * 7
        with telling(ctx.plan, ctx.group), ctx.group._as_half_of(ctx.call):
            q, k, v, sink, out, lse = ctx.saved_tensors
            require_lengths(ctx.plan, ctx.lengths)
            dq, dk, dv, *dsink = ctx.plan.attention_backward_rank(
                *(dout, q, k, v, out, lse),
                group=ctx.group,
                options=_with_sink(ctx.options.options, sink),
                deterministic=ctx.options.deterministic,
                kept_kv=ctx.kept,
            )
        of_sink = None if sink is None else dsink[0].to(sink.dtype)
        return dq, dk, dv, of_sink, None, None, None


@dataclasses.dataclass(frozen=True)
class _OfRank:
    options: Options
    deterministic: bool
    keep_kv: bool


@_untraced
def _of_rank(
    arrays: tuple[Any, Any, Any],
    plan: Any,
    group: Group,
    options: Options | None,
    keywords: Any,
    flags: dict[str, bool],
) -> Any:
    with telling(plan, group):
        require_kinds(plan, *arrays)
        require_flags(flags)
        given = options_of(varlen_attention, options, keywords)
        require_no_gradient(given.alibi_slopes)
        sink = given.sink if isinstance(given.sink, torch.Tensor) else None
        if sink is not None:  # goes where torch sees it
            given = dataclasses.replace(given, sink=None)
        asked = _OfRank(given, flags["deterministic"], flags["keep_kv"])
        return _RankAttention.apply(*arrays, sink, plan, group, asked)


def _with_sink(options: Options, sink: Any) -> Options:
    return options if sink is None else dataclasses.replace(options, sink=sink)


_transforms_are_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


def _is_watched(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: Any) -> bool:
    """Whether torch is to know what becomes of them: else the call spares what that takes.

    Where gradients are enabled and one is asked for, in forward mode, under torch.func and wherever
    torch does not tell.
    """
    if torch.is_grad_enabled():
        if q.requires_grad or k.requires_grad or v.requires_grad:
            return True
        if sink is not None and sink.requires_grad:
            return True
    return getattr(torch.autograd.forward_ad, "_current_level", 0) >= 0 or _transforms_are_active()


_PLAIN = {"softmax_scale": None, "softcap": 0.0, "dropout_p": 0.0, "dropout_seed": 0}


def _traced(options: Options | None, keywords: Any) -> dict[str, Any]:
    """What options_of would take, in words that torch can trace; what it refuses is never dropped.

    Whoever compiles without fullgraph gets its own words instead, as torch then runs the call.
    """
    given = {} if options is None else {name: getattr(options, name) for name in DEFAULTS}
    for name, value in keywords.items():
        if name not in DEFAULTS:
            raise TypeError(f"varlen_attention() got an unexpected keyword argument '{name}'")
        if name in given and is_set(name, given[name]):
            raise TypeError(f"varlen_attention() got {name} and options that may set it, too")
        given[name] = value
    if given.get("bias") is not None:
        raise Unsupported("bias. Nearest supported: alibi_slopes")
    require_no_gradient(given.get("alibi_slopes"))
    return given


def _as_operator(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    plan: Plan | DevicePlan,
    given: dict[str, Any],
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """While torch.compile traces: kinds are looked at, values are when the operator runs."""
    numbers = {name: traced.number(name, given.get(name, x)) for name, x in _PLAIN.items()}
    per_head = [traced.per_head(name, given.get(name), q) for name in ("sink", "alibi_slopes")]
    return torch.ops.ringside.varlen_attention(
        q, k, v, *per_head, plan._number, plan._version, **numbers, deterministic=deterministic
    )


@overload
def varlen_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    plan: Plan | DevicePlan,
    *,
    group: Group | None = ...,
    options: Options | None = ...,
    deterministic: bool = ...,
    keep_kv: bool = ...,
    return_lse: Literal[False] = ...,
    **keywords: Unpack[OptionKeywords],
) -> torch.Tensor: ...
@overload
def varlen_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    plan: Plan | DevicePlan,
    *,
    group: Group | None = ...,
    options: Options | None = ...,
    deterministic: bool = ...,
    keep_kv: bool = ...,
    return_lse: Literal[True],
    **keywords: Unpack[OptionKeywords],
) -> tuple[torch.Tensor, torch.Tensor]: ...
@takes_options
def varlen_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    plan: Plan | DevicePlan,
    *,
    group: Group | None = None,
    options: Options | None = None,
    deterministic: bool = False,
    keep_kv: bool = False,
    return_lse: bool = False,
    **keywords: Unpack[OptionKeywords],
) -> Any:
    """Packed attention of torch tensors, every rank of the plan in this process; differentiable.

    On a GPU by kernels, on a CPU by the executor, in float64 inside. Under torch.compile it is one
    operator, ringside::varlen_attention, which does not break the graph, if numbers are Python's.

    Args:
        q: [rows_q, num_heads, head_dim_qk] float32, float16 or bfloat16, on a CPU float64, too;
            k, v likewise, see Plan.attention.
        plan: cp_size=1 for plain packed attention; a DevicePlan where lengths stay on the GPU.
        group: of the processes that run the plan's ranks, see ringside.init: then q, k, v and out
            are the rows of the rank that this process hosts, of a DevicePlan its rank_rows(), and
            every process calls. The gradient of a sink is the part of its own rows.
        options, keywords: as for ringside.attention. A sink that is a tensor, [num_heads], is
            differentiable.
        deterministic: bit-equal gradients from run to run, at some cost; on a CPU they always are.
        keep_kv: of a group: keep the keys and values of other ranks for the backward pass, see
            Plan.attention_rank.
        return_lse: return (out, lse); lse is not differentiable.

    Returns:
        out [rows_q, num_heads, head_dim_v] in q's dtype.

    Raises:
        ValueError, TypeError: tensors that do not fit the plan.
        Unsupported: tensors on a GPU, without CUDA in this build.

    >>> import ringside as rs, torch
    >>> from ringside.torch import varlen_attention
    >>> plan = rs.plan(rs.PackedLayout([0, 2]), cp_size=1)
    >>> q = k = v = torch.ones(2, 1, 8, dtype=torch.bfloat16, requires_grad=True)
    >>> out = varlen_attention(q, k, v, plan, options=rs.Options(softcap=30.0))
    >>> out.sum().backward()
    >>> out.dtype, q.grad.shape
    (torch.bfloat16, torch.Size([2, 1, 8]))
    """
    flags = {"deterministic": deterministic, "keep_kv": keep_kv, "return_lse": return_lse}
    if group is not None:
        out, lse = _of_rank((q, k, v), plan, group, options, keywords, flags)
        return (out, lse) if return_lse else out
    compiles = torch.compiler.is_compiling()
    if compiles:
        require_plan(plan)
        traced.require_flags(flags)
    else:
        require_kinds(plan, q, k, v)
        require_flags(flags)
    if keep_kv:
        raise InvalidArgument(
            f"keep_kv={keep_kv} without a group; expected keep_kv=False, as nothing is exchanged. "
            "Leave it out, or pass the group of the plan's ranks"
        )
    if compiles:
        out, lse = _as_operator(q, k, v, plan, _traced(options, keywords), deterministic)
        return (out, lse) if return_lse else out
    options, sink = options_of(varlen_attention, options, keywords), None
    require_no_gradient(options.alibi_slopes)
    if isinstance(options.sink, torch.Tensor):  # goes where torch sees it
        options, sink = dataclasses.replace(options, sink=None), options.sink
    if _is_watched(q, k, v, sink):
        out, lse = _VarlenAttention.apply(q, k, v, sink, plan, deterministic, options)
    else:
        out, lse = _operator.forward(plan, q, k, v, _with_sink(options, sink))
    return (out, lse) if return_lse else out
