"""ringside.plan: a problem and a way to split it, as a Plan."""

from __future__ import annotations

from typing import SupportsIndex

from ringside._arguments.keywords import knows_keywords
from ringside._core import Mask, PackedLayout
from ringside._plan.names import Comm
from ringside._plan.partitions import Partition, segments_of_both
from ringside._plan.plan import Plan


@knows_keywords
def plan(
    layout_q: PackedLayout,
    layout_k: PackedLayout | None = None,
    *,
    mask: Mask = Mask.causal(),  # noqa: B008  (immutable)
    cp_size: SupportsIndex | None = None,
    partition: Partition = "zigzag",
    partition_k: Partition | None = None,
    name: str | None = None,
    comm: Comm = "p2p",
    a2a_size: SupportsIndex | None = None,
    stages: SupportsIndex | None = None,
    num_heads: SupportsIndex = 1,
    num_kv_heads: SupportsIndex | None = None,
    max_tiles: SupportsIndex = 50_000_000,
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
            (layout, cp_size) that returns one of these. For packs take "balanced": short sequences
            whole, long ones in few pieces, so that ranks own equal rows and do equal work in a
            kernel's blocks; keys go with their queries.
        partition_k: your own of k and v, where layout_k differs from layout_q and partition lists
            segments or an owner for each row.
        name: what a partition of your own is called, where people read of it; default "custom".
        comm: which rows are resident when, a name of ringside.COMMS: "p2p" passes K/V round a
            ring, "all_gather" brings everybody all of them at once, "a2a" trades rows for heads,
            "a2a+p2p" does so inside groups that form a ring, and "fetch" computes a rank's own
            tiles first, then brings only the K/V rows that its other tiles see, from their owners,
            with few rows between two runs.
        a2a_size: for comm="a2a+p2p": how many neighbouring ranks trade rows for heads; a divisor
            of cp_size.
        stages: for comm="fetch": in how many exchanges at most the rows come; default 2. With 1 no
            rank's own rows lie beside those that come, and are neither copied nor added up; 2 and
            more begin sooner where own tiles are too few to hide the exchange. On four H200s, copy
            engines and as many key heads as heads 1 is quicker from some 1,800 pairs of own tiles
            for each row that is fetched; where heads share keys, sooner.
        num_heads: query heads. They matter to plans that split heads (a2a), and to attention().
        num_kv_heads: kv heads, a divisor of num_heads; default num_heads.
        max_tiles: a plan of more tiles is refused before it is built; 50 million take 2 GiB.
            ringside.estimate counts what a larger one would cost.

    No length has to be divisible by anything; ranks may own nothing.

    Who owns what of two sequences, 16 and 8 blocks of 128 tokens, on 4 ranks; * is all of them:

        contiguous         0000111122223333 00112233  each sequence in runs
        zigzag             0011223333221100 01233210  each sequence in 8 chunks, mirrored
        striped            **************** ********  each sequence dealt token by token
        whole_pack         0000001111112222 22333333  the packed stream in runs
        whole_pack_zigzag  0001112223333332 22111000  the packed stream in 8 chunks, mirrored
        balanced           1122233322211100 01000333  few pieces, equal rows, equal blocks

    Whose keys rank 2 of 4 holds in each step, under a full mask, each rank owning a quarter:

        p2p         2 1 0 3
        all_gather  0123
        a2a         0123, of one head in four
        a2a+p2p     23 01, of two heads in four
        fetch       2 23 01, only rows that are seen

    Raises:
        ValueError: arguments that do not fit, unknown names (the known ones are listed), segments
            that own a row twice or not at all, more than max_tiles tiles, more ranks than memory
            holds the steps of.

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
    of_q, of_k = segments_of_both(partition, partition_k, layout_q, layout_k, cp_size)
    if isinstance(of_q, str) and name is not None:
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
        stages=stages,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        max_tiles=max_tiles,
    )
