"""ringside.plan: a problem and a way to split it, as a Plan."""

from __future__ import annotations

from typing import SupportsIndex

from ringside._core import Mask, PackedLayout, arguments
from ringside._plan.partitions import Partition, is_of_documents, segments_of
from ringside._plan.plan import Plan

KEYS = "partition_k"


def plan(
    layout_q: PackedLayout,
    layout_k: PackedLayout | None = None,
    *,
    mask: Mask = Mask.causal(),  # noqa: B008  (immutable)
    cp_size: SupportsIndex | None = None,
    partition: Partition = "zigzag",
    partition_k: Partition | None = None,
    name: str | None = None,
    comm: str = "p2p",
    a2a_size: SupportsIndex | None = None,
    num_heads: SupportsIndex = 1,
    num_kv_heads: SupportsIndex | None = None,
) -> Plan:
    """Says who computes what, when, from which rows: plain data that every backend interprets.

    Args:
        layout_q: where the sequences of q lie.
        layout_k: those of k and v, as many sequences; default layout_q.
        mask: which keys a query sees inside its sequence.
        cp_size: number of ranks; may be left out with segments of your own, which say it.
        partition: who owns which rows, a name of ringside.PARTITIONS, or your own: one list of
            Segment for every rank, that together own each row (padding too) exactly once;
            [sequences] or [rows] integers, the rank that owns each; or a function of
            (layout, cp_size) that returns one of these.
        partition_k: your own of k and v, where layout_k differs from layout_q and partition lists
            segments or an owner for each row.
        name: what a partition of your own is called, where people read of it; default "custom".
        comm: which rows are resident when, a name of ringside.COMMS.
        a2a_size: for comm="a2a+p2p": how many neighbouring ranks trade rows for heads; a divisor
            of cp_size.
        num_heads: query heads. They matter to plans that split heads (a2a), and to attention().
        num_kv_heads: kv heads, a divisor of num_heads; default num_heads.

    No length has to be divisible by anything; ranks may own nothing.

    Raises:
        ValueError: arguments that do not fit, unknown names (the known ones are listed), segments
            that own a row twice or not at all.

    Sources: ring, Liu et al., arXiv:2310.01889; dual chunks, Transformer Engine's context
    parallelism; stripes, Brandon et al., arXiv:2311.09431; all-to-all, Jacobs et al. (Ulysses),
    arXiv:2309.14509; a2a+p2p, Fang and Zhao (USP), arXiv:2405.07719.

    >>> import ringside as rs
    >>> layout = rs.PackedLayout([0, 5, 12], [0, 8, 16])
    >>> plan = rs.plan(layout, cp_size=2, partition="zigzag", comm="p2p")
    >>> for segment in plan.shards_q(0):
    ...     print(segment)
    Segment(seq=0, pos=0, len=2, stride=1, row=0)
    Segment(seq=0, pos=6, len=2, stride=1, row=2)
    Segment(seq=1, pos=0, len=2, stride=1, row=4)
    Segment(seq=1, pos=6, len=2, stride=1, row=6)
    >>> [len(step.tiles) for step in plan.steps(1)]
    [2, 2]
    """
    layout_q = arguments.layout(layout_q, "layout_q")
    layout_k = None if layout_k is None else arguments.layout(layout_k, "layout_k")
    of_q = segments_of(partition, layout_q, cp_size, "partition")
    of_k = partition_k
    if not isinstance(of_q, str):
        cp_size = len(of_q) if cp_size is None else cp_size
        of_k = _of_keys(partition, partition_k, layout_q, layout_k, cp_size)
    elif name is not None:
        raise ValueError(
            f'name="{name}" with partition="{of_q}"; a name is for a partition of your own. '
            "Leave it out"
        )
    return Plan._make(
        layout_q,
        layout_k,
        mask=mask,
        cp_size=cp_size,
        partition=of_q,
        partition_k=of_k,
        name=name,
        comm=comm,
        a2a_size=a2a_size,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
    )


def _of_keys(
    partition: Partition,
    partition_k: Partition | None,
    layout_q: PackedLayout,
    layout_k: PackedLayout | None,
    cp_size: SupportsIndex,
) -> Partition | None:
    """Whose the keys are: as said, or as the queries' documents are where that can be told."""
    if layout_k is None or layout_k == layout_q:
        return None if partition_k is None else segments_of(partition_k, layout_q, cp_size, KEYS)
    if partition_k is not None:
        return segments_of(partition_k, layout_k, cp_size, KEYS)
    if is_of_documents(partition, layout_q):
        return segments_of(partition, layout_k, cp_size, "partition")
    return None
