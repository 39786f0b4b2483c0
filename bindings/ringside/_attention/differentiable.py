"""Pairs of functions, forward and backward, as one that torch differentiates."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ringside._arguments.gradients import asks_for_gradient

HALVES = (
    "torch.autograd.grad of out, which attention() and ringside.torch.varlen_attention() return"
)
OF_RANKS = "ringside.torch.varlen_attention(q_r, k_r, v_r, plan, group=group)"
Call = TypeVar("Call", bound=Callable[..., Any])


def differentiable_by(backward: Callable[[], Callable[..., Any]]) -> Callable[[Call], Call]:
    """Goes around a call of attention that gives (out, lse, ...): torch differentiates by out.

    Calls with tensors that require no gradient, or while gradients are off, are what they were.

    Args:
        backward: gives the call's other half, which takes dout, q, k, v, out, lse and the same
            keywords.
    """

    def around(call: Call) -> Call:
        known = list(inspect.signature(call).parameters)

        @functools.wraps(call)
        def attend(*args: Any, **kwargs: Any) -> Any:
            if not asks_for_gradient((*args, *kwargs.values())):
                return call(*args, **kwargs)
            given = {**dict(zip(known, args, strict=False)), **kwargs}
            if len(given) < len(args) + len(kwargs) or not {"q", "k", "v"} <= given.keys():
                return call(*args, **kwargs)  # which refuses it
            from ringside._attention.torch_halves import attention

            return attention(call, backward(), given)

        return cast(Call, attend)

    return around


def require_lengths(plan: Any, version: int) -> None:
    """Raises RuntimeError where the lengths are not those of the forward pass."""
    if version != plan._version:
        raise RuntimeError(
            "the plan's lengths were set anew between forward and backward; keep one DevicePlan "
            "for each batch in flight"
        )
