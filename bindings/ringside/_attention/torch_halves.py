"""A forward and a backward half of attention, by arrays, as one function of torch's autograd."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch

from ringside._arguments.gradients import refuse_constants
from ringside._attention.differentiable import require_lengths
from ringside._attention.options import Options
from ringside._core import Unsupported


def attention(
    forward: Callable[..., Any], backward: Callable[..., Any], given: dict[str, Any]
) -> Any:
    """What forward gives: out is differentiable by q, k, v and a sink, what follows is not.

    Args:
        forward, backward: the halves.
        given: all arguments of the forward half, by name.
    """
    refuse_constants(given)
    if isinstance(given.get("options"), Options):
        refuse_constants(vars(given["options"]))
    arrays = [given[x] for x in "qkv"]
    for x, array in zip("qkv", arrays, strict=True):
        if not isinstance(array, torch.Tensor):
            raise TypeError(
                f"{x} is a {type(array).__module__}.{type(array).__qualname__} beside tensors that "
                f"require a gradient; expected a torch.Tensor. Pass torch.as_tensor({x})"
            )
    rest = {x: value for x, value in given.items() if x not in "qkv"}
    sink, others = _apart(rest)
    return _Attention.apply(*arrays, sink, _Halves(forward, backward, others))


def _apart(given: dict[str, Any]) -> tuple[Any, Callable[[Any], dict[str, Any]]]:
    """The sink, if it is a tensor, and all others with it or another one where it stands."""
    options, sink = given.get("options"), given.get("sink")
    of_options = options.sink if isinstance(options, Options) else None
    if sink is None and isinstance(of_options, torch.Tensor):
        assert options is not None
        return of_options, lambda x: {**given, "options": dataclasses.replace(options, sink=x)}
    if of_options is None and isinstance(sink, torch.Tensor):
        return sink, lambda x: {**given, "sink": x}
    return None, lambda _: given  # none, a number, or said twice, which is refused


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Goes around the backward of a function of torch's: gradients of what it returns are refused.

    torch's once_differentiable refuses them in backward() only: to torch.autograd.grad its results
    are constants.
    """

    @functools.wraps(backward)
    def refuse_twice(ctx: Any, *douts: Any) -> Any:
        if not torch.is_grad_enabled():
            return backward(ctx, *douts)
        with torch.no_grad():
            found = backward(ctx, *douts)
        origins = [x for x in (*ctx.saved_tensors, *douts) if x is not None and x.requires_grad]
        gradients = [x for x in found if x is not None]
        tied = iter(_Once.apply(len(gradients), *gradients, *origins))
        return tuple(None if x is None else next(tied) for x in found)

    return refuse_twice


class _Once(torch.autograd.Function):
    """Gradients that depend on what they were computed from, though nobody knows how."""

    @staticmethod
    def forward(_ctx: Any, count: int, *tensors: Any) -> Any:
        return tuple(x.detach() for x in tensors[:count])

    @staticmethod
    def backward(_ctx: Any, *_: Any) -> Any:
        raise Unsupported(
            "the gradient of a gradient of attention, as create_graph=True allows to ask for it. "
            "Nearest supported: one backward pass, or torch's scaled_dot_product_attention, dense, "
            "with SDPBackend.MATH, which has two"
        )


@dataclasses.dataclass(frozen=True)
class _Halves:
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    others: Callable[[Any], dict[str, Any]]  # than q, k and v, from the sink


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, sink: Any, halves: _Halves) -> Any:
        given = halves.others(sink)
        out, lse, *more = halves.forward(q=q, k=k, v=v, **given)
        ctx.save_for_backward(q, k, v, sink, out, lse)
        ctx.halves, ctx.plan = halves, given.get("self")
        ctx.lengths = getattr(ctx.plan, "_version", None)
        ctx.mark_non_differentiable(lse, *more)
        ctx.set_materialize_grads(False)
        return out, lse, *more

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, dout: Any, *_: Any) -> Any:
        if dout is None:  # nobody asked for out's gradient
            return (None,) * 5
        if ctx.lengths is not None:
            require_lengths(ctx.plan, ctx.lengths)
        q, k, v, sink, out, lse = ctx.saved_tensors
        given = {**ctx.halves.others(sink), "dout": dout, "out": out, "lse": lse}
        given.pop("return_max_logit", None)
        dq, dk, dv, *dsink = ctx.halves.backward(q=q, k=k, v=v, **given)
        return dq, dk, dv, None if sink is None else dsink[0].to(sink.dtype), None
