"""The ranks of a plan in several processes: each gives its own rows and gets its own back.

These are methods of Plan; they stand here because they are a concept of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._attention.options import (
    DEFAULTS,
    OptionKeywords,
    Options,
    Unpack,
    options_of,
    takes_options,
    to_core,
)
from ringside._core import InvalidArgument, Unsupported, arguments
from ringside._group.group import Group

if TYPE_CHECKING:
    from ringside._plan.plan import Plan

Rows = npt.ArrayLike | Sequence[npt.ArrayLike]  # of the rank, or of each hosted rank
SEED = "dropout_seed"  # the only option that is an integer
DTYPES = ("float16", "float32", "float64")


@takes_options
def prepare(
    self: Plan,
    group: Group,
    *,
    head_dim: int,
    head_dim_v: int | None = None,
    dtype: npt.DTypeLike = "float32",
    options: Options | None = None,
    **keywords: Unpack[OptionKeywords],
) -> None:
    """Agrees with all processes of a group on calls of this plan, ahead of the first.

    The first call does it else. Calls that have been agreed on exchange nothing but their arrays.

    Args:
        group: as ringside.init made it.
        head_dim: of q and k.
        head_dim_v: of v; default head_dim.
        dtype: of q, k and v.
        options, keywords: those of the calls to come.

    Raises:
        ValueError: processes that mean other plans, dtypes, dimensions or options, by their ranks;
            a plan of another size than the group.
        RankFailure: ranks that did not answer.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
    >>> with rs.init(ranks_per_process=2) as group:
    ...     plan.prepare(group, head_dim=8)
    """
    options = options_of(prepare, options, keywords)
    _group(group)
    dims = [_positive(head_dim, "head_dim")]
    dims.append(dims[0] if head_dim_v is None else _positive(head_dim_v, "head_dim_v"))
    to_core(options).require_heads(self.num_heads)
    what = _what(self, [_dtype(dtype, "dtype")] * 3, dims, options)
    try:
        _require_size(self, group)
    except InvalidArgument as error:
        group._prepare(what, error)
    group._prepare(what)


@takes_options
def attention_rank(
    self: Plan,
    q_r: Rows,
    k_r: Rows,
    v_r: Rows,
    *,
    group: Group,
    options: Options | None = None,
    return_max_logit: bool = False,
    backend: str = "reference",
    **keywords: Unpack[OptionKeywords],
) -> Any:
    """Runs the ranks that this process hosts; every process of the group calls it.

    Args:
        q_r: [rows of the rank, num_heads, head_dim_qk], as plan.shard(q, rank) gives them; where
            the process hosts several ranks, a list of one array for each. A rank may own no rows.
        k_r: [rows, num_kv_heads, head_dim_qk], likewise, with side="k".
        v_r: [rows, num_kv_heads, head_dim_v].
        group: of as many ranks as the plan has, see ringside.init.
        options, keywords: as for attention(), alike in all processes.
        return_max_logit: return the largest score of each head over all ranks, too.
        backend: "reference": CPU, float64, over sockets.

    Returns:
        (out_r, lse_r), or (out_r, lse_r, max_logit): out_r [rows, num_heads, head_dim_v], lse_r
        [num_heads, rows], lists of these where the process hosts several ranks; max_logit
        [num_heads]. To the bit what attention() computes of these rows.

    Raises:
        ValueError, TypeError: arrays that do not fit the rank, and, in every process before the
            first message, by their ranks: other plans, dtypes, dimensions or options.
        RankFailure: a rank that died, left, raised or was silent; nothing is returned.
        Unsupported: another backend, or arrays on a GPU, over several processes.

    >>> import numpy as np, ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
    >>> q = k = np.zeros((4, 1, 2)); v = np.arange(4.0).reshape(4, 1, 1)
    >>> with rs.init(ranks_per_process=2) as group:  # one process, both ranks
    ...     mine = [[plan.shard(x, rank) for rank in group.ranks] for x in (q, k, v)]
    ...     out_r, lse_r = plan.attention_rank(*mine, group=group)
    >>> plan.unshard(out_r).ravel().tolist()
    [0.0, 0.5, 1.0, 1.5]
    """
    options = options_of(attention_rank, options, keywords)
    asked = arguments.boolean(return_max_logit, "return_max_logit")
    named = {"q_r": q_r, "k_r": k_r, "v_r": v_r}

    def run(call: _core.RankCall, links: _core.SocketRanks, gather: Gather) -> Any:
        out, lse, logits = call.attention(links)
        if not asked:
            return _own(group, out), _own(group, lse)
        told = [x for _, x in gather([x.tolist() for x in logits])]
        return _own(group, out), _own(group, lse), _largest([np.array(x) for x in told])

    return _run(self, group, named, options, backend, f"forward {asked}", run)


@takes_options
def attention_backward_rank(
    self: Plan,
    dout_r: Rows,
    q_r: Rows,
    k_r: Rows,
    v_r: Rows,
    out_r: Rows,
    lse_r: Rows,
    *,
    group: Group,
    options: Options | None = None,
    backend: str = "reference",
    **keywords: Unpack[OptionKeywords],
) -> tuple[Any, ...]:
    """Gradients of the rows of the ranks that this process hosts; every process calls it.

    Args:
        dout_r: shaped like out_r.
        out_r, lse_r: what attention_rank() returned for the same arguments.
        The rest as for attention_rank().

    Returns:
        (dq_r, dk_r, dv_r), and with a sink dsink_r [num_heads], the part of the rank's own rows:
        the sum over all ranks is what attention_backward() returns. Lists of these where the
        process hosts several ranks.

    Raises:
        As attention_rank().

    >>> import numpy as np, ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 2]), cp_size=1)
    >>> q = k = np.zeros((2, 1, 4)); v = np.array([[[1.0]], [[3.0]]])
    >>> with rs.init() as group:
    ...     out, lse = plan.attention_rank(q, k, v, group=group)
    ...     grads = plan.attention_backward_rank(
    ...         np.ones_like(out), q, k, v, out, lse, group=group
    ...     )
    >>> grads[2].ravel().tolist()
    [1.5, 0.5]
    """
    options = options_of(attention_backward_rank, options, keywords)
    named = {"q_r": q_r, "k_r": k_r, "v_r": v_r, "dout_r": dout_r, "out_r": out_r, "lse_r": lse_r}

    def run(call: _core.RankCall, links: _core.SocketRanks, gather: Gather) -> tuple[Any, ...]:
        *gradients, dsink = call.attention_backward(links)
        found = gradients if options.sink is None else [*gradients, dsink]
        return tuple(_own(group, x) for x in found)

    return _run(self, group, named, options, backend, "backward", run)


Gather = Callable[[Any], list[Any]]
Run = Callable[[_core.RankCall, _core.SocketRanks, Gather], Any]


def _run(
    plan: Plan,
    group: Group,
    named: dict[str, Any],
    options: Options,
    backend: str,
    form: str,
    run: Run,
) -> Any:
    """Checks, agrees, runs. The others hear of what is wrong here before the first call."""
    _group(group)._require_usable()
    fingerprint = _fingerprint(plan)
    try:
        _require_backend(backend)
        _require_size(plan, group)
        arrays = {name: _arrays_of(x, name, group) for name, x in named.items()}
        core = to_core(options, plan._dropout_origin)
        call = _core.RankCall(plan, list(group.ranks), list(arrays.values()), core)
        what = _what(plan, _dtypes(arrays), [call.head_dim_qk, call.head_dim_v], options)
    except (ValueError, TypeError, Unsupported) as error:
        if group._has_agreed_on(fingerprint):
            raise
        group._prepare({"plan": fingerprint}, error)  # which raises it
        raise
    return group._call(what, form, lambda links, gather: run(call, links, gather))


def _group(group: Any) -> Group:
    if not isinstance(group, Group):
        raise TypeError(
            f"group is a {type(group).__name__}; expected a group. Pass what ringside.init returned"
        )
    return group


def _require_size(plan: Plan, group: Group) -> None:
    if plan.cp_size != group.size:
        raise InvalidArgument(
            f"the plan has {plan.cp_size} ranks and the group {group.size}; expected as many. Make "
            f"the plan with cp_size={group.size}, or start other processes"
        )


def _require_backend(backend: str) -> None:
    if arguments.text(backend, "backend") == "reference":
        return
    if backend in ("cuda", "nccl"):
        raise Unsupported(
            f'backend="{backend}" over several processes is not part of this build. Nearest '
            'supported: backend="reference" (CPU, sockets), or plan.attention(backend="cuda"), one '
            "process with every rank virtual"
        )
    raise InvalidArgument(
        f'backend="{backend}" is unknown; expected one of "reference", "cuda", "nccl"'
    )


def _arrays_of(x: Any, name: str, group: Group) -> list[Any]:
    """One array a hosted rank, as NumPy has them."""
    if len(group.ranks) == 1:
        return [_on_host(x, name)]
    parts = len(x) if isinstance(x, Sequence) or getattr(x, "shape", ()) else -1
    if isinstance(x, str | bytes) or parts != len(group.ranks):
        got = f"is a {type(x).__name__}" + (f" of {parts}" if parts >= 0 else "")
        raise InvalidArgument(
            f"{name} {got}; expected a list of {len(group.ranks)} arrays, one for each rank that "
            f"this process hosts: {list(group.ranks)}"
        )
    return [_on_host(part, f"{name}[{i}]") for i, part in enumerate(x)]


def _on_host(x: Any, name: str) -> Any:
    if hasattr(x, "__cuda_array_interface__"):
        raise Unsupported(
            f"{name} is on a GPU, whose arrays a group of processes cannot exchange in this build. "
            "Nearest supported: arrays on the host, or global arrays and "
            'plan.attention(backend="cuda")'
        )
    return arguments.array(x, name)


def _dtypes(arrays: dict[str, list[Any]]) -> list[str]:
    """Of q, k and v, alike for all hosted ranks."""
    each = [[_dtype(x.dtype, name) for x in arrays[name]] for name in ("q_r", "k_r", "v_r")]
    for name, dtypes in zip(arrays, each, strict=False):
        if len(set(dtypes)) > 1:
            raise InvalidArgument(f"{name} has dtypes {dtypes}; expected one. Convert them")
    return [dtypes[0] for dtypes in each]


def _dtype(dtype: Any, name: str) -> str:
    try:
        found = np.dtype(dtype).name if isinstance(dtype, str | type | np.dtype) else ""
    except TypeError:
        found = ""
    if found not in DTYPES:
        raise TypeError(f"{name} is {dtype!r}; expected one of {', '.join(DTYPES)}. Convert it")
    return found


def _positive(x: int, name: str) -> int:
    value = arguments.int32(x, name)
    if value < 1:
        raise InvalidArgument(f"{name}={value}; expected at least 1")
    return value


def _what(plan: Plan, dtypes: list[str], dims: list[int], options: Options) -> dict[str, Any]:
    """On which all processes have to agree, as JSON has it."""
    given = {name: getattr(options, name) for name in DEFAULTS if name not in ("bias", SEED)}
    exact = {
        name: x if x is None else np.asarray(x, np.float64).tolist() for name, x in given.items()
    }
    exact[SEED] = int(options.dropout_seed)
    changed = {name: value for name, value in exact.items() if value != DEFAULTS[name]}
    return {
        "plan": _fingerprint(plan),
        "dtypes": "/".join(dtypes),
        "head_dims": "/".join(map(str, dims)),
        "options": ", ".join(f"{name}={value}" for name, value in changed.items()),
    }


def _fingerprint(plan: Plan) -> str:
    """The plan in a few words, and a hash of all that it is."""
    if plan._fingerprint:
        return plan._fingerprint
    digest = hashlib.sha256(repr((plan.mask, plan.num_heads, plan.num_kv_heads)).encode())
    digest.update(repr((plan.partition, plan.comm, plan._dropout_origin)).encode())
    for layout in (plan.layout_q, plan.layout_k):
        digest.update(layout.cu_seqlens.tobytes() + layout.cu_seqlens_padded.tobytes())
    for name, (_, cells) in plan.tables().items():
        digest.update(f"{name} {cells.shape}".encode() + np.ascontiguousarray(cells).tobytes())
    words = f"{plan.partition} over {plan.comm}, {plan.cp_size} ranks"
    plan._fingerprint = f"{words}, {digest.hexdigest()[:16]}"
    return plan._fingerprint


def _own(group: Group, found: list[Any]) -> Any:
    return found[0] if len(group.ranks) == 1 else found


def _largest(logits: list[Any]) -> Any:
    """Over all ranks; NaN stays. Each is [ranks of a process, num_heads]."""
    return np.maximum.reduce(np.concatenate(logits))
