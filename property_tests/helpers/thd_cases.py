"""Random layouts and masks for ringside.thd, and an independent reading of what it returns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import ringside as rs
from hypothesis import strategies as st

cp_sizes = st.integers(1, 5)


@st.composite
def cp_ranks(draw: st.DrawFn) -> tuple[int, int]:
    """(cp_size, rank)."""
    cp_size = draw(cp_sizes)
    return cp_size, draw(st.integers(0, cp_size - 1))


def layout_of(lengths: Sequence[int], padding: Sequence[int]) -> rs.PackedLayout:
    rows = np.add(lengths, padding[: len(lengths)])
    return rs.PackedLayout(cumulative(lengths), cumulative(rows))


def cumulative(lengths: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(lengths, dtype=int).tolist()]


@st.composite
def layouts(draw: st.DrawFn, max_len: int = 26, batch: int | None = None) -> rs.PackedLayout:
    """Any lengths, zero too, any padding; batch 0 to 3 unless said."""
    count = draw(st.integers(0, 3)) if batch is None else batch
    sizes = st.lists(st.integers(0, max_len), min_size=count, max_size=count)
    return layout_of(draw(sizes), draw(st.lists(st.integers(0, 9), min_size=3, max_size=3)))


@st.composite
def masks(draw: st.DrawFn) -> rs.Mask:
    bound = st.integers(-1, 12)
    return rs.Mask(
        window_size=(draw(bound), draw(bound)),
        chunk_size=draw(st.integers(0, 9)),
        align=draw(st.sampled_from(["top_left", "bottom_right"])),
    )


def local_tokens(layout: rs.PackedLayout, cp_size: int, rank: int) -> list[tuple[int, int]]:
    """(sequence, position) of each of the rank's rows, by the definition of dual chunks alone."""
    tokens = []
    for s, rows in enumerate(layout.padded_lengths.tolist()):
        cuts = [c * rows // (2 * cp_size) for c in range(2 * cp_size + 1)]
        for c in (rank, 2 * cp_size - 1 - rank):
            tokens += [(s, position) for position in range(cuts[c], cuts[c + 1])]
    return tokens


def global_tokens(layout: rs.PackedLayout) -> list[tuple[int, int]]:
    return [(s, p) for s, rows in enumerate(layout.padded_lengths.tolist()) for p in range(rows)]


class SeenPairs:
    """How often each (query, key) of each sequence was meant."""

    def __init__(self, layout_q: rs.PackedLayout, layout_k: rs.PackedLayout):
        sizes = zip(layout_q.padded_lengths, layout_k.padded_lengths, strict=True)
        self.counts = [np.zeros(size, int) for size in sizes]
        self.layouts = layout_q, layout_k

    def add(self, q: tuple[int, int], k: tuple[int, int]) -> None:
        assert q[0] == k[0], f"query {q} was given key {k} of another sequence"
        self.counts[q[0]][q[1], k[1]] += 1

    def assert_are(self, mask: rs.Mask) -> None:
        for s, counts in enumerate(self.counts):
            lengths = [int(layout.lengths[s]) for layout in self.layouts]
            want = np.zeros_like(counts)
            want[: lengths[0], : lengths[1]] = mask.to_dense(*lengths)
            wrong = np.argwhere(counts != want)
            assert len(wrong) == 0, (
                f"sequence {s}: (query, key) = {tuple(wrong[0])} was meant "
                f"{counts[tuple(wrong[0])]} times, expected {want[tuple(wrong[0])]}"
            )


def pairs_of_entry(step: rs.thd.StepMetadata, b: int) -> list[tuple[int, int]]:
    """(query row, key row): FlashAttention's bottom-right contract, read literally."""
    sq, sk = int(step.seqused_q[b]), int(step.seqused_k[b])
    left, right = int(step.window_left[b]), int(step.window_right[b])
    return [
        (int(step.cu_seqlens_q_padded[b]) + i, int(step.cu_seqlens_kv_padded[b]) + j)
        for i in range(sq)
        for j in range(sk)
        if (left == -1 or i + sk - sq - left <= j) and (right == -1 or j <= i + sk - sq + right)
    ]


@st.composite
def segment_tables(draw: st.DrawFn) -> tuple[list[tuple[int, int, int, int, int]], int, int]:
    """(segments that write no row twice, rows of out, rows of x)."""
    x_rows, table, to_row = draw(st.integers(1, 30)), [], draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 5))):
        rows, to_step = draw(st.integers(0, 6)), draw(st.integers(1, 3))
        from_step = draw(st.integers(-3, 3))
        reach = from_step * max(rows - 1, 0)
        if abs(reach) >= x_rows:
            from_step = reach = 0
        from_row = draw(st.integers(max(0, -reach), x_rows - 1 - max(0, reach)))
        span = to_step * max(rows - 1, 0)
        if draw(st.booleans()):
            table.append((from_row, from_step, to_row + span, -to_step, rows))
        else:
            table.append((from_row, from_step, to_row, to_step, rows))
        to_row += span + draw(st.integers(1, 3))
    return table, to_row + draw(st.integers(0, 3)), x_rows
