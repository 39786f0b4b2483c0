"""The ranks of a plan in several processes: each gives its own rows and gets its own back.

These are methods of Plan; they stand here because they are a concept of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._attention.options import (
    OptionKeywords,
    Options,
    Unpack,
    options_of,
    takes_options,
    to_core,
)
from ringside._core import InvalidArgument, Unsupported, arguments
from ringside._group.group import Group
from ringside._plan.rank_arguments import (
    agreed_of,
    arrays_of,
    dtype_of,
    dtypes_of,
    fingerprint_of,
    group_of,
    positive,
    require_backend,
    require_size,
)

if TYPE_CHECKING:
    from ringside._plan.plan import Plan

Rows = npt.ArrayLike | Sequence[npt.ArrayLike]  # of the rank, or of each hosted rank


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
    group_of(group)
    dims = [positive(head_dim, "head_dim")]
    dims.append(dims[0] if head_dim_v is None else positive(head_dim_v, "head_dim_v"))
    to_core(options).require_heads(self.num_heads)
    what = agreed_of(self, [dtype_of(dtype, "dtype")] * 3, dims, options)
    try:
        require_size(self, group)
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
    group_of(group)._require_usable()
    fingerprint = fingerprint_of(plan)
    try:
        require_backend(backend)
        require_size(plan, group)
        arrays = {name: arrays_of(x, name, group) for name, x in named.items()}
        core = to_core(options, plan._dropout_origin)
        call = _core.RankCall(plan, list(group.ranks), list(arrays.values()), core)
        what = agreed_of(plan, dtypes_of(arrays), [call.head_dim_qk, call.head_dim_v], options)
    except (ValueError, TypeError, Unsupported) as error:
        if group._has_agreed_on(fingerprint):
            raise
        group._prepare({"plan": fingerprint}, error)  # which raises it
        raise
    return group._call(what, form, lambda links, gather: run(call, links, gather))


def _own(group: Group, found: list[Any]) -> Any:
    return found[0] if len(group.ranks) == 1 else found


def _largest(logits: list[Any]) -> Any:
    """Over all ranks; NaN stays. Each is [ranks of a process, num_heads]."""
    return np.maximum.reduce(np.concatenate(logits))
