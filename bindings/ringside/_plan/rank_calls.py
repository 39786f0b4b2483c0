"""The ranks of a plan in several processes: each gives its own rows and gets its own back.

These are methods of Plan; they stand here because they are a concept of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringside._arguments.gradients import without_gradients
from ringside._arguments.kinds import STATISTIC, answers_in_kind
from ringside._attention.differentiable import OF_RANKS
from ringside._attention.options import (
    OptionKeywords,
    Options,
    Unpack,
    options_of,
    takes_options,
    to_core,
)
from ringside._core import arguments
from ringside._group.group import Group
from ringside._group.refused import tells_refusals
from ringside._ranks import runs
from ringside._ranks.arguments import agreed_of, dtype_to_come, group_of, head_dims_of
from ringside._ranks.calls import ProgramAsked
from ringside._ranks.choice import check_exchange
from ringside._ranks.kept import KeptKv

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
    device: int | None = None,
    exchange: str = "auto",
    keep_kv: bool = False,
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
        device: of calls on a GPU: its number here. All that connects, allocates, uploads or
            measures is done.
        exchange: of calls on a GPU, see attention_rank.
        keep_kv: of the calls to come, see attention_rank.
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
    dims = head_dims_of(head_dim, head_dim_v)
    to_core(options).require_heads(self.num_heads)
    check_exchange(exchange)
    keeps = arguments.boolean(keep_kv, "keep_kv")

    def ready() -> runs.Ready:
        if device is None:
            dtypes, fingerprint = [dtype_to_come(dtype)] * 3, fingerprint_of(self)
            return runs.Ready(agreed_of(fingerprint, dtypes, dims, options, keeps), runs.nothing)
        number = arguments.int32(device, "device")
        dtypes = [str(dtype).removeprefix("torch.")] * 3
        asked = ProgramAsked(self, group, number, dtypes, dims, options, keeps)
        return runs.set_up_ahead(asked, exchange)

    runs.prepare(self, group, ready)


@tells_refusals
@without_gradients(OF_RANKS)
@answers_in_kind("q_r", STATISTIC)
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
    keep_kv: bool = False,
    backend: str | None = None,
    exchange: str = "auto",
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
        return_max_logit: return the largest score of each head over all ranks, too. On GPUs it
            travels behind the results, and nothing waits for it on the host.
        keep_kv: keep the keys and values that come from other ranks, and return them last, for
            attention_backward_rank(kept_kv=...), which then exchanges none: a backward pass that
            waits for less, for plan.cost(keep_kv=True).kept_bytes of memory until then.
        backend: "reference": CPU, float64, over sockets; "cuda": torch or CuPy arrays on a GPU, of
            one device a process, on its current stream. Default: by the arrays.
        exchange: between GPUs: "peer", copy engines between processes of one host; "nccl", a GPU a
            process; "auto", whichever moves the messages of this plan faster, where both fit: that
            is measured ahead of the first call, and group.explain() tells.

    Returns:
        (out_r, lse_r), and behind these max_logit and a KeptKv where they are asked for: out_r
        [rows, num_heads, head_dim_v], lse_r [num_heads, rows], lists of these where the process
        hosts several ranks; max_logit [num_heads]. To the bit what attention() computes of these
        rows. On GPUs, after the first call of its kind or prepare(), a call is asynchronous: where
        the group fails before it has ended, its results are NaN and the next call, or
        group.synchronize(), raises.

    Raises:
        ValueError, TypeError: arrays that do not fit the rank, and, in every process before the
            first call of its kind, by their ranks: other plans, dtypes, dimensions or options.
        RankFailure: a rank that died, left, raised, was silent, or made another call than this
            one in place of one that all had agreed on; nothing is returned.
        Unsupported: arrays on a GPU where there is no CUDA, or an exchange that is not there.

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
    where = runs.Where(backend, exchange, arguments.boolean(keep_kv, "keep_kv"))
    named = {"q_r": q_r, "k_r": k_r, "v_r": v_r}
    return runs.forward(self, group, named, options, where, return_max_logit=asked)


@tells_refusals
@without_gradients(OF_RANKS)
@answers_in_kind("q_r", "k_r", "v_r", STATISTIC)
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
    deterministic: bool = False,
    kept_kv: KeptKv | None = None,
    backend: str | None = None,
    exchange: str = "auto",
    **keywords: Unpack[OptionKeywords],
) -> tuple[Any, ...]:
    """Gradients of the rows of the ranks that this process hosts; every process calls it.

    Args:
        dout_r: shaped like out_r.
        out_r, lse_r: what attention_rank() returned for the same arguments.
        deterministic: bit-equal results from run to run, see Plan.attention_backward.
        kept_kv: what attention_rank(..., keep_kv=True) returned last for the same arguments: keys
            and values are not exchanged again, and gradients are the same to the bit. On every
            rank, or on none. May be used again.
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
    >>> plan, x = rs.plan(rs.PackedLayout([0, 4]), cp_size=2), [np.ones((2, 1, 4))] * 2
    >>> with rs.init(ranks_per_process=2) as group:
    ...     out, lse, kept = plan.attention_rank(x, x, x, group=group, keep_kv=True)
    ...     dq, dk, dv = plan.attention_backward_rank(
    ...         x, x, x, x, out, lse, group=group, kept_kv=kept
    ...     )
    >>> plan.unshard(dv, side="k")[:, 0, 0].round(2).tolist()
    [2.08, 1.08, 0.58, 0.25]
    """
    options = options_of(attention_backward_rank, options, keywords)
    named = {"q_r": q_r, "k_r": k_r, "v_r": v_r, "dout_r": dout_r, "out_r": out_r, "lse_r": lse_r}
    exact = arguments.boolean(deterministic, "deterministic")
    where = runs.Where(backend, exchange, kept_kv is not None, kept_kv)
    return runs.backward(self, group, named, options, where, deterministic=exact)


def fingerprint_of(plan: Plan) -> str:
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
