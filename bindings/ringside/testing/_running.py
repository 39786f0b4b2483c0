"""Calls a user's function the way the kit promises, and judges what it does with its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import ringside as rs
from ringside.testing.cases import Arrays, Case
from ringside.testing.dtypes import as_dtype

Array = npt.NDArray[np.float64]
CANARY_ROWS = 8


class Misuse(Exception):
    """What a function did that has no row to blame: wrong shapes, written inputs, an exception."""


class Forward(NamedTuple):
    """What came back, as global float64 arrays, and as the function returned it."""

    out: Array
    lse: Array | None
    returned: Any


class Guarded:
    """An array inside a larger one of NaN; notices when either is written to."""

    def __init__(self, x: Array, name: str, dtype: str) -> None:
        self.name = name
        rows = np.full((x.shape[0] + 2 * CANARY_ROWS, *x.shape[1:]), np.nan)
        rows[CANARY_ROWS : CANARY_ROWS + x.shape[0]] = x
        self._buffer = as_dtype(rows, dtype)
        self._before = self._buffer.tobytes()
        self.array = self._buffer[CANARY_ROWS : CANARY_ROWS + x.shape[0]]

    def check(self) -> None:
        """Raises Misuse where a byte changed."""
        if self._buffer.tobytes() == self._before:
            return
        before = np.frombuffer(self._before, self._buffer.dtype).reshape(self._buffer.shape)
        same = [a.tobytes() == b.tobytes() for a, b in zip(self._buffer, before, strict=True)]
        row = same.index(False) - CANARY_ROWS
        raise wrote_to(self.name, row, len(self.array))


def wrote_to(name: str, row: int, rows: int) -> Misuse:
    """For an input of so many rows."""
    outside = "" if 0 <= row < rows else " (outside)"
    return Misuse(f"wrote to its input {name}, row {row}{outside}")


def _float64(x: Any, name: str, shape: tuple[int, ...]) -> Array:
    """Floating-point numbers of this shape; nothing is converted that could hide a fault."""
    kind, wanted = type(x).__name__, f"expected floating-point numbers of shape {shape}"
    if isinstance(x, np.ma.MaskedArray):
        raise Misuse(f"returned {name} as a masked array; {wanted}, none of them masked")
    try:
        array = np.asarray(x)
    except Exception as error:  # whatever the object's own conversion raises
        raise Misuse(f"returned {name} as {kind}: {error}; {wanted}") from error
    if array.dtype.kind != "f" and not _is_float_beside_numpy(array.dtype):
        raise Misuse(f"returned {name} as {kind} of dtype {array.dtype}; {wanted}")
    if array.shape != shape:
        raise Misuse(f"returned {name} of shape {array.shape}; expected {shape}")
    return array.astype(np.float64)


def _is_float_beside_numpy(dtype: np.dtype[Any]) -> bool:
    """bfloat16 and its kin of ml_dtypes, which NumPy does not count among its own."""
    module = getattr(dtype.type, "__module__", "")
    return module.startswith("ml_dtypes") and "float" in dtype.name


def _out_and_lse(returned: Any, whose: str = "") -> tuple[Any, Any]:
    """What a function returns, out or (out, lse), as a pair."""
    if not isinstance(returned, tuple):
        return returned, None
    if len(returned) != 2:
        raise Misuse(f"returned a tuple of {len(returned)}{whose}; expected out, or (out, lse)")
    return returned


def _callable(fn: Any) -> Any:
    if not callable(fn):
        raise TypeError(f"fn={fn!r}; expected a function")
    return fn


def _call(fn: Any, guarded: Sequence[Guarded], *arguments: Any, **kw: Any) -> Any:
    """Exceptions other than refusals become Misuse."""
    try:
        result = fn(*arguments, **kw)
    except (rs.Unsupported, NotImplementedError, Misuse):
        raise
    except Exception as error:
        raise Misuse(f"raised {type(error).__name__}: {error}") from error
    for each in guarded:
        each.check()
    return result


class AttentionRunner:
    """fn(q, k, v, layout_q=, layout_k=, mask=, softmax_scale=, ...) on whole arrays."""

    check = "check_attention"

    def __init__(
        self, fn: Callable[..., Any], case: Case, backward: Any = None, demands: Any = None
    ) -> None:
        self.fn, self.case, self.demands = _callable(fn), case, demands
        self.backward_fn = backward or getattr(fn, "backward", None)

    @property
    def plan(self) -> rs.Plan | None:
        """No ranks, no steps."""
        return None

    def _keywords(self) -> dict[str, Any]:
        case = self.case
        layouts = {"layout_q": case.layout_q, "layout_k": case.keys}
        return {**layouts, "mask": case.mask, **case.options}

    def _guard(self, name: str, x: Array) -> Guarded:
        return Guarded(x, name, self.case.dtype)

    def forward(self, arrays: Arrays) -> Forward:
        """Runs fn."""
        guarded = [self._guard(name, getattr(arrays, name)) for name in "qkv"]
        returned = _call(self.fn, guarded, *(x.array for x in guarded), **self._keywords())
        out, lse = _out_and_lse(returned)
        rows, heads = arrays.q.shape[:2]
        checked = _float64(out, "out", (rows, heads, arrays.v.shape[2]))
        return Forward(
            checked, None if lse is None else _float64(lse, "lse", (heads, rows)), (out, lse)
        )

    def backward(self, arrays: Arrays, forward: Forward) -> tuple[Array, ...]:
        """(dq, dk, dv), and dsink where there is a sink."""
        names = ("dout", "q", "k", "v")
        guarded = [self._guard(name, getattr(arrays, name)) for name in names]
        given = (*(x.array for x in guarded), *forward.returned)
        returned = _call(self.backward_fn, guarded, *given, **self._keywords())
        return _checked_gradients(returned, arrays, self.case)


def _checked_gradients(returned: Any, arrays: Arrays, case: Case) -> tuple[Array, ...]:
    wanted = 3 if case.sink is None else 4
    if not isinstance(returned, tuple | list) or len(returned) != wanted:
        raise Misuse(f"backward returned no tuple of {wanted} gradients")
    shapes = (arrays.q.shape, arrays.k.shape, arrays.v.shape, (case.num_heads,))
    names = ("dq", "dk", "dv", "dsink")
    return tuple(_float64(*each) for each in zip(returned, names, shapes, strict=False))


class ContextParallelRunner:
    """fn(qs, ks, vs, plan=, softmax_scale=, ...) on lists of every rank's own rows."""

    check = "check_context_parallel"

    def __init__(
        self, fn: Callable[..., Any], case: Case, backward: Any = None, demands: Any = None
    ) -> None:
        self.fn, self.case, self.demands = _callable(fn), case, demands
        self.backward_fn = backward or getattr(fn, "backward", None)
        self.plan = case.plan()

    def _shards(self, name: str, x: Array) -> list[Guarded]:
        side: Any = "k" if name in "kv" else "q"
        return [
            Guarded(self.plan.shard(x, rank, side=side), f"{name}s[{rank}]", self.case.dtype)
            for rank in range(self.case.cp_size)
        ]

    def _per_rank(self, returned: Any) -> list[Any]:
        if not isinstance(returned, list | tuple) or len(returned) != self.case.cp_size:
            raise Misuse(f"returned no list of {self.case.cp_size} results, one for each rank")
        return list(returned)

    def forward(self, arrays: Arrays) -> Forward:
        """Runs fn, puts the ranks' results together."""
        shards = [self._shards(name, getattr(arrays, name)) for name in "qkv"]
        given = [[x.array for x in of_ranks] for of_ranks in shards]
        returned = _call(
            self.fn,
            [x for each in shards for x in each],
            *map(list, given),  # whose elements it may take out
            plan=self.plan,
            **self.case.options,
        )
        ranks = enumerate(self._per_rank(returned))
        pairs = [_out_and_lse(x, f" for rank {rank}") for rank, x in ranks]
        if len({lse is None for _, lse in pairs}) > 1:
            raise Misuse("returned lse for some ranks; expected it for all of them, or for none")
        outs, lses = [], []
        for rank, (out, lse) in enumerate(pairs):
            rows, heads = given[0][rank].shape[:2]
            shape = (rows, heads, arrays.v.shape[2])
            outs.append(_float64(out, f"out of rank {rank}", shape))
            if lse is not None:
                lses.append(_float64(lse, f"lse of rank {rank}", (heads, rows)).T)
        lse = self.plan.unshard(lses).T if len(lses) == self.case.cp_size else None
        return Forward(self.plan.unshard(outs), lse, tuple(zip(*pairs, strict=True)))

    def backward(self, arrays: Arrays, forward: Forward) -> tuple[Array, ...]:
        """The ranks' gradients put together; their shares of dsink added."""
        shards = [self._shards(name, getattr(arrays, name)) for name in ("dout", "q", "k", "v")]
        given = [[x.array for x in of_ranks] for of_ranks in shards]
        given += [list(x) for x in forward.returned]
        keywords = {"plan": self.plan, **self.case.options}
        returned = self._per_rank(
            _call(
                self.backward_fn,
                [x for each in shards for x in each],
                *map(list, given),
                **keywords,
            )
        )
        local = [
            _checked_gradients(x, Arrays(q, k, v, dout), self.case)
            for x, dout, q, k, v in zip(returned, *given[:4], strict=True)
        ]
        dq, dk, dv, *dsink = zip(*local, strict=True)
        return (
            self.plan.unshard(dq, side="q"),
            self.plan.unshard(dk, side="k"),
            self.plan.unshard(dv, side="k"),
            *(sum(x) for x in dsink),
        )


Runner = AttentionRunner | ContextParallelRunner
