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

Tests spend more time on drawing than on what they compute. So strategies are made once, not for
each case, and a choice that is made of several draws elsewhere is one draw from a table here.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
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
TABLE = 256
"""Of so many values Hypothesis draws one as often as another; of more, the first more often."""


def _table(*shares: tuple[int, Sequence[Any]]) -> SearchStrategy[Any]:
    """Values of each share, so many times each, in one draw; shrinks in the order given.

    Each value comes once at first, so that shrinking meets it once. What is longer than a table
    takes two draws, of a share and of a value.
    """
    sizes = [times * len(share) for times, share in shares]
    if sum(sizes) > TABLE:
        quarters = [max(1, round(4 * size / sum(sizes))) for size in sizes]
        parts = zip(quarters, shares, strict=True)
        return st.one_of([st.sampled_from(x) for n, (_, x) in parts for _ in range(n)])
    again = [value for times, share in shares for value in [*share] * times]
    values = dict.fromkeys(again)
    for value in values:
        again.remove(value)
    return st.sampled_from([*values, *again])


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
    return _lengths(min_sequences, max_sequences, min_length, max_length)


@functools.cache
def _lengths(
    min_sequences: int, max_sequences: int, min_length: int, max_length: int
) -> SearchStrategy[list[int]]:
    each = st.integers(min_length, max_length)
    if every := range(min_length, max_length + 1):
        short, shortest = every[: max(1, 9 - min_length)], every[:2]
        each = _table((1, every), (len(every) // len(short), short), (len(every) // 16, shortest))
    # One before none: Hypothesis draws what comes first far more often than the rest.
    least = dict.fromkeys(min(max(min_sequences, n), max_sequences) for n in (1, 0, 2, 3, 4))
    return st.one_of([st.lists(each, min_size=n, max_size=max_sequences) for n in least])


_any_lengths = lengths
PADDING = _table((10, [0]), (1, range(10)))


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
        padding = PADDING
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
    if bounds is chunk_sizes is aligns is None:
        return MASKS
    return _masks(
        BOUNDS if bounds is None else bounds,
        CHUNK_SIZES if chunk_sizes is None else chunk_sizes,
        ALIGNS if aligns is None else aligns,
    )


@st.composite
def _masks(
    draw: DrawFn,
    bounds: SearchStrategy[int],
    chunk_sizes: SearchStrategy[int],
    aligns: SearchStrategy[str],
) -> rs.Mask:
    window_size = draw(bounds), draw(bounds)
    return rs.Mask(window_size=window_size, chunk_size=draw(chunk_sizes), align=draw(aligns))


BOUNDS = _table((60, [-1]), (10, range(4)), (1, range(21)), (20, [MAX_INT32]))
CHUNK_SIZES = _table((60, [0]), (8, range(1, 6)), (1, range(1, 21)), (20, [MAX_INT32]))
ALIGNS = st.sampled_from(["top_left", "bottom_right"])
MASKS = _masks(BOUNDS, CHUNK_SIZES, ALIGNS)


def cp_sizes(*, max_size: int = 8) -> SearchStrategy[int]:
    """Numbers of ranks, from 1, primes too; mostly several.

    >>> cp_sizes(max_size=2).example()  # doctest: +SKIP
    2
    """
    return st.integers(1, max_size)


def heads(*, max_kv_heads: int = 3, max_group_size: int = 4) -> SearchStrategy[tuple[int, int]]:
    """(num_heads, num_kv_heads): equal, grouped, one kv head for all; often fewer than ranks.

    >>> heads(max_kv_heads=1).example()  # doctest: +SKIP
    (3, 1)
    """
    return _heads(max_kv_heads, max_group_size)


@functools.cache
def _heads(max_kv_heads: int, max_group_size: int) -> SearchStrategy[tuple[int, int]]:
    sizes = itertools.product(range(1, max_kv_heads + 1), range(1, max_group_size + 1))
    pairs = [(num_kv_heads * group, num_kv_heads) for num_kv_heads, group in sizes]
    return _table((1, pairs), (len(pairs) // 3, [(1, 1)]))


def softmax_scales(*, positive: bool = False) -> SearchStrategy[float | None]:
    """None (the default scale), 0, negative, and large enough that few keys matter.

    Args:
        positive: neither 0 nor negative.

    >>> softmax_scales().example()  # doctest: +SKIP
    0.125
    """
    return POSITIVE_SCALES if positive else SCALES


SCALES = st.sampled_from([None, 1.0, 0.125, 0.0, -0.5, 8.0])
POSITIVE_SCALES = st.sampled_from([None, 1.0, 0.125, 8.0])


@st.composite
def segments(draw: DrawFn, *, layout: rs.PackedLayout, cp_size: int) -> list[list[rs.Segment]]:
    """Random ownership of a layout's rows: strides, arbitrary cuts, dealt to ranks in any order.

    Every row, padding too, has exactly one owner; ranks may own nothing.

    >>> segments(layout=rs.PackedLayout([0, 3]), cp_size=2).example()  # doctest: +SKIP
    [[Segment(seq=0, pos=0, len=3, stride=1, row=-1)], []]
    """
    return _draw_segments(draw, layout, cp_size)


def _draw_segments(draw: DrawFn, layout: rs.PackedLayout, cp_size: int) -> list[list[rs.Segment]]:
    shards: list[list[rs.Segment]] = [[] for _ in range(cp_size)]
    places = _places(cp_size)
    for seq, rows in enumerate(layout.padded_lengths.tolist()):
        stride = draw(STRIDES) if rows else 1
        for first in range(min(stride, rows)):
            count = -(-(rows - first) // stride)
            cuts = {draw(_cuts(count)) for _ in range(min(3, count - 1))} | {0, count}
            for begin, end in itertools.pairwise(sorted(cuts)):
                place, owner = divmod(draw(places), cp_size)
                shard = shards[owner]
                piece = rs.Segment(seq, first + begin * stride, end - begin, stride)
                shard.insert(len(shard) - place % (len(shard) + 1), piece)
    return shards


STRIDES = st.integers(1, 3)


@functools.cache
def _cuts(count: int) -> SearchStrategy[int]:
    """Where to cut so many rows; half of them are 0, no cut."""
    return _table((1, range(count)), (count - 2, [0]))


@functools.cache
def _places(cp_size: int) -> SearchStrategy[int]:
    """An owner and how far from the end of what it has, as one number."""
    return st.sampled_from(range(12 * cp_size))


def partitions(
    *, layout: rs.PackedLayout, cp_size: int
) -> SearchStrategy[str | list[list[rs.Segment]]]:
    """What ringside.plan takes as partition: a name, or one's own segments of this layout.

    >>> partitions(layout=rs.PackedLayout([0, 3]), cp_size=2).example()  # doctest: +SKIP
    'striped'
    """
    return st.one_of(NAMES, segments(layout=layout, cp_size=cp_size))


NAMES = st.sampled_from(rs.PARTITIONS)
NAMES_OR_OWN = _table((1, rs.PARTITIONS), (4, [None]))


def comms() -> SearchStrategy[str]:
    """Names of transports.

    >>> comms().example()  # doctest: +SKIP
    'p2p'
    """
    return COMMS


COMMS = st.sampled_from(rs.COMMS)


def a2a_sizes(*, comm: str, cp_size: int) -> SearchStrategy[int | None]:
    """What a transport takes as a2a_size: a divisor of cp_size for "a2a+p2p", else None.

    >>> a2a_sizes(comm="a2a+p2p", cp_size=6).example()  # doctest: +SKIP
    3
    """
    if comm != "a2a+p2p":
        return st.none()
    return _divisors(cp_size)


@functools.cache
def _divisors(cp_size: int) -> SearchStrategy[int]:
    return st.sampled_from([n for n in range(1, cp_size + 1) if cp_size % n == 0])


def stages(*, comm: str) -> SearchStrategy[int | None]:
    """What a transport takes as stages: one to four exchanges or None for "fetch", else None.

    >>> stages(comm="fetch").example()  # doctest: +SKIP
    2
    """
    return STAGES if comm == "fetch" else st.none()


STAGES = st.sampled_from([None, 1, 2, 3, 4])
OTHER_KEYS = st.booleans()


@functools.cache
def _layouts_of(num_sequences: int) -> SearchStrategy[rs.PackedLayout]:
    return layouts(lengths=lengths(min_sequences=num_sequences, max_sequences=num_sequences))


# What cases() draws by default; its arguments have the names of the strategies above.
LAYOUTS, CP_SIZES, HEADS = layouts(), cp_sizes(), heads()
HEAD_DIMS = _table(  # alike in half of the cases, as in most models
    (5, [(n, n) for n in range(1, 7)]), (1, [*itertools.permutations(range(1, 7), 2)])
)
SEEDS = st.sampled_from(range(2**32))


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
    # First what is one number, then what is a list: another length shifts what is drawn behind it.
    cp_size = draw(CP_SIZES if cp_sizes is None else cp_sizes)
    partition = draw(NAMES_OR_OWN if partitions is None else partitions)
    comm = draw(COMMS if comms is None else comms)
    num_heads, num_kv_heads = draw(HEADS if heads is None else heads)
    head_dim, head_dim_v = (
        draw(HEAD_DIMS) if head_dims is None else (draw(head_dims), draw(head_dims))
    )
    scalars = {
        "mask": draw(MASKS if masks is None else masks),
        "a2a_size": draw(_divisors(cp_size)) if comm == "a2a+p2p" else None,
        "stages": draw(STAGES) if comm == "fetch" else None,
        "softmax_scale": draw(SCALES if softmax_scales is None else softmax_scales),
        "dtype": "float64" if dtypes is None else draw(dtypes),
        **({} if options is None else draw(options(num_heads))),
        "seed": draw(SEEDS),
    }
    layout_q = draw(LAYOUTS if layouts_q is None else layouts_q)
    if layouts_k is not None:
        layout_k = draw(layouts_k(layout_q))
    else:
        layout_k = draw(_layouts_of(layout_q.num_sequences)) if draw(OTHER_KEYS) else None
    partition_k = None
    if partition is None:
        partition = _draw_segments(draw, layout_q, cp_size)
    if not isinstance(partition, str) and layout_k is not None:
        partition_k = _draw_segments(draw, layout_k, cp_size)
    return Case(
        layout_q,
        layout_k,
        cp_size=cp_size,
        partition=partition,
        partition_k=partition_k,
        comm=comm,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        head_dim_v=head_dim_v,
        **scalars,
    )


def plans(**restrictions: Any) -> SearchStrategy[rs.Plan]:
    """Plans; takes the arguments of cases().

    >>> plans(cp_sizes=st.just(2)).example()  # doctest: +SKIP
    <Plan zigzag over p2p, cp_size=2, steps=2, rows=0, Mask.causal(align="top_left")>
    """
    return cases(**restrictions).map(Case.plan)
