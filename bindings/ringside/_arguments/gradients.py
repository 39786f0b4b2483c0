"""torch's gradients through calls that compute outside of torch: kept, or refused, never dropped.

`rows_in_kind` goes around a public function that moves rows, which it makes differentiable,
`without_gradients` around one that is not. Both look at tensors only while gradients are enabled:
inside of a torch.autograd.Function, and under torch.no_grad(), calls are what they were.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from ringside._arguments.kinds import JaxOnHost, answers_in_kind, is_list
from ringside._core import Unsupported

Call = TypeVar("Call", bound=Callable[..., Any])
PER_HEAD = ("sink", "alibi_slopes")  # the fields of Options that may be tensors
NUMBERS = ("softmax_scale", "softcap", "dropout_p", "dropout_seed")  # those that are numbers
_PLAIN = (type(None), float, int)


def asks_for_gradient(x: Any) -> bool:
    """Whether torch is to differentiate by x, by one of a list, or by what is in Options.

    Backward, or forward, which no call here does: it is refused as what requires a gradient.

    >>> asks_for_gradient([1.0, None])
    False
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.is_grad_enabled():
        return False
    return _asks(x, torch.Tensor, getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0)


def _asks(x: Any, tensor: type, forward: bool) -> bool:
    if isinstance(x, tensor):
        return x.requires_grad or (forward and _has_tangent(x))  # type: ignore[attr-defined]
    if is_list(x):
        return any(_asks(item, tensor, forward) for item in x)
    if type(x).__name__ == "Options":
        return any(_asks(getattr(x, name, None), tensor, forward) for name in PER_HEAD)
    return False


def _has_tangent(x: Any) -> bool:
    forward_ad = sys.modules["torch"].autograd.forward_ad
    return forward_ad.unpack_dual(x).tangent is not None


def refuse_gradient(name: str, x: Any, call: str, nearest: str) -> None:
    """Raises Unsupported where torch is to differentiate by an argument of a call."""
    if asks_for_gradient(x):
        raise Unsupported(
            f"{name} requires a gradient, which {call} would not pass on. Nearest supported: "
            f"{nearest}; or, for results without a gradient, {name}.detach() or torch.no_grad()"
        )


def refuse_constants(given: Mapping[str, Any], tensors: Sequence[str] = ("sink",)) -> None:
    """Raises Unsupported where a gradient is asked for by an option that is a constant.

    Options are constants to every call, but for a sink that is one tensor.

    Args:
        given: arguments of a call by name, or the fields of Options.
        tensors: the options that may be a tensor which requires a gradient.

    >>> refuse_constants({"softmax_scale": 0.5, "sink": [0.0, 1.0]})
    """
    for name in (*NUMBERS, *PER_HEAD):
        x: Any = given.get(name)
        if type(x) in _PLAIN:
            continue
        if name in NUMBERS or is_list(x):
            for item in x if is_list(x) else [x]:
                JaxOnHost.require_no_tracer(item)
        if (is_list(x) or name not in tensors) and asks_for_gradient(x):
            raise Unsupported(
                f"{name} requires a gradient, which no backward pass computes. Nearest supported: "
                f"{_nearest_constant(name, is_list(x))}"
            )


def _nearest_constant(name: str, several: bool) -> str:
    """What to pass in place of what is to be no constant."""
    constant = f"torch.stack([*{name}])" if several else name
    if name in NUMBERS:
        by_q = "q * softmax_scale with softmax_scale=1.0, or " if name == "softmax_scale" else ""
        return f"{by_q}a constant, float({name}.detach())"
    if name == "sink":
        return f"one tensor [num_heads], {constant}; or, as a constant, {constant}.detach()"
    return f"a sink that requires one; or, as a constant, {constant}.detach()"


def _each(name: str, x: Any) -> list[tuple[str, Any]]:
    """An argument, or what Options hold in its place."""
    return [(n, getattr(x, n)) for n in PER_HEAD] if type(x).__name__ == "Options" else [(name, x)]


def without_gradients(nearest: str) -> Callable[[Call], Call]:
    """Goes around a function through which torch does not differentiate.

    Args:
        nearest: what to call instead.

    >>> @without_gradients("triple(x)")
    ... def double(x): return 2 * x
    >>> double(3)
    6
    """

    def around(call: Call) -> Call:
        known = list(inspect.signature(call).parameters)

        @functools.wraps(call)
        def refuse(*args: Any, **kwargs: Any) -> Any:
            if asks_for_gradient((*args, *kwargs.values())):
                given = (*zip(known, args, strict=False), *kwargs.items())
                each = [pair for name, x in given for pair in _each(name, x)]
                refuse_constants(dict(each))
                for name, x in each:
                    refuse_gradient(name, x, call.__qualname__, nearest)
            return call(*args, **kwargs)

        return cast(Call, refuse)

    return around


def rows_in_kind(
    moved: str, *, fill: str | None = None, names: Sequence[str] = ()
) -> Callable[[Call], Call]:
    """answers_in_kind around a function that moves rows, whose transpose is torch's gradient.

    Args:
        moved: the argument whose rows move, an array or a list of them.
        fill: the argument that fills rows to which nothing moves.
        names: of the arguments, where the function does not tell.

    >>> import numpy as np
    >>> @rows_in_kind("x")
    ... def first(x): return x[:1]
    >>> first(np.arange(3)).tolist()
    [0]
    """

    def around(call: Call) -> Call:
        known = list(names) or list(inspect.signature(call).parameters)
        plain, at = answers_in_kind(moved, names=known)(call), known.index(moved)

        @functools.wraps(call)
        def move(*args: Any, **kwargs: Any) -> Any:
            if not asks_for_gradient((*args, *kwargs.values())):
                return plain(*args, **kwargs)
            given = {**dict(zip(known, args, strict=False)), **kwargs}
            if moved not in given:
                return plain(*args, **kwargs)  # which refuses it
            for name, x in given.items():
                if name != moved:
                    refuse_gradient(name, x, call.__qualname__, f"{moved} that requires one")
            from ringside._arguments.torch_rows import moved_rows

            def again(x: Any, numbers: bool = False) -> Any:
                more = {fill: 0} if numbers and fill else {}
                if at < len(args):
                    return plain(*args[:at], x, *args[at + 1 :], **{**kwargs, **more})
                return plain(*args, **{**kwargs, moved: x, **more})

            return moved_rows(again, given[moved])

        return cast(Call, move)

    return around
