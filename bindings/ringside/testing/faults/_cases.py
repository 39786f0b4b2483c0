"""What the peers of the gallery accept: dual chunks that 2*cp_size divides, and masks of theirs."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import ringside as rs
from ringside._extras import extra
from ringside.testing.cases import Case

with extra("testing", "ringside.testing.faults"):
    from hypothesis import strategies as st
    from hypothesis.strategies import DrawFn, SearchStrategy

CAUSAL_OR_FULL = st.sampled_from([rs.Mask.full(), rs.Mask.causal()])


@st.composite
def _layouts(draw: DrawFn, cp_size: int, shape: str = "padded", batch: int | None = None) -> Any:
    """Documents of whole chunks: "equal" and "full" ones have no padding, "padded" ones may."""
    batch = draw(st.integers(1, 3)) if batch is None else batch
    sizes = [draw(st.integers(1, 3)) * 2 * cp_size for _ in range(batch)]
    if shape == "equal":
        sizes = sizes[:1] * batch
    lengths = [draw(st.integers(0, n)) if shape == "padded" else n for n in sizes]
    return rs.PackedLayout([0, *accumulate(lengths)], [0, *accumulate(sizes)])


@st.composite
def _cases(draw: DrawFn, shape: str, masks: SearchStrategy[rs.Mask], comm: str) -> Case:
    cp_size = draw(st.integers(2, 3))
    num_heads, num_kv_heads = draw(st.sampled_from([(1, 1), (2, 1), (2, 2)]))
    return Case(
        draw(_layouts(cp_size, shape)),
        mask=draw(masks),
        cp_size=cp_size,
        comm=comm,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=draw(st.integers(1, 4)),
        head_dim_v=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 1000)),
    )


def _right_windows() -> SearchStrategy[rs.Mask]:
    left = st.one_of(st.just(-1), st.integers(0, 4))
    return st.builds(rs.Mask.sliding_window, left, st.integers(1, 4))


def equal_documents_with_right_windows() -> SearchStrategy[Case]:
    """W1: where a scalar window is right."""
    return _cases("equal", _right_windows(), "all_gather")


def padded_documents_with_right_windows() -> SearchStrategy[Case]:
    """W2."""
    return _cases("padded", _right_windows(), "all_gather")


def full_documents() -> SearchStrategy[Case]:
    """W3."""
    return _cases("full", CAUSAL_OR_FULL, "all_gather")


def padded_documents() -> SearchStrategy[Case]:
    """W4."""
    return _cases("padded", CAUSAL_OR_FULL, "p2p")


@st.composite
def causal_cross_attention(draw: DrawFn) -> Case:
    """W5: q and k of other lengths, but the same longest."""
    case = draw(_cases("padded", st.just(rs.Mask.causal()), "all_gather"))
    sizes = draw(st.permutations(case.layout_q.padded_lengths.tolist()))
    return case.replace(layout_k=draw(_valid_in(sizes)))


@st.composite
def _valid_in(draw: DrawFn, sizes: list[int]) -> rs.PackedLayout:
    lengths = [draw(st.integers(0, rows)) for rows in sizes]
    return rs.PackedLayout([0, *accumulate(lengths)], [0, *accumulate(sizes)])


def attention_chunks() -> SearchStrategy[Case]:
    """W6."""
    return _cases("full", st.integers(1, 9).map(rs.Mask.chunked), "p2p")


@st.composite
def ring_with_windows(draw: DrawFn) -> Case:
    """W7: no padding, so that only real rows can be wrong; keys that other ranks hold."""
    windows = st.builds(rs.Mask.sliding_window, st.integers(0, 4), st.integers(0, 2))
    case = draw(_cases("full", windows, "p2p"))
    batch = case.layout_q.num_sequences
    return case.replace(layout_k=draw(_layouts(case.cp_size, "full", batch)))


def many_steps_in_bfloat16() -> SearchStrategy[Case]:
    """W8: many ranks, one document that all of them hold a part of."""
    return st.builds(
        lambda cp_size, seed: Case(
            rs.PackedLayout([0, 4 * cp_size]),
            mask=rs.Mask.full(),
            cp_size=cp_size,
            dtype="bfloat16",
            head_dim_v=8,
            seed=seed,
        ),
        st.integers(8, 32),
        st.integers(0, 1000),
    )
