"""Partitions of one's own: segments, an owner a document or a row, or a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Number
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._core import Mask, PackedLayout, Segment, arguments
from ringside._plan.names import PartitionName

Shards = Sequence[Sequence[Segment]]
Owners = npt.ArrayLike  # [sequences] or [rows]: the rank that owns each
Partition: TypeAlias = PartitionName | Shards | Owners | Callable[[PackedLayout, int], Any]


def partition(
    name: PartitionName,
    layout: PackedLayout,
    cp_size: SupportsIndex,
    *,
    mask: Mask = Mask.causal(),  # noqa: B008  (immutable)
) -> list[list[Segment]]:
    """The segments that each rank owns under a partition, to start from for one of your own.

    Args:
        name: one of ringside.PARTITIONS.
        layout: where the sequences lie.
        cp_size: number of ranks.
        mask: where the partition looks at it.

    Returns:
        [cp_size] lists of Segment, which ringside.plan(partition=...) takes; their
        row is -1, so that they can be moved: plan() counts rows in the order of each list.

    Raises:
        ValueError: an unknown name; the known ones are listed.

    >>> import ringside as rs
    >>> layout = rs.PackedLayout.from_lengths([6, 2])
    >>> mine = rs.partition("contiguous", layout, 2)
    >>> mine[0], mine[1] = mine[1], mine[0]  # the ranks trade places
    >>> rs.plan(layout, cp_size=2, partition=mine, name="swapped").position_ids(0).tolist()
    [3, 4, 5, 1]
    """
    told = _core.partition(name=name, layout=layout, cp_size=cp_size, mask=mask)
    return [[Segment(x.seq, x.pos, x.len, x.stride) for x in segments] for segments in told]


def segments_of_both(
    partition: Partition,
    partition_k: Partition | None,
    layout_q: PackedLayout,
    layout_k: PackedLayout | None,
    cp_size: SupportsIndex | None,
) -> tuple[str | Shards, str | Shards | None]:
    """Names, or segments for every rank: of the queries and, where they differ, of the keys."""
    layout_q = arguments.layout(layout_q, "layout_q")
    keys = layout_q if layout_k is None else arguments.layout(layout_k, "layout_k")
    of_q = _segments_of(partition, layout_q, cp_size, "partition")
    if isinstance(of_q, str):
        return of_q, partition_k  # type: ignore[return-value]  # C++ refuses one beside a name
    if partition_k is not None:
        ranks = len(of_q) if cp_size is None and isinstance(of_q, list | tuple) else cp_size
        return of_q, _segments_of(partition_k, keys, ranks, "partition_k")
    if keys != layout_q and _is_of_documents(partition, layout_q):
        return of_q, _segments_of(partition, keys, cp_size, "partition")
    return of_q, None


def _segments_of(
    given: Any, layout: PackedLayout, cp_size: SupportsIndex | None, name: str
) -> str | Shards:
    if callable(given):
        given = given(layout, _ranks(cp_size, f"{name} is a function"))
        name = f"what {name} returned"
    if not _lists_owners(given) or (cp_size is None and not len(given)):
        _require_segments(given, name)
        segments: str | Shards = given
        return segments
    return _of_owners(given, layout, _ranks(cp_size, f"{name} lists owners"), name)


def _require_segments(given: Any, name: str) -> None:
    """Raises TypeError, naming what is neither text nor a list of Segment for every rank."""
    if isinstance(given, str):
        return
    if not isinstance(given, list | tuple):
        raise TypeError(
            f"{name} is a {type(given).__name__}; expected a name (see ringside.PARTITIONS) or a "
            "list of Segment for every rank"
        )
    for rank, shard in enumerate(given):
        if not isinstance(shard, list | tuple):
            raise TypeError(
                f"{name}[{rank}] is a {type(shard).__name__}; expected a list of Segment, as of "
                "every rank"
            )
        for i, segment in enumerate(shard):
            if not isinstance(segment, _core.Segment):
                raise TypeError(
                    f"{name}[{rank}][{i}] is a {type(segment).__name__}; expected a Segment"
                )


def _is_of_documents(given: Any, layout: PackedLayout) -> bool:
    """Whether it says whose each document is, so that it can be asked of keys of other lengths."""
    return callable(given) or (_lists_owners(given) and len(given) == layout.num_sequences)


def _lists_owners(given: Any) -> bool:
    if isinstance(given, list | tuple):
        return all(isinstance(x, Number) for x in given)
    return hasattr(given, "__array__") and np.ndim(given) == 1


def _ranks(cp_size: SupportsIndex | None, why: str) -> int:
    if cp_size is None:
        raise ValueError(f"cp_size is missing; {why}, which needs the number of ranks. Pass it")
    _core.check_cp_size(cp_size)  # before a list for every rank is made
    return arguments.int32(cp_size, "cp_size")


def _of_owners(given: Any, layout: PackedLayout, cp_size: int, name: str) -> Shards:
    empty = np.empty(0, np.int32)  # an empty list has no integers
    owners = arguments.integers(given if len(given) else empty, name)
    if len(owners) not in (layout.num_sequences, layout.num_rows):
        raise ValueError(
            f"{name} has shape {list(owners.shape)}; expected an owner for each of "
            f"{layout.num_sequences} documents or of {layout.num_rows} rows, or a list of Segment "
            "for every rank"
        )
    if len(owners) and not 0 <= owners.min() <= owners.max() < cp_size:
        wrong = int(np.flatnonzero((owners < 0) | (owners >= cp_size))[0])
        raise ValueError(
            f"{name}[{wrong}] is {owners[wrong]}; expected a rank, 0 to {cp_size - 1}, or a larger "
            "cp_size"
        )
    if len(owners) == layout.num_sequences:
        owners = np.repeat(owners, layout.padded_lengths)
    return _runs(owners, layout, cp_size)


def _runs(owners: npt.NDArray[np.int32], layout: PackedLayout, cp_size: int) -> Shards:
    """A segment for every run of rows of one document that one rank owns."""
    shards: list[list[Segment]] = [[] for _ in range(cp_size)]
    starts = layout.cu_seqlens_padded.tolist()
    changes = np.flatnonzero(np.diff(owners)) + 1
    cuts = np.union1d(changes, layout.cu_seqlens_padded).tolist()
    sequence = 0
    for begin, end in pairwise(cuts):
        while begin >= starts[sequence + 1]:
            sequence += 1
        shards[owners[begin]].append(Segment(sequence, begin - starts[sequence], end - begin))
    return shards
