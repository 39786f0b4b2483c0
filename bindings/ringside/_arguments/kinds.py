"""torch's and JAX's arrays in the host's memory: a call computes with NumPy and answers in kind.

`answers_in_kind` goes around a public function, `writes_in_place` around one without results. Where
the first array of a call is a torch tensor on the CPU or a JAX array there, all of them become
NumPy's for the call, and results become the caller's kind again. Everything else passes untouched,
arrays on a GPU included.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import numpy as np

from ringside._core import Unsupported

Call = TypeVar("Call", bound=Callable[..., Any])
STATISTIC = "statistic"  # lse and the like: float32, or float64 beside float64 arrays


class TorchOnHost:
    """Tensors on the CPU. Whether one requires a gradient, gradients.py asks before."""

    @staticmethod
    def owns(x: Any) -> bool:
        """Whether x is such a tensor."""
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(x, torch.Tensor) and x.device.type == "cpu"

    @staticmethod
    def imported(x: Any) -> Any:
        """A NumPy array: of the same memory, but for bfloat16, which becomes float32."""
        torch = sys.modules["torch"]
        x = x.detach().resolve_conj().resolve_neg()  # views whose memory holds other numbers
        return (x.float() if x.dtype == torch.bfloat16 else x).numpy()

    @staticmethod
    def bits(x: Any) -> Any:
        """Of the same memory, for who only moves elements: bfloat16 as 16-bit integers."""
        torch = sys.modules["torch"]
        x = x.detach().resolve_conj().resolve_neg()
        return (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy()

    @staticmethod
    def exported(x: Any, dtype: Any) -> Any:
        """A tensor of a NumPy array; integers keep their dtype."""
        torch = sys.modules["torch"]
        made = torch.from_numpy(np.ascontiguousarray(x) if x.ndim else np.array(x))
        return made.to(dtype) if made.is_floating_point() and dtype is not None else made

    @staticmethod
    def statistic(dtype: Any) -> Any:
        """The dtype of lse beside arrays of `dtype`."""
        torch = sys.modules["torch"]
        return torch.float64 if dtype == torch.float64 else torch.float32


class JaxOnHost:
    """JAX arrays on the CPU. They cannot be written in place."""

    @staticmethod
    def owns(x: Any) -> bool:
        """Whether x is such an array, or stands for one while JAX traces."""
        jax = sys.modules.get("jax")
        if jax is None or not isinstance(x, jax.Array):
            return False
        return isinstance(x, jax.core.Tracer) or all(d.platform == "cpu" for d in x.devices())

    @staticmethod
    def imported(x: Any) -> Any:
        """A NumPy array; bfloat16 becomes float32."""
        JaxOnHost.require_no_tracer(x)
        return np.asarray(x, np.float32 if x.dtype.name == "bfloat16" else None)

    @staticmethod
    def require_no_tracer(x: Any) -> None:
        """Raises Unsupported for what stands for an array while JAX traces."""
        jax = sys.modules.get("jax")
        if jax is not None and isinstance(x, jax.core.Tracer):
            raise Unsupported(
                "a JAX array inside jax.jit or jax.grad, which trace. Nearest supported: a call "
                "with arrays, outside of them, or through jax.pure_callback; attention_backward "
                "gives the gradients"
            )

    bits = imported

    @staticmethod
    def exported(x: Any, dtype: Any) -> Any:
        """A JAX array of a NumPy array; integers keep their dtype."""
        floating = np.issubdtype(x.dtype, np.floating)
        return importlib.import_module("jax.numpy").asarray(x, dtype if floating else None)

    @staticmethod
    def statistic(dtype: Any) -> Any:
        """The dtype of lse beside arrays of `dtype`."""
        return np.dtype(np.float64 if dtype == np.float64 else np.float32)


_GIVEN: ContextVar[dict[str, Any]] = ContextVar("given", default={})  # noqa: B039
Kind = type[TorchOnHost] | type[JaxOnHost]
KINDS: tuple[Kind, ...] = (TorchOnHost, JaxOnHost)


def kind_of(arguments: Iterable[Any]) -> Kind | None:
    """Whose the first array among the arguments is, and of the first one in a list; None: NumPy's.

    >>> kind_of([np.zeros(2), 3]) is None
    True
    """
    if not (sys.modules.get("torch") or sys.modules.get("jax")):
        return None
    for x in arguments:
        first = x[0] if isinstance(x, list | tuple) and x else x
        if isinstance(first, np.ndarray):
            return None
        for kind in KINDS:
            if kind.owns(first):
                return kind
    return None


def is_list(x: Any) -> bool:
    """Whether x is a list of arrays: torch's of parameters is none of Python's."""
    return isinstance(x, list | tuple) or type(x).__name__ == "ParameterList"


def imported(x: Any, take: str = "imported") -> Any:
    """x, a list of such, or Options, with NumPy's arrays in place of those of any kind here."""
    x = list(x) if type(x).__name__ == "ParameterList" else x
    if isinstance(x, list | tuple) and type(x) in (list, tuple):
        return type(x)(imported(item, take) for item in x)
    if dataclasses.is_dataclass(x) and type(x).__name__ == "Options":
        held = {name: getattr(x, name) for name in ("sink", "alibi_slopes")}
        found = {name: value for name, value in held.items() if kind_of([value])}
        return dataclasses.replace(x, **{n: imported(v) for n, v in found.items()}) if found else x
    for kind in KINDS:
        if kind.owns(x):
            return getattr(kind, take)(x)
    return x


