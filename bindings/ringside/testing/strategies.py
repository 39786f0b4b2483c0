"""Hypothesis strategies for packed attention: layouts, masks, partitions, whole cases.

Every strategy draws anything that is legal unless you restrict it; arguments are keywords, and what
they restrict is passed as a strategy of its own. All of them shrink towards the plain case: few
short sequences, no padding, the full mask, one rank, one head.

>>> from hypothesis import given
>>> from ringside.testing import strategies
>>> @given(strategies.cases(comms=st.just("all_gather")))
... def test_gathering_agrees_with_the_definition(case):
...     assert case.largest_error() < 1e-9
>>> test_gathering_agrees_with_the_definition()
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ringside as rs
from ringside._extras import extra
from ringside.testing._option_strategies import dtypes, options, sinks
from ringside.testing.cases import Case

with extra("testing", "ringside.testing.strategies"):
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy

__all__ = [
    "a2a_sizes",
    "cases",
    "comms",
    "cp_sizes",
    "dtypes",
    "heads",
    "layouts",
    "lengths",
    "masks",
    "options",
    "partitions",
    "plans",
    "segments",
    "sinks",
    "softmax_scales",
    "stages",
]

MAX_INT32 = 2**31 - 1


def lengths(
    *,
    min_sequences: int = 0,
    max_sequences: int = 4,
    min_length: int = 0,
    max_length: int = 48,
) -> SearchStrategy[list[int]]:
    """Lists of sequence lengths: mostly short, sometimes empty or one token, some very skewed.

    Few lists are empty: a list of so many at least is drawn as often as one of any number.

    >>> lengths(max_length=1).example()  # doctest: +SKIP
    [0, 1, 1]
    """
    short = st.integers(min_length, min(max_length, max(min_length, 8)))
    each = st.one_of(short, short, st.integers(min_length, max_length))
    least = [min(max(min_sequences, n), max_sequences) for n in (0, 1, 2, 2, 2, 3)]
    return st.one_of([st.lists(each, min_size=n, max_size=max_sequences) for n in least])


_any_lengths = lengths


@st.composite
def layouts(
    draw: DrawFn,
    *,
    lengths: SearchStrategy[list[int]] | None = None,
    padding: SearchStrategy[int] | None = None,
) -> rs.PackedLayout:
    """PackedLayouts: no sequence at all, zero-length and one-token ones, padding between and after.

    Args:
        lengths: default lengths(), any.
        padding: rows of padding behind a sequence, drawn for each; default mostly 0, up to 9. A
            zero-length sequence may have some too: padding only.

    >>> layouts(padding=st.just(0)).example()  # doctest: +SKIP
    PackedLayout(cu_seqlens=[0, 3, 3, 8])
    """
    if padding is None:
        padding = st.one_of(st.just(0), st.integers(0, 9))
    cu_seqlens, cu_seqlens_padded = [0], [0]
    for length in draw(_any_lengths() if lengths is None else lengths):
        cu_seqlens.append(cu_seqlens[-1] + length)
        cu_seqlens_padded.append(cu_seqlens_padded[-1] + length + draw(padding))
    return rs.PackedLayout(cu_seqlens, cu_seqlens_padded)


def masks(
    *,
    bounds: SearchStrategy[int] | None = None,
    chunk_sizes: SearchStrategy[int] | None = None,
    aligns: SearchStrategy[str] | None = None,
) -> SearchStrategy[rs.Mask]:
    """Masks of every kind and their combinations.

    Args:
        bounds: of the window, left and right; default -1 (unbounded), small, or the largest int32.
        chunk_sizes: default 0 (none), small, or the largest int32.
        aligns: default "top_left" and "bottom_right".

    >>> masks(bounds=st.just(-1), chunk_sizes=st.just(0)).example()  # doctest: +SKIP
    Mask(window_size=(-1, -1), chunk_size=0, align="top_left")
    """
    far = st.just(MAX_INT32)
    if bounds is None:
        bounds = st.one_of(st.just(-1), st.integers(0, 3), st.integers(0, 20), far)
    if chunk_sizes is None:
        chunk_sizes = st.one_of(st.just(0), st.integers(1, 5), st.integers(1, 20), far)
    return st.builds(
        rs.Mask,
        window_size=st.tuples(bounds, bounds),
        chunk_size=chunk_sizes,
        align=st.sampled_from(["top_left", "bottom_right"]) if aligns is None else aligns,
    )


def cp_sizes(*, max_size: int = 8) -> SearchStrategy[int]:
    """Numbers of ranks, from 1, primes too; mostly several.

    >>> cp_sizes(max_size=2).example()  # doctest: +SKIP
    2
    """
    several = [st.integers(min(2, max_size), max_size)] * 5
    return st.one_of(st.integers(1, max_size), *several)


@st.composite
def heads(draw: DrawFn, *, max_kv_heads: int = 3, max_group_size: int = 4) -> tuple[int, int]:
    """(num_heads, num_kv_heads): equal, grouped, one kv head for all; often fewer than ranks.

    >>> heads(max_kv_heads=1).example()  # doctest: +SKIP
    (3, 1)
    """
    num_kv_heads = draw(st.integers(1, max_kv_heads))
    return num_kv_heads * draw(st.integers(1, max_group_size)), num_kv_heads


def softmax_scales() -> SearchStrategy[float | None]:
    """None (the default scale), 0, negative, and large enough that few keys matter.

    >>> softmax_scales().example()  # doctest: +SKIP
    0.125
    """
    return st.sampled_from([None, 1.0, 0.125, 0.0, -0.5, 8.0])


@st.composite
def segments(draw: DrawFn, *, layout: rs.PackedLayout, cp_size: int) -> list[list[rs.Segment]]:
    """Random ownership of a layout's rows: strides, arbitrary cuts, dealt to ranks in any order.

    Every row, padding too, has exactly one owner; ranks may own nothing.

    >>> segments(layout=rs.PackedLayout([0, 3]), cp_size=2).example()  # doctest: +SKIP
    [[Segment(seq=0, pos=0, len=3, stride=1, row=-1)], []]
    """
    pieces = []
    for seq, rows in enumerate(layout.padded_lengths.tolist()):
        stride = draw(st.integers(1, 3)) if rows else 1
        for first in range(min(stride, rows)):
            count = -(-(rows - first) // stride)
            cuts = sorted(draw(st.sets(st.integers(1, count), max_size=3)) | {0, count})
            for begin, end in itertools.pairwise(cuts):
                pieces.append(rs.Segment(seq, first + begin * stride, end - begin, stride))
    owners = draw(st.lists(st.integers(0, cp_size - 1), min_size=len(pieces), max_size=len(pieces)))
    shards: list[list[rs.Segment]] = [[] for _ in range(cp_size)]
    for piece, owner in zip(draw(st.permutations(pieces)), owners, strict=True):
        shards[owner].append(piece)
    return shards


def partitions(
    *, layout: rs.PackedLayout, cp_size: int
) -> SearchStrategy[str | list[list[rs.Segment]]]:
    """What ringside.plan takes as partition: a name, or one's own segments of this layout.

    >>> partitions(layout=rs.PackedLayout([0, 3]), cp_size=2).example()  # doctest: +SKIP
    'striped'
    """
    return st.one_of(st.sampled_from(rs.PARTITIONS), segments(layout=layout, cp_size=cp_size))


def comms() -> SearchStrategy[str]:
    """Names of transports.

    >>> comms().example()  # doctest: +SKIP
    'p2p'
    """
    return st.sampled_from(rs.COMMS)


def a2a_sizes(*, comm: str, cp_size: int) -> SearchStrategy[int | None]:
    """What a transport takes as a2a_size: a divisor of cp_size for "a2a+p2p", else None.

    >>> a2a_sizes(comm="a2a+p2p", cp_size=6).example()  # doctest: +SKIP
    3
    """
    if comm != "a2a+p2p":
        return st.none()
    return st.sampled_from([n for n in range(1, cp_size + 1) if cp_size % n == 0])


def stages(*, comm: str) -> SearchStrategy[int | None]:
    """What a transport takes as stages: one to four exchanges or None for "fetch", else None.

    >>> stages(comm="fetch").example()  # doctest: +SKIP
    2
    """
    return st.sampled_from([None, 1, 2, 3, 4]) if comm == "fetch" else st.none()


@st.composite
def _keys(draw: DrawFn, layout_q: rs.PackedLayout) -> rs.PackedLayout | None:
    """None (as layout_q), or another layout of as many sequences."""
    if not draw(st.booleans()):
        return None
    batch = layout_q.num_sequences
    same_number = lengths(min_sequences=batch, max_sequences=batch)
    return draw(layouts(lengths=same_number))


# Arguments of the strategies below have the names of the strategies above.
_any_layouts, _any_masks, _any_cp_sizes, _any_heads = layouts, masks, cp_sizes, heads
_any_partitions, _any_comms, _any_scales = partitions, comms, softmax_scales


@st.composite
def cases(
    draw: DrawFn,
    *,
    layouts_q: SearchStrategy[rs.PackedLayout] | None = None,
    layouts_k: Callable[[rs.PackedLayout], SearchStrategy[Any]] | None = None,
    masks: SearchStrategy[rs.Mask] | None = None,
    cp_sizes: SearchStrategy[int] | None = None,
    partitions: SearchStrategy[str] | None = None,
    comms: SearchStrategy[str] | None = None,
    heads: SearchStrategy[tuple[int, int]] | None = None,
    head_dims: SearchStrategy[int] | None = None,
    softmax_scales: SearchStrategy[float | None] | None = None,
    dtypes: SearchStrategy[str] | None = None,
    options: Callable[[int], SearchStrategy[dict[str, Any]]] | None = None,
) -> Case:
    """Whole cases: a problem, a plan for it, arrays.

    Args:
        layouts_q: default layouts(), any.
        layouts_k: a function from the layout of q to a strategy for the layout of k and v (None for
            "the same"), which has as many sequences; default the same or any other.
        masks, cp_sizes, comms, heads, softmax_scales: default any.
        partitions: names; default any name, or segments of its own.
        head_dims: of q and k and, drawn once more, of v; default 1 to 6.
        dtypes: of the inputs; default "float64" only, the type of the definition.
        options: a function from the number of heads to a strategy for more keywords of Case, such
            as strategies.options; default none, plain attention.

    >>> same = lambda layout_q: st.none()
    >>> cases(layouts_k=same, cp_sizes=st.just(2)).example()  # doctest: +SKIP
    Case(PackedLayout(cu_seqlens=[0, 3]), cp_size=2, partition="striped")
    """
    layout_q = draw(_any_layouts() if layouts_q is None else layouts_q)
    layout_k = draw((layouts_k or _keys)(layout_q))
    cp_size = draw(_any_cp_sizes() if cp_sizes is None else cp_sizes)
    if partitions is None:
        partitions = _any_partitions(layout=layout_q, cp_size=cp_size)
    partition = draw(partitions)
    partition_k = None
    if not isinstance(partition, str) and layout_k is not None:
        partition_k = draw(segments(layout=layout_k, cp_size=cp_size))
    comm = draw(_any_comms() if comms is None else comms)
    num_heads, num_kv_heads = draw(_any_heads() if heads is None else heads)
    head_dims = st.integers(1, 6) if head_dims is None else head_dims
    return Case(
        layout_q,
        layout_k,
        mask=draw(_any_masks() if masks is None else masks),
        cp_size=cp_size,
        partition=partition,
        partition_k=partition_k,
        comm=comm,
        a2a_size=draw(a2a_sizes(comm=comm, cp_size=cp_size)),
        stages=draw(stages(comm=comm)),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=draw(head_dims),
        head_dim_v=draw(head_dims),
        softmax_scale=draw(_any_scales() if softmax_scales is None else softmax_scales),
        dtype="float64" if dtypes is None else draw(dtypes),
        **({} if options is None else draw(options(num_heads))),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


def plans(**restrictions: Any) -> SearchStrategy[rs.Plan]:
    """Plans; takes the arguments of cases().

    >>> plans(cp_sizes=st.just(2)).example()  # doctest: +SKIP
    <Plan zigzag over p2p, cp_size=2, steps=2, rows=0, Mask.causal(align="top_left")>
    """
    return cases(**restrictions).map(Case.plan)
