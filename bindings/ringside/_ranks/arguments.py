"""What calls of ranks take, checked; and on what of it all processes have to agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ringside._arguments.kinds import imported, is_given_as_bfloat16
from ringside._arrays import cuda as _cuda
from ringside._attention.options import DEFAULTS, Options
from ringside._core import InvalidArgument, Unsupported, arguments
from ringside._group.group import Group
from ringside._ranks.calls import ProgramAsked, plain
from ringside._ranks.choice import check_exchange
from ringside._ranks.source import RankSource

SEED = "dropout_seed"  # the only option that is an integer
DTYPES = ("float16", "float32", "float64")


def group_of(group: Any) -> Group:
    """The group, or TypeError."""
    if not isinstance(group, Group):
        raise TypeError(
            f"group is a {type(group).__name__}; expected a group. Pass what ringside.init returned"
        )
    return group


def require_size(plan: RankSource, group: Group) -> None:
    """As many ranks in both."""
    if plan.cp_size != group.size:
        raise InvalidArgument(
            f"the plan has {plan.cp_size} ranks and the group {group.size}; expected as many. Make "
            f"the plan with cp_size={group.size}, or start other processes"
        )


def on_device(backend: str | None, exchange: str, named: dict[str, Any]) -> str | None:
    """The exchange to ask for where a call runs on GPUs, or None: by the backend, or the arrays."""
    check_exchange(exchange)
    there = [name for name, x in named.items() if _lies_there(x)]
    if backend is not None:
        if arguments.text(backend, "backend") == "reference":
            return None
        if backend not in ("cuda", "nccl"):
            raise InvalidArgument(
                f'backend="{backend}" is unknown; expected one of "reference", "cuda", "nccl"'
            )
    elif not there:
        return None
    if reason := _cuda.problem():
        near = 'backend="reference" (CPU, sockets)' if backend else "arrays on the host"
        subject = f'backend="{backend}"' if backend else f"{there[0]} is on a GPU, which"
        raise Unsupported(
            f"{subject} cannot run here over several processes: {reason}. Nearest supported: {near}"
        )
    return "nccl" if backend == "nccl" else exchange


def _lies_there(x: Any) -> bool:
    return _cuda.lies_on_device(x[0] if isinstance(x, list | tuple) and x else x)


def arrays_of(
    x: Any, name: str, group: Group, convert: Callable[[Any, str], Any] | None = None
) -> list[Any]:
    """One array a hosted rank, as NumPy has them, or as `convert` makes them."""
    convert = convert or _on_host
    if len(group.ranks) == 1:
        return [convert(x, name)]
    parts = len(x) if isinstance(x, Sequence) or getattr(x, "shape", ()) else -1
    if isinstance(x, str | bytes) or parts != len(group.ranks):
        got = f"is a {type(x).__name__}" + (f" of {parts}" if parts >= 0 else "")
        raise InvalidArgument(
            f"{name} {got}; expected a list of {len(group.ranks)} arrays, one for each rank that "
            f"this process hosts: {list(group.ranks)}"
        )
    return [convert(part, f"{name}[{i}]") for i, part in enumerate(x)]


def _on_host(x: Any, name: str) -> Any:
    if _cuda.lies_on_device(x):
        raise Unsupported(
            f'{name} is on a GPU, which backend="reference" does not read. Nearest supported: '
            'arrays on the host, or backend="cuda"'
        )
    return arguments.array(x, name)


def dtypes_of(arrays: dict[str, list[Any]]) -> list[str]:
    """Of q, k and v as they were given, alike for all hosted ranks."""
    each = [_as_given(name, arrays[name]) for name in ("q_r", "k_r", "v_r")]
    for name, dtypes in zip(arrays, each, strict=False):
        if len(set(dtypes)) > 1:
            raise InvalidArgument(f"{name} has dtypes {dtypes}; expected one. Convert them")
    return [dtypes[0] for dtypes in each]


def _as_given(name: str, arrays: list[Any]) -> list[str]:
    """bfloat16 is float32 by now."""
    halved = is_given_as_bfloat16(name)
    if len(halved) != len(arrays):  # one array for all, or a list for one
        halved = [any(halved)] * len(arrays)
    names = [dtype_of(x.dtype, name) for x in arrays]
    return ["bfloat16" if was else dtype for dtype, was in zip(names, halved, strict=True)]


def dtype_of(dtype: Any, name: str) -> str:
    """Its name, where it is one that attention takes."""
    try:
        found = np.dtype(dtype).name if isinstance(dtype, str | type | np.dtype) else ""
    except TypeError:
        found = ""
    if found not in DTYPES:
        raise TypeError(f"{name} is {dtype!r}; expected one of {', '.join(DTYPES)}. Convert it")
    return found


def dtype_to_come(dtype: Any) -> str:
    """Of calls with arrays on the host, where bfloat16 is one of torch's and JAX's.

    >>> dtype_to_come("float32"), dtype_to_come("bfloat16")
    ('float32', 'bfloat16')
    """
    is_halved = str(dtype).removeprefix("torch.") == "bfloat16"
    return "bfloat16" if is_halved else dtype_of(dtype, "dtype")


def positive(x: int, name: str) -> int:
    """An integer from 1."""
    value = arguments.int32(x, name)
    if value < 1:
        raise InvalidArgument(f"{name}={value}; expected at least 1")
    return value


def head_dims_of(head_dim: int, head_dim_v: int | None) -> list[int]:
    """Of q and k, and of v, which is that of q unless told."""
    dims = [positive(head_dim, "head_dim")]
    return [*dims, dims[0] if head_dim_v is None else positive(head_dim_v, "head_dim_v")]


def agreed_of(
    fingerprint: str, dtypes: list[str], dims: list[int], options: Options, keep_kv: bool
) -> dict[str, Any]:
    """On which all processes have to agree, as JSON has it."""
    given = {name: getattr(options, name) for name in DEFAULTS if name not in ("bias", SEED)}
    exact = {
        name: x if x is None else np.asarray(imported(x), np.float64).tolist()
        for name, x in given.items()
    }
    exact[SEED] = int(options.dropout_seed)
    changed = {name: value for name, value in exact.items() if value != DEFAULTS[name]}
    return {
        "plan": fingerprint,
        "dtypes": "/".join(dtypes),
        "head_dims": "/".join(map(str, dims)),
        "options": ", ".join(f"{name}={value}" for name, value in changed.items()),
        "keep_kv": str(keep_kv),
        "arrays": "on the host",
    }


def agreed_on_devices(asked: ProgramAsked, exchange: str) -> dict[str, Any]:
    """Likewise, of calls on GPUs."""
    options, fingerprint = plain(asked.options), asked.plan._fingerprint_in(asked.group)
    what = agreed_of(fingerprint, asked.dtypes, asked.head_dims, options, asked.keep_kv)
    return what | {"arrays": "on GPUs", "exchange": exchange}
