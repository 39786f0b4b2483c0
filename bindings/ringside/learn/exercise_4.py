"""Exercise 4: a partition of one's own, whose slowest rank does little more than its share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from matplotlib.figure import Figure

from ringside import lengths
from ringside._core import PackedLayout, PlanError, Segment, Unsupported
from ringside._plan.build import plan
from ringside._plan.estimate import estimate
from ringside._plan.names import Comm
from ringside._plan.partitions import segments_of_both
from ringside.learn._exercise import Answer, Exercise, Wrong
from ringside.learn.figures.balance import figure_of_blocks, figure_of_owners

STUB = '''
def partition(layout, cp_size):
    """A list of rs.Segment(seq, pos, len) for each rank: each row, padding too, once."""
'''
LIMIT = 1.3  # times an equal share of the blocks
TOKENS, RANKS = 131072, 32
FEW = 1024  # tokens of a real pack that is proved
TRACES = ("man_pages", "c_headers", "python_stdlib", "perl_manual")
COMM: Comm = "all_gather"


class PackToShare(NamedTuple):
    """Documents to pack and to share: few and small ones, or TOKENS of them."""

    told: str
    lengths: tuple[int, ...]
    pad_to: int
    cp_size: int

    @property
    def layout(self) -> PackedLayout:
        """Of the pack."""
        return PackedLayout.from_lengths(list(self.lengths), pad_to_multiple_of=self.pad_to)

    @property
    def is_large(self) -> bool:
        """Whether blocks are counted; of a small pack nobody can share them well."""
        return sum(self.lengths) >= TOKENS


class Shared(NamedTuple):
    """What became of a partition: blocks of each rank, and what an equal share is."""

    blocks: Any
    ideal: float


def _small(documents: list[int], pad_to: int, cp_size: int) -> PackToShare:
    told = f"from_lengths({documents}, pad_to_multiple_of={pad_to}) at cp_size={cp_size}"
    return PackToShare(told, tuple(documents), pad_to, cp_size)


def _repeated(documents: list[int]) -> PackToShare:
    """TOKENS tokens of these documents, over and over."""
    times = -(-TOKENS // sum(documents))
    packed = lengths.pack(documents * times, TOKENS).tolist()
    told = f"{TOKENS:,} tokens of documents {documents}, again and again, at cp_size={RANKS}"
    return PackToShare(told, tuple(packed), 1, RANKS)


def _real(trace: str, share: int) -> PackToShare:
    """TOKENS tokens of a trace, from some document on."""
    documents = lengths.load(trace)
    last = len(documents) - int(np.searchsorted(np.cumsum(documents[::-1]), TOKENS)) - 1
    first = last * share // 16
    packed = lengths.pack(documents[first:], TOKENS).tolist()
    told = f"{TOKENS:,} tokens of {trace} from document {first} on, at cp_size={RANKS}"
    return PackToShare(told, tuple(packed), 1, RANKS)


def cases() -> Any:
    """Small packs, real ones too, to be proved; then large ones, real and of a few lengths."""
    few = st.lists(st.integers(0, 40), max_size=3)
    real_few = st.sampled_from(TRACES).map(lambda trace: lengths.pack(lengths.load(trace), FEW))
    small = st.one_of(
        st.builds(_small, few, st.integers(1, 4), st.integers(1, 4)),
        st.builds(_small, real_few.map(np.ndarray.tolist), st.integers(1, 8), st.integers(2, 8)),
    )
    some = st.lists(st.integers(1, 2048).map(lambda n: 64 * n), min_size=1, max_size=4)
    real = st.builds(_real, st.sampled_from(TRACES), st.integers(0, 16))
    return small, real, some.map(_repeated)


def ask(partition: Answer, case: PackToShare) -> Shared:
    """Proves the partition of a small pack, and counts that of a large one."""
    layout = case.layout
    given = partition(layout, case.cp_size)
    mine: Any = ()
    try:
        mine, _ = segments_of_both(given, None, layout, None, case.cp_size)
        found = estimate(layout, cp_size=case.cp_size, partition=mine, comm=COMM)
        if not case.is_large:
            plan(layout, cp_size=case.cp_size, partition=mine, comm=COMM).verify()
    except (ValueError, TypeError, PlanError, Unsupported) as error:
        words = f"got a partition that is refused: {error}; expected one that rs.plan takes"
        raise Wrong(words, _owners(layout, mine)) from None
    alone = estimate(layout, cp_size=1, partition="contiguous", comm=COMM)
    return Shared(found.blocks.sum(axis=1), float(alone.blocks.sum()) / case.cp_size)


def _owners(layout: PackedLayout, shards: Any) -> Any:
    """[rows] how many ranks own each, as far as these are segments."""
    owners = np.zeros(layout.num_rows, int)
    segments = shards if isinstance(shards, list | tuple) else ()
    for segment in (x for mine in segments if isinstance(mine, list | tuple) for x in mine):
        if isinstance(segment, Segment) and 0 <= segment.seq < layout.num_sequences:
            rows = layout.cu_seqlens_padded[segment.seq] + segment.positions
            np.add.at(owners, rows[(rows >= 0) & (rows < len(owners))], 1)
    return owners


def fault(case: PackToShare, got: Shared) -> str:
    """A rank that computes more than LIMIT of its share."""
    most = int(got.blocks.max())
    if not case.is_large or most <= LIMIT * got.ideal:
        return ""
    return (
        f"got {most:,} blocks on rank {int(got.blocks.argmax())}, {most / got.ideal:.2f} of an "
        f"equal share; expected at most {LIMIT} of it, {LIMIT * got.ideal:,.0f}"
    )


def drawn(case: PackToShare, got: Any) -> Figure:
    """The blocks of each rank; of a partition that is refused, how many own each row."""
    if isinstance(got, Shared):
        return figure_of_blocks(got.blocks, got.ideal, LIMIT)
    return figure_of_owners(np.zeros(case.layout.num_rows, int) if got is None else got)


EXERCISE = Exercise(
    stub=STUB,
    plain=_small([5, 3], 1, 2),
    cases=cases,
    ask=ask,
    fault=fault,
    told=lambda case: case.told,
    drawn=drawn,
    holds=f"every row has one owner, and no rank does more than {LIMIT} of its share",
    examples=30,
)
