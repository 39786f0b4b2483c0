"""Whether somebody's step metadata mean the pairs of a mask, and which they miss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._core import arguments
from ringside.thd._rows import partition_indices
from ringside.thd._step_pairs import Entries, entries_of, entries_of_peer
from ringside.thd._steps import StepMetadata

MOST = 1000  # pairs of a kind that are listed
COMMS = ("all_gather", "p2p")
Integers = npt.NDArray[np.int64]


@dataclass
class MetadataReport:
    """What check_step_metadata found.

    Attributes:
        pairs: how many (query, key) pairs the rank's queries see under the mask.
        num_missing, num_surplus: how many of them no step means; how many pairs are meant that
            should not be, or once too often.
        missing: [at most 1000, 3] int64, rows of (sequence, query, key), positions in a sequence.
        surplus: [at most 1000, 4] int64, rows of (sequence of the query, query, sequence of the
            key, key); positions from a sequence's length on are padding.
        repeated: [as surplus] bool, whether the mask has the pair, so that it is meant twice.

    >>> import ringside as rs
    >>> layout = rs.PackedLayout([0, 2])
    >>> report = rs.thd.check_step_metadata([], layout, 1, 0, rs.Mask.causal())
    >>> bool(report), report.pairs, report.missing.tolist()
    (False, 3, [[0, 0, 0], [0, 1, 0], [0, 1, 1]])
    """

    rank: int
    cp_size: int
    pairs: int
    num_missing: int = 0
    num_surplus: int = 0
    missing: Integers = field(default_factory=lambda: np.empty((0, 3), np.int64))
    surplus: Integers = field(default_factory=lambda: np.empty((0, 4), np.int64))
    repeated: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))

    def __bool__(self) -> bool:
        """Whether the pairs are the mask's."""
        return not (self.num_missing or self.num_surplus)

    def __str__(self) -> str:
        """A sentence, and the first pair of each kind."""
        where = f"rank {self.rank} of {self.cp_size}"
        if self:
            return f"{where}: the {self.pairs:,} pairs of the mask"
        lines = [
            f"{where}: {self.num_missing:,} pairs missing, {self.num_surplus:,} too many, of "
            f"{self.pairs:,}"
        ]
        if self.num_missing:
            sequence, q, k = self.missing[0].tolist()
            lines.append(f"missing: sequence {sequence}, query {q} does not see key {k}")
        if self.num_surplus:
            of_q, q, of_k, k = self.surplus[0].tolist()
            why = "twice" if self.repeated[0] else "which the mask hides"
            key = f"key {k}" if of_k == of_q else f"key {k} of sequence {of_k}"
            lines.append(f"too many: sequence {of_q}, query {q} sees {key}, {why}")
        return "\n".join(lines)


def check_step_metadata(
    theirs: Sequence[StepMetadata | Mapping[str, Any]],
    layout: _core.PackedLayout,
    cp_size: int,
    rank: int,
    mask: _core.Mask,
    *,
    layout_k: _core.PackedLayout | None = None,
    comm: str = "all_gather",
) -> MetadataReport:
    """Which pairs somebody's metadata of a rank's steps miss, and which they have too many.

    All steps of the rank together must mean each pair of the mask once: which step means it is
    theirs to choose.

    Args:
        theirs: the rank's steps. Each is a StepMetadata, or a mapping in the words of Transformer
            Engine's fused attention: cu_seqlens_q, cu_seqlens_kv (of valid tokens),
            cu_seqlens_q_padded, cu_seqlens_kv_padded (first rows; default those of valid tokens),
            attn_mask_type ("padding" by default, "padding_causal", whose diagonal begins top left,
            "padding_causal_bottom_right") and window_size.
        layout: where the sequences of q lie, globally.
        cp_size: number of ranks, in dual chunks (the partition "zigzag").
        rank: 0 to cp_size-1.
        mask: which keys a query should see.
        layout_k: where the sequences of k and v lie; default layout.
        comm: whose keys are resident. "all_gather": everybody's, in sequence order, in every step.
            "p2p": step s of `theirs` has those of rank (rank - s) % cp_size; there are cp_size.

    Returns:
        A MetadataReport, true if nothing is wrong; its str tells what is.

    Raises:
        ValueError: entries outside the rank's rows, arrays of unlike lengths, unknown words.

    >>> import ringside as rs
    >>> layout, mask = rs.PackedLayout([0, 8]), rs.Mask.causal()
    >>> whole = {"cu_seqlens_q": [0, 4], "cu_seqlens_kv": [0, 8]}
    >>> print(rs.thd.check_step_metadata([whole], layout, 2, 1, mask))
    rank 1 of 2: 0 pairs missing, 14 too many, of 18
    too many: sequence 0, query 2 sees key 3, which the mask hides
    >>> steps = rs.thd.all_gather_step_metadata(layout, 2, 1, mask)
    >>> bool(rs.thd.check_step_metadata(steps, layout, 2, 1, mask))
    True
    """
    layout, mask = arguments.layout(layout, "layout"), arguments.mask(mask, "mask")
    keys = layout if layout_k is None else arguments.layout(layout_k, "layout_k")
    if not isinstance(theirs, list | tuple):
        raise TypeError(f"theirs is a {type(theirs).__name__}; expected a list of the rank's steps")
    if arguments.text(comm, "comm") not in COMMS:
        raise ValueError(f'comm="{comm}" has no step metadata; expected one of {", ".join(COMMS)}')
    q_rows = partition_indices(layout.cu_seqlens_padded, cp_size, rank)
    entries = [_entries(step, f"theirs[{i}]") for i, step in enumerate(theirs)]
    if comm == "p2p" and len(entries) != cp_size:
        raise ValueError(f"theirs has {len(entries)} steps; a ring of {cp_size} has as many")
    keys_of_step = [_resident(keys, cp_size, rank, step, comm) for step in range(len(entries))]
    for i, (step, k_rows) in enumerate(zip(entries, keys_of_step, strict=True)):
        _require_inside(step, len(q_rows), len(k_rows), f"theirs[{i}]")
    return _Comparison(layout, keys, mask, q_rows).of(entries, keys_of_step, rank, cp_size)