def is_given_as_bfloat16(name: str) -> list[bool]:
    """Of an argument of the call that is answered in kind, or of each in a list, where it is one.

    >>> is_given_as_bfloat16("q")
    [False]
    """
    x = _GIVEN.get().get(name)
    each = x if isinstance(x, list | tuple) else [x]
    return [str(getattr(part, "dtype", "")).endswith("bfloat16") for part in each]


def _dtype_of(like: str, given: dict[str, Any], kind: Kind) -> Any:
    """Of the result that is like an argument; of a statistic by the first array of the call."""
    if like != STATISTIC:
        x = given.get(like)
        x = x[0] if isinstance(x, list | tuple) and x else x
        return getattr(x, "dtype", None) if kind.owns(x) else None
    arrays = (x for x in given.values() if kind_of([x]) is kind)
    first = next(arrays)
    return kind.statistic((first[0] if isinstance(first, list | tuple) else first).dtype)


def _exported(found: Any, kind: Kind, dtypes: list[Any]) -> Any:
    """Results in kind: a tuple's items have the dtypes in turn, those behind them the last."""
    if isinstance(found, np.ndarray | np.generic):
        return kind.exported(np.asarray(found), dtypes[0] if dtypes else None)
    if isinstance(found, list):
        return [_exported(x, kind, dtypes) for x in found]
    if isinstance(found, tuple):
        each = [dtypes[min(i, len(dtypes) - 1) :][:1] for i in range(len(found))]
        items = [_exported(x, kind, dtype) for x, dtype in zip(found, each, strict=True)]
        return type(found)(*items) if hasattr(found, "_fields") else tuple(items)
    return found


def answers_in_kind(*like: str, names: Sequence[str] = ()) -> Callable[[Call], Call]:
    """Goes around a function whose results are of the kind of its arguments.

    Args:
        like: for each result in turn the argument whose dtype it has, or STATISTIC; the last one
            holds for all results behind it. Integers keep their dtype.
        names: of the arguments, where the function does not tell.

    >>> import numpy as np
    >>> @answers_in_kind("x")
    ... def double(x): return 2.0 * x
    >>> double(np.ones(2)).tolist()
    [2.0, 2.0]
    """

    def around(call: Call) -> Call:
        known = names or list(inspect.signature(call).parameters)

        @functools.wraps(call)
        def answer(*args: Any, **kwargs: Any) -> Any:
            kind = kind_of((*args, *kwargs.values()))
            if kind is None or kwargs.get("backend") == "cuda":  # which refuses the host's arrays
                return call(*args, **kwargs)
            given = {**dict(zip(known, args, strict=False)), **kwargs}
            before = _GIVEN.set(given)
            try:
                found = call(*map(imported, args), **{n: imported(x) for n, x in kwargs.items()})
            finally:
                _GIVEN.reset(before)
            return _exported(found, kind, [_dtype_of(name, given, kind) for name in like])

        return cast(Call, answer)

    return around


def writes_in_place(*, sums: bool = False) -> Callable[[Call], Call]:
    """Goes around a function that writes its first argument, from its second: torch's memory.

    A JAX array is refused by the function, as anything that cannot be written.

    Args:
        sums: whether the function adds, in float32, and does not only move elements.
    """

    def around(call: Call) -> Call:
        to, source, *_ = inspect.signature(call).parameters

        @functools.wraps(call)
        def write(*args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip((to, source), args, strict=False)), **kwargs}
            if not {to, source} <= given.keys() or not TorchOnHost.owns(given[to]):
                return call(*args, **kwargs)
            _require_dtypes(given[to], to, given[source], source, sums)
            if given[to].is_neg() or given[to].is_conj():
                raise TypeError(
                    f"{to} is a view that torch negates or conjugates when it is read; expected "
                    f"memory that is written as it is. Pass a copy, {to}.clone()"
                )
            mine = {to: TorchOnHost.bits(given[to])}
            mine[source] = imported(given[source], "imported" if sums else "bits")
            rest = {name: imported(x) for name, x in kwargs.items() if name not in mine}
            return call(*mine.values(), *map(imported, args[2:]), **rest)

        return cast(Call, write)

    return around


def _require_dtypes(out: Any, to: str, x: Any, source: str, sums: bool) -> None:
    """As NumPy arrays 16-bit numbers of two kinds would look alike."""
    float32 = sys.modules["torch"].float32
    if sums and out.dtype != float32:
        raise TypeError(
            f"{to} has dtype {out.dtype}; expected float32, in which sums are kept. Convert it"
        )
    if not sums and getattr(x, "dtype", out.dtype) != out.dtype and TorchOnHost.owns(x):
        raise TypeError(
            f"{source} has dtype {x.dtype} and {to} {out.dtype}; expected the same. "
            f"Convert {source}"
        )
