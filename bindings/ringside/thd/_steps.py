"""What a varlen attention kernel is told about a step of context parallelism in dual chunks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._arrays.layout import DeviceLayout
from ringside.thd import _on_device as _thd_cuda
from ringside.thd._device import refuse_on_host
from ringside.thd._step_pairs import entries_of

Int32Array = npt.NDArray[np.int32]


@dataclasses.dataclass(frozen=True, eq=False)
class StepMetadata:
    """One step of one rank, in the words of a varlen attention kernel.

    An entry is what such a kernel calls a sequence. Entry b has sq = seqused_q[b] queries in rows
    cu_seqlens_q_padded[b] and on of the rank's local rows, and sk = seqused_k[b] keys in rows
    cu_seqlens_kv_padded[b] and on of the keys that are resident in this step. Its i-th query sees
    its j-th key under FlashAttention's bottom-right contract, with a window of its own:

        i + sk - sq - window_left[b] <= j <= i + sk - sq + window_right[b]

    **The window.** -1 means unbounded, as in FlashAttention; no other value is negative. Entries
    hold no query that sees nothing and no key before the first or after the last one seen, and for
    such an entry every window that a mask can ask for has non-negative bounds. A bound that hides
    nothing is -1: a kernel may leave that compare out.

    **The entries.** Where one window can say what a sequence sees (always for full and causal
    masks, and for gathered keys without chunks) the sequence is one entry, at its index. Otherwise
    it is several, in row order; `sequence` names it. A sequence that takes no part keeps one empty
    entry, so each has at least one. Queries of different entries never share a row, so one kernel
    call computes the step; keys may. Queries in no entry see nothing in this step: their output is
    0 and their lse -inf.

    **On a device** (of a DeviceLayout) the arrays lie there and have a length that only shapes
    decide, so that a graph may be captured: `capacity` entries, or one more. Behind the last entry
    follow empty ones, at the end of both buffers and with sequence -1, so that a kernel may be
    launched over all. max_seqlen_q and max_seqlen_kv are then upper bounds, from the layout's
    max_rows.

    Attributes:
        section: "first_half" or "second_half" of an all-gather; "diagonal", "lower", "upper" or
            "all" of a ring.
        kv_rank: whose keys are resident; None for all ranks', in sequence order.
        sequence: [entries] int32, the sequence of the layout that an entry belongs to.
        cu_seqlens_q, cu_seqlens_kv: [entries+1] int32, cumulative sums of seqused_q, seqused_k.
        cu_seqlens_q_padded, cu_seqlens_kv_padded: [entries+1] int32, the first row of each entry;
            last, the number of rows of the buffer.
        seqused_q, seqused_k: [entries] int32, in tokens.
        window_left, window_right: [entries] int32, in tokens, -1 where that side hides nothing.
        max_seqlen_q, max_seqlen_kv: the largest seqused_q and seqused_k.
        count: on a device only: [1] int32 there, the entries; more than capacity if some are
            missing.
    """

    section: str
    kv_rank: int | None
    sequence: Int32Array
    cu_seqlens_q: Int32Array
    cu_seqlens_q_padded: Int32Array
    cu_seqlens_kv: Int32Array
    cu_seqlens_kv_padded: Int32Array
    seqused_q: Int32Array
    seqused_k: Int32Array
    window_left: Int32Array
    window_right: Int32Array
    max_seqlen_q: int
    max_seqlen_kv: int
    count: Any = None

    @property
    def window_size(self) -> tuple[int, int] | None:
        """The one (left, right) that is right for every entry, or None if there is none.

        For kernels whose window is a scalar: (-1, 0) for a causal diagonal, for example.

        >>> import ringside as rs
        >>> unequal = rs.PackedLayout.from_lengths([6, 12], pad_to_multiple_of=4)
        >>> rs.thd.all_gather_step_metadata(unequal, 2, 1, rs.Mask.causal())[0].window_size
        (-1, 0)
        >>> ahead = rs.Mask.sliding_window(-1, 3)
        >>> print(rs.thd.all_gather_step_metadata(unequal, 2, 1, ahead)[0].window_size)
        None
        """
        if self.count is not None:
            raise _core.Unsupported(
                "window_size of a step on a device, which only a look at all entries tells. "
                "Nearest supported: window_left and window_right, a window for each entry"
            )
        left = _common(self.window_left, self.seqused_k)
        right = _common(self.window_right, self.seqused_q)
        return None if left is None or right is None else (left, right)

    def pairs(self) -> Int32Array:
        """[pairs, 2] int32: the (query row, key row) pairs that the step means, entry by entry.

        Rows are those of the rank's local queries and of the resident keys. As many as the mask
        lets through: 8 bytes each.

        >>> import ringside as rs
        >>> step = rs.thd.p2p_step_metadata(rs.PackedLayout([0, 4]), 2, 0, 0, rs.Mask.causal())
        >>> step.pairs().tolist()
        [[0, 0], [1, 0], [1, 1]]
        """
        rows = list(entries_of(self).rows())
        queries = np.repeat([q for q, _, _ in rows], [end - begin for _, begin, end in rows])
        keys = [np.arange(begin, end) for _, begin, end in rows]
        pairs = np.empty((len(queries), 2), np.int32)
        pairs[:, 0], pairs[:, 1] = queries, np.concatenate([*keys, np.empty(0, int)])
        return pairs

    def __eq__(self, other: object) -> bool:
        """Whether all fields hold the same; of two on the host."""
        if not isinstance(other, StepMetadata):
            return NotImplemented
        for step in (self, other):
            entries_of(step)  # refuses one on a device
        names = [field.name for field in dataclasses.fields(self)]
        return all(np.array_equal(getattr(self, n), getattr(other, n)) for n in names)

    __hash__ = None  # type: ignore[assignment]


def _common(bounds: Int32Array, lengths: Int32Array) -> int | None:
    """A bound that serves all: -1 (or one of at least length-1) hides nothing."""
    binding = np.unique(bounds[bounds >= 0])
    if len(binding) == 0:
        return -1
    free = lengths[bounds < 0]
    serves = len(binding) == 1 and bool(np.all(free - 1 <= binding[0]))
    return int(binding[0]) if serves else None


def all_gather_step_metadata(
    layout: _core.PackedLayout | DeviceLayout,
    cp_size: int,
    rank: int,
    mask: _core.Mask,
    *,
    layout_k: _core.PackedLayout | DeviceLayout | None = None,
    capacity: int | None = None,
) -> list[StepMetadata]:
    """The two steps of a rank over gathered keys: its first chunk, then its second.

    Rank r owns chunks r and 2*cp_size-1-r of each sequence (dual chunks); keys and values of all
    ranks are resident in sequence order (see cp_rank_order_to_sequence_order). Each step's queries
    are one of the chunks. The pairs that the two steps of all ranks mean are exactly the mask's,
    for every length, padding, cp_size and mask, chunked ones too: these get an entry a chunk.

    Args:
        layout: where the sequences of q lie, globally.
        cp_size: number of ranks.
        rank: this rank, 0 to cp_size-1.
        mask: which keys a query sees.
        layout_k: where those of k and v lie, as many sequences; default layout. (On a device,
            another layout is another one, even if it holds the same numbers.)
        capacity: of a DeviceLayout only: entries that the arrays have room for; default as many as
            there can be, one a sequence where one window can say it.

    Returns:
        Two StepMetadata.

    Raises:
        ValueError: a rank outside the group, layouts of different batch, a bad mask.

    Source: Transformer Engine's pull request 2829. For full and causal masks, lengths padded to
    2*cp_size, these are its arrays. Its single window, adjusted by the longest sequence, is not the
    mask's once a window looks ahead and lengths differ; here each sequence has its own. Also unlike
    there, keys before the window are left out, and an entry without queries has no keys.

    >>> import ringside as rs
    >>> layout = rs.PackedLayout([0, 8, 13], [0, 8, 16])
    >>> first, second = rs.thd.all_gather_step_metadata(layout, 2, 1, rs.Mask.causal())
    >>> second.cu_seqlens_q_padded.tolist(), second.seqused_q.tolist(), second.seqused_k.tolist()
    ([2, 6, 8], [2, 1], [6, 5])
    >>> second.window_left.tolist(), second.window_right.tolist(), second.window_size
    ([-1, -1], [0, -1], (-1, 0))
    """
    if isinstance(layout, DeviceLayout):
        cp_rank = (cp_size, rank)
        steps = _thd_cuda.all_gather_steps(layout, cp_rank, mask, layout_k, capacity)
        return [StepMetadata(**step) for step in steps]
    refuse_on_host(capacity=capacity)
    keys = layout if layout_k is None else layout_k
    steps = _core.thd.all_gather_step_metadata(layout, keys, cp_size, rank, mask)
    return [StepMetadata(**step) for step in steps]


def p2p_step_metadata(
    layout: _core.PackedLayout | DeviceLayout,
    cp_size: int,
    rank: int,
    step: int,
    mask: _core.Mask,
    *,
    layout_k: _core.PackedLayout | DeviceLayout | None = None,
    capacity: int | None = None,
) -> StepMetadata:
    """A step of the ring: this rank's queries over the keys of rank (rank - step) % cp_size.

    Rows are those of the two ranks' local buffers, whole: offsets skip the half that a step does
    not need, nothing is copied. The pairs that all steps of all ranks mean are exactly the mask's,
    for every length (none has to be divisible), padding, cp_size, window and chunk.

    All entries come from one rule. A query sees one interval of positions, so one interval of the
    key rows, even across the gap between a rank's two chunks; a stretch of queries whose
    intervals one window can say is an entry (see StepMetadata). For plain masks it yields the
    peer's table, P being half of a sequence's local rows:

        section     when            queries         keys           window
        diagonal    kv_rank = rank  local 2P        local 2P       (-1, 0)
        lower       kv_rank < rank  local 2P        first half P   (-1, -1)
        upper       kv_rank > rank  second half P   local 2P       (-1, -1)
        all         not causal      local 2P        local 2P       (-1, -1)

    A section is a name only. Layouts that differ between q and k have no halves that could be left
    out as a whole, so all their steps are "all", causal or not.

    Args:
        layout: where the sequences of q lie, globally.
        cp_size: number of ranks.
        rank: this rank, 0 to cp_size-1.
        step: 0 to cp_size-1; 0 is the rank's own keys.
        mask: which keys a query sees.
        layout_k: where those of k and v lie, as many sequences; default layout. (On a device,
            another layout is another one, even if it holds the same numbers.)
        capacity: of a DeviceLayout only: entries that the arrays have room for; default as many as
            there can be, one a sequence where one window can say it.

    Raises:
        ValueError: a rank or step out of range, layouts of different batch, a bad mask.

    Source: the forward ring of Transformer Engine's context_parallel.py, which divides valid
    lengths by cp_size and so drops tokens of lengths that are no multiple of 2*cp_size (its issues
    1929 and 1930) unless they are padded.

    >>> import ringside as rs
    >>> lower = rs.thd.p2p_step_metadata(rs.PackedLayout([0, 8]), 2, 1, 1, rs.Mask.causal())
    >>> lower.section, lower.kv_rank, lower.seqused_q.tolist(), lower.seqused_k.tolist()
    ('lower', 0, [4], [2])
    >>> window = rs.Mask.sliding_window(2, 0)
    >>> lower = rs.thd.p2p_step_metadata(rs.PackedLayout([0, 8]), 2, 1, 1, window)
    >>> lower.seqused_q.tolist(), lower.seqused_k.tolist(), lower.window_left.tolist()
    ([2], [2], [0])
    """
    if isinstance(layout, DeviceLayout):
        cp_rank = (cp_size, rank)
        return StepMetadata(**_thd_cuda.p2p_step(layout, cp_rank, step, mask, layout_k, capacity))
    refuse_on_host(capacity=capacity)
    keys = layout if layout_k is None else layout_k
    return StepMetadata(**_core.thd.p2p_step_metadata(layout, keys, cp_size, rank, step, mask))
