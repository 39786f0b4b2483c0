"""The ranks of a DevicePlan in several processes: lengths on the devices, rows by capacity.

These are methods of DevicePlan; they stand here because they are a concept of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringside._arguments.gradients import without_gradients
from ringside._attention.differentiable import OF_RANKS
from ringside._attention.options import (
    OptionKeywords,
    Options,
    Unpack,
    options_of,
    takes_options,
    to_core,
)
from ringside._core import InvalidArgument, arguments
from ringside._group.group import Group
from ringside._group.refused import tells_refusals
from ringside._ranks import runs
from ringside._ranks.arguments import group_of, head_dims_of
from ringside._ranks.calls import ProgramAsked
from ringside._ranks.choice import check_exchange
from ringside._ranks.kept import KeptKv
from ringside._ranks.source import Side

if TYPE_CHECKING:
    from ringside._plan.device.plan import DevicePlan


def rank_rows(self: DevicePlan, *, side: Side = "q") -> int:
    """Rows of each rank's arrays, whatever the lengths: those of its sequences first.

    They come in the order of Plan.row_indices for the same lengths, which is that of
    ringside.thd.partition_indices where partition="zigzag". With pad_to_multiple_of=2*cp_size there
    are num_rows_q / cp_size of them; else up to 2*max_sequences more.

    Args:
        side: "q", or "k" for k and v.

    Raises:
        ValueError: another side.

    >>> import ringside as rs
    >>> plan = rs.DevicePlan(max_sequences=4, num_rows_q=64, cp_size=2, pad_to_multiple_of=4)
    >>> plan.rank_rows(), plan.rank_rows(side="k")
    (32, 32)
    """
    if arguments.text(side, "side") not in ("q", "k"):
        raise InvalidArgument(f'side="{side}" is unknown; expected one of "q", "k"')
    return self._num_rows_owned(0, side)


@takes_options
def prepare(
    self: DevicePlan,
    group: Group,
    *,
    head_dim: int,
    head_dim_v: int | None = None,
    dtype: Any = "float32",
    device: int,
    exchange: str = "auto",
    keep_kv: bool = False,
    options: Options | None = None,
    **keywords: Unpack[OptionKeywords],
) -> None:
    """Agrees with all processes of a group on calls of this plan, ahead of the first.

    All that connects, allocates, uploads or measures is done: attention_rank() can be captured in a
    CUDA graph then, and set_lengths() before it. Lengths need not have been set.

    Args:
        group: as ringside.init made it, of cp_size ranks.
        head_dim: of q and k.
        head_dim_v: of v; default head_dim.
        dtype: of q, k and v.
        device: the number of this process's GPU.
        exchange, keep_kv: of the calls to come, see Plan.attention_rank.
        options, keywords: those of the calls to come.

    Raises:
        ValueError: processes that mean other plans, dtypes, dimensions or options, by their ranks;
            a plan of another size than the group; a device on which the lengths do not lie.
        RankFailure: ranks that did not answer.

    >>> import ringside as rs, torch
    >>> plan = rs.DevicePlan(max_sequences=4, num_rows_q=8, cp_size=2)
    >>> with rs.init(ranks_per_process=2) as group:
    ...     plan.prepare(group, head_dim=16, dtype=torch.bfloat16, device=0)
    """
    options = options_of(prepare, options, keywords)
    group_of(group)
    dims = head_dims_of(head_dim, head_dim_v)
    to_core(options, per_head=()).require_heads(self.num_heads)
    check_exchange(exchange)
    keeps = arguments.boolean(keep_kv, "keep_kv")
    number = arguments.int32(device, "device")
    dtypes = [str(dtype).removeprefix("torch.")] * 3

    def ready() -> runs.Ready:
        if self._lengths is not None:
            self._lengths.require_on(number)
        asked = ProgramAsked(self, group, number, dtypes, dims, options, keeps)
        return runs.set_up_ahead(asked, exchange)

    runs.prepare(self, group, ready)


@tells_refusals
@without_gradients(OF_RANKS)
@takes_options
def attention_rank(
    self: DevicePlan,
    q_r: Any,
    k_r: Any,
    v_r: Any,
    *,
    group: Group,
    options: Options | None = None,
    return_max_logit: bool = False,
    keep_kv: bool = False,
    exchange: str = "auto",
    **keywords: Unpack[OptionKeywords],
) -> Any:
    """Runs the ranks that this process hosts; every process of the group calls it.

    As Plan.attention_rank, for the lengths of the last set_lengths(), which every process calls on
    its own device with the same numbers. Messages have the size of the capacity: the host waits for
    no lengths. Where processes have other lengths than each other, or lengths that do not fit,
    results are those of an empty batch in all of them, and check() raises.

    Args:
        q_r: [rank_rows(), num_heads, head_dim_qk] of torch or CuPy on the GPU of the lengths, rows
            of the rank's sequences first; where the process hosts several ranks, a list of one
            array for each. What lies behind its sequences is not read.
        k_r: [rank_rows(side="k"), num_kv_heads, head_dim_qk], likewise.
        v_r: [rank_rows(side="k"), num_kv_heads, head_dim_v].
        group: of cp_size ranks, see ringside.init.
        options, keywords: as for attention(), alike in all processes.
        return_max_logit, keep_kv, exchange: as for Plan.attention_rank.

    Returns:
        (out_r, lse_r), and behind these max_logit and a KeptKv where they are asked for: out_r
        [rank_rows(), num_heads, head_dim_v], lse_r [num_heads, rank_rows()] float32, lists of these
        where the process hosts several ranks; 0 and -inf behind the rank's sequences. A call is
        asynchronous after the first of its kind or prepare(), and can be captured in a CUDA graph.

    Raises:
        ValueError, TypeError: arrays that do not fit the capacity, no lengths yet, and, in every
            process before the first call of its kind, by their ranks: other plans, dtypes,
            dimensions or options. Plans of one capacity are told apart by the order of their first
            calls.
        RankFailure: a rank that died, left, raised, was silent, or made another call than this
            one in place of one that all had agreed on.
        Unsupported: an exchange that is not there.

    >>> import ringside as rs, torch
    >>> plan = rs.DevicePlan(max_sequences=4, num_rows_q=8, cp_size=2, pad_to_multiple_of=4)
    >>> plan.set_lengths(torch.tensor([0, 4], dtype=torch.int32, device="cuda"))
    >>> q = [torch.zeros(plan.rank_rows(), 1, 8, device="cuda")] * 2
    >>> rows = [[0, 3, -1, -1], [1, 2, -1, -1]]  # of the ranks; -1: nobody's
    >>> v = [torch.tensor(own, dtype=torch.float32, device="cuda").view(4, 1, 1) for own in rows]
    >>> with rs.init(ranks_per_process=2) as group:  # one process, both ranks
    ...     out_r, lse_r = plan.attention_rank(q, q, v, group=group)
    ...     [x.flatten().tolist() for x in out_r]
    [[0.0, 1.5, 0.0, 0.0], [0.5, 1.0, 0.0, 0.0]]
    """
    options = options_of(attention_rank, options, keywords)
    asked = arguments.boolean(return_max_logit, "return_max_logit")
    where = runs.Where("cuda", exchange, arguments.boolean(keep_kv, "keep_kv"))
    named = {"q_r": q_r, "k_r": k_r, "v_r": v_r}
    return runs.forward(self, group, named, options, where, return_max_logit=asked)


@tells_refusals
@without_gradients(OF_RANKS)
@takes_options
def attention_backward_rank(
    self: DevicePlan,
    dout_r: Any,
    q_r: Any,
    k_r: Any,
    v_r: Any,
    out_r: Any,
    lse_r: Any,
    *,
    group: Group,
    options: Options | None = None,
    deterministic: bool = False,
    kept_kv: KeptKv | None = None,
    exchange: str = "auto",
    **keywords: Unpack[OptionKeywords],
) -> tuple[Any, ...]:
    """Gradients of the rows of the ranks that this process hosts; every process calls it.

    Wants the lengths of its forward pass, as attention_backward() does: do not set others between
    them.

    Args:
        dout_r: shaped like out_r.
        out_r, lse_r: what attention_rank() returned for the same arguments.
        deterministic: bit-equal results from run to run, see Plan.attention_backward.
        kept_kv: what attention_rank(..., keep_kv=True) returned last for the same arguments and
            lengths.
        The rest as for attention_rank().

    Returns:
        (dq_r, dk_r, dv_r), and with a sink dsink_r [num_heads], the part of the rank's own rows;
        lists of these where the process hosts several ranks; 0 behind the rank's sequences.

    Raises:
        As attention_rank().

    >>> import ringside as rs, torch
    >>> plan = rs.DevicePlan(max_sequences=1, num_rows_q=2)
    >>> plan.set_lengths(torch.tensor([0, 2], dtype=torch.int32, device="cuda"))
    >>> q = k = torch.zeros(2, 1, 8, device="cuda")
    >>> v = torch.tensor([1.0, 3.0], device="cuda").view(2, 1, 1)
    >>> with rs.init() as group:
    ...     out, lse = plan.attention_rank(q, k, v, group=group)
    ...     dout = torch.ones_like(out)
    ...     grads = plan.attention_backward_rank(dout, q, k, v, out, lse, group=group)
    ...     grads[2].flatten().tolist()
    [1.5, 0.5]
    """
    options = options_of(attention_backward_rank, options, keywords)
    named = {"q_r": q_r, "k_r": k_r, "v_r": v_r, "dout_r": dout_r, "out_r": out_r, "lse_r": lse_r}
    exact = arguments.boolean(deterministic, "deterministic")
    where = runs.Where("cuda", exchange, kept_kv is not None, kept_kv)
    return runs.backward(self, group, named, options, where, deterministic=exact)


# --- as ringside/_ranks/source.py asks


def take_up(self: DevicePlan, group: Group, program: Any) -> None:
    """Lengths that were set before the program was made are its lengths, too."""
    if group not in self._numbers:
        self._numbers[group] = group._number_plan()
    if program not in self._rank_programs:
        self._rank_programs.add(program)
        if self._lengths is not None:
            self._lengths.set(program)


def fingerprint_in(self: DevicePlan, group: Group) -> str:
    """With a number: plans of one capacity have lengths, and so programs, of their own."""
    mine = self._numbers.get(group) or group._plans_numbered + 1
    words = f"{self.partition} over {self.comm}, {self.cp_size} ranks, lengths on devices"
    return f"{words}, {self._digest} number {mine}"


def num_rows_owned(self: DevicePlan, rank: int, side: Side) -> int:
    """Alike for all ranks."""
    rows: int = self._source.rank_rows_q if side == "q" else self._source.rank_rows_k
    return rows


def words_of_rows(self: DevicePlan, rank: int, side: Side) -> str:
    """For who passed others."""
    rows = self._num_rows_owned(rank, side)
    return (
        f'expected rank_rows(side="{side}")={rows}, the room of every rank, whatever the lengths. '
        "Pass the rows of its sequences first, and anything behind them"
    )