def _entries(step: StepMetadata | Mapping[str, Any], name: str) -> Entries:
    if isinstance(step, StepMetadata):
        return entries_of(step)
    if isinstance(step, Mapping):
        return entries_of_peer(step, name)
    raise TypeError(f"{name} is a {type(step).__name__}; expected a StepMetadata or a mapping")


def _resident(
    keys: _core.PackedLayout, cp_size: int, rank: int, step: int, comm: str
) -> npt.NDArray[np.int32]:
    """[resident rows] the global row that each row of the key buffer holds."""
    if comm == "all_gather":
        return np.arange(keys.num_rows, dtype=np.int32)
    rows: npt.NDArray[np.int32] = partition_indices(
        keys.cu_seqlens_padded, cp_size, (rank - step) % cp_size
    )
    return rows


def _require_inside(step: Entries, q_rows: int, k_rows: int, name: str) -> None:
    """Refuses rows that a kernel would read beyond a buffer."""
    sides = (("q", step.q_row + step.sq, q_rows), ("k", step.k_row + step.sk, k_rows))
    for operand, ends, rows in sides:
        if len(ends) and ends.max() > rows:
            b = int(ends.argmax())
            raise ValueError(
                f"{name}: entry {b} ends at row {ends[b]} of {operand}; the rank has {rows} rows "
                f"resident. Pass offsets of its own rows, not global ones"
            )


class _Comparison:
    """Meant pairs beside the mask's, a query at a time."""

    def __init__(
        self,
        layout: _core.PackedLayout,
        keys: _core.PackedLayout,
        mask: _core.Mask,
        q_rows: npt.NDArray[np.int32],
    ) -> None:
        self.layout, self.keys, self.mask, self.q_rows = layout, keys, mask, q_rows
        self.missing: list[tuple[int, ...]] = []
        self.surplus: list[tuple[int, ...]] = []
        self.repeated: list[bool] = []

    def of(
        self,
        entries: list[Entries],
        keys_of_step: list[npt.NDArray[np.int32]],
        rank: int,
        cp_size: int,
    ) -> MetadataReport:
        """All steps of the rank."""
        report = MetadataReport(rank, cp_size, 0)
        meant: list[list[npt.NDArray[np.int32]]] = [[] for _ in self.q_rows]
        for step, k_rows in zip(entries, keys_of_step, strict=True):
            for q_row, begin, end in step.rows():
                meant[q_row].append(k_rows[begin:end])
        for q_row, k_rows_of_query in zip(self.q_rows.tolist(), meant, strict=True):
            self._compare(report, q_row, k_rows_of_query)
        report.missing = np.array(self.missing, np.int64).reshape(-1, 3)
        report.surplus = np.array(self.surplus, np.int64).reshape(-1, 4)
        report.repeated = np.array(self.repeated, np.bool_)
        return report

    def _compare(
        self, report: MetadataReport, q_row: int, meant: list[npt.NDArray[np.int32]]
    ) -> None:
        sequence, query = _place(self.layout, q_row)
        begin, end = self._seen(sequence, query)
        report.pairs += end - begin
        wrong = np.zeros(self.keys.num_rows, np.int32)
        wrong[begin:end] = -1
        for k_rows in meant:
            wrong[k_rows] += 1
        report.num_missing += int(np.count_nonzero(wrong < 0))
        report.num_surplus += int(wrong[wrong > 0].sum())
        for k_row in np.flatnonzero(wrong)[: MOST + 1].tolist():
            of_key, key = _place(self.keys, k_row)
            if wrong[k_row] < 0 and len(self.missing) < MOST:
                self.missing.append((sequence, query, key))
            elif wrong[k_row] > 0 and len(self.surplus) < MOST:
                self.surplus.append((sequence, query, of_key, key))
                self.repeated.append(begin <= k_row < end)

    def _seen(self, sequence: int, query: int) -> tuple[int, int]:
        """The global key rows that a query sees; none if it is padding."""
        first = int(self.keys.cu_seqlens_padded[sequence])
        len_q, len_k = int(self.layout.lengths[sequence]), int(self.keys.lengths[sequence])
        if query >= len_q:
            return first, first
        begin, end = self.mask.visible(query, len_q, len_k)
        return first + begin, first + max(begin, end)


def _place(layout: _core.PackedLayout, row: int) -> tuple[int, int]:
    """(sequence, position) of a global row."""
    sequence = int(np.searchsorted(layout.cu_seqlens_padded, row, side="right")) - 1
    return sequence, row - int(layout.cu_seqlens_padded[sequence])
