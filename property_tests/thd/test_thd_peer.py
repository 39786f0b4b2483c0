"""Step metadata next to Transformer Engine's: the same where that is right, and where it is not.

The peer's numbers are formulas read off its context_parallel.py, not runs of it.
"""

import numpy as np
import ringside as rs
from hypothesis import given
from hypothesis import strategies as st
from ringside import thd
from thd_cases import cp_sizes, layout_of, pairs_of_entry

TWO_OF_FOUR = layout_of([2], [2])


def clamp(x: int, low: int, high: int) -> int:
    return max(low, min(x, high))


class Peer:
    """Transformer Engine's per-sequence numbers, by its formulas."""

    def __init__(self, layout: rs.PackedLayout, cp_size: int):
        self.cp_size = cp_size
        self.lengths = layout.lengths.tolist()
        self.half = (layout.padded_lengths // (2 * cp_size)).tolist()
        self.local = (layout.cu_seqlens_padded // cp_size).tolist()  # [batch+1]

    def valid(self, s: int, chunk: int) -> int:
        return clamp(self.lengths[s] - chunk * self.half[s], 0, self.half[s])

    def n0(self, s: int, rank: int) -> int:
        return self.valid(s, rank)

    def n1(self, s: int, rank: int) -> int:
        return self.valid(s, 2 * self.cp_size - 1 - rank)


@st.composite
def peer_layouts(draw: st.DrawFn) -> tuple[rs.PackedLayout, int]:
    cp_size = draw(cp_sizes)
    lengths = draw(st.lists(st.integers(0, 40), max_size=3))
    layout = rs.PackedLayout.from_lengths(lengths, pad_to_multiple_of=2 * cp_size)
    return layout, cp_size


@given(peer_layouts())
def test_causal_and_full_rings_are_the_peers_table(case):
    layout, cp_size = case
    peer = Peer(layout, cp_size)
    for rank in range(cp_size):
        for i in range(cp_size):
            causal = thd.p2p_step_metadata(layout, cp_size, rank, i, rs.Mask.causal())
            full = thd.p2p_step_metadata(layout, cp_size, rank, i, rs.Mask.full())
            assert full.section == "all"
            for s in range(layout.num_sequences):
                check_ring_entry(peer, causal, s, rank)
                check_ring_entry(peer, full, s, rank)


def check_ring_entry(peer: Peer, step: thd.StepMetadata, s: int, rank: int) -> None:
    n0, n1, half, start = peer.n0(s, rank), peer.n1(s, rank), peer.half[s], peer.local[s]
    kv = peer.n0(s, step.kv_rank), peer.n1(s, step.kv_rank)
    queries, keys, window, q_row = {
        "diagonal": (n0 + n1, n0 + n1, (-1, 0), start),
        "lower": (n0 + n1, kv[0], (-1, -1), start),
        "upper": (n1, kv[0] + kv[1], (-1, -1), start + half),
        "all": (n0 + n1, kv[0] + kv[1], (-1, -1), start),
    }[step.section]
    if queries == 0 or keys == 0:  # the peer keeps the other side's count; nobody reads it
        queries = keys = 0
    assert (step.seqused_q[s], step.seqused_k[s]) == (queries, keys)
    assert (step.cu_seqlens_q_padded[s], step.cu_seqlens_kv_padded[s]) == (q_row, start)
    if queries > 1 and keys > 1:  # one row or key: every window that shows it all is the same
        assert (step.window_left[s], step.window_right[s]) == window


@given(peer_layouts())
def test_causal_and_full_all_gathers_are_the_peers_arrays(case):
    layout, cp_size = case
    peer = Peer(layout, cp_size)
    for rank in range(cp_size):
        for mask in (rs.Mask.causal(), rs.Mask.full()):
            steps = thd.all_gather_step_metadata(layout, cp_size, rank, mask)
            for half, step in enumerate(steps):
                assert step.section == ("first_half", "second_half")[half]
                assert step.kv_rank is None
                for s in range(layout.num_sequences):
                    chunk = rank if half == 0 else 2 * cp_size - 1 - rank
                    check_gathered_entry(peer, step, s, chunk, mask)


def check_gathered_entry(peer: Peer, step: thd.StepMetadata, s: int, chunk: int, mask) -> None:
    queries, half, length = peer.valid(s, chunk), peer.half[s], peer.lengths[s]
    visible = length if mask == rs.Mask.full() else min(length, (chunk + 1) * half)
    assert step.seqused_q[s] == queries
    assert step.seqused_k[s] == (visible if queries else 0)
    assert step.cu_seqlens_q_padded[s] == peer.local[s] + (half if chunk >= peer.cp_size else 0)
    assert step.cu_seqlens_kv_padded[s] == peer.local[s] * peer.cp_size
    if queries > 1:
        assert (step.window_left[s], step.window_right[s]) == mask.window_size


# --- the peer's single window, adjusted by the longest sequence, is not the mask's


def peer_scalar_pairs(layout: rs.PackedLayout, cp_size: int, chunk: int, s: int, window):
    """Pull request 2829's visible counts and window, from max_seqlen, read bottom-right."""
    peer, (left, right) = Peer(layout, cp_size), window
    longest = int(max(layout.padded_lengths))
    end = (chunk + 1) * longest // (2 * cp_size)
    sequence_end = min(longest, end + right)
    scalar_left, scalar_right = left + sequence_end - end, end + right - sequence_end
    sq, half = peer.valid(s, chunk), peer.half[s]
    sk = min(peer.lengths[s], (chunk + 1) * half + right)
    return {
        (chunk * half + i, j)
        for i in range(sq)
        for j in range(sk)
        if i + sk - sq - scalar_left <= j <= i + sk - sq + scalar_right
    }


def wanted_pairs(layout: rs.PackedLayout, cp_size: int, chunk: int, s: int, window):
    half, length = int(layout.padded_lengths[s]) // (2 * cp_size), int(layout.lengths[s])
    dense = rs.Mask.sliding_window(*window).to_dense(length, length)
    rows = range(chunk * half, min((chunk + 1) * half, length))
    return {(q, k) for q in rows for k in np.flatnonzero(dense[q]).tolist()}


def test_the_peers_single_window_first_differs_at_two_tokens_of_four():
    window = (0, 1)
    peer = peer_scalar_pairs(TWO_OF_FOUR, 2, 1, 0, window)
    mask = wanted_pairs(TWO_OF_FOUR, 2, 1, 0, window)
    assert peer - mask == {(1, 0)}, "query 1 is shown key 0, which lies before its window"
    assert mask - peer == set()
    ours = thd.all_gather_step_metadata(TWO_OF_FOUR, 2, 1, rs.Mask.sliding_window(*window))[0]
    assert pairs_of_entry(ours, 0) == [(0, 1)]


@given(peer_layouts(), st.integers(0, 12))
def test_the_peers_single_window_is_right_while_nothing_looks_ahead(case, left):
    layout, cp_size = case
    for s in range(layout.num_sequences):
        for chunk in range(2 * cp_size):
            peer = peer_scalar_pairs(layout, cp_size, chunk, s, (left, 0))
            assert peer == wanted_pairs(layout, cp_size, chunk, s, (left, 0))


def test_the_peers_single_window_hides_keys_of_a_short_sequence_next_to_a_long_one():
    layout, window = rs.PackedLayout.from_lengths([8, 16], pad_to_multiple_of=4), (1, 3)
    peer, mask = [
        [pairs(layout, 2, 2, s, window) for s in range(2)]
        for pairs in (peer_scalar_pairs, wanted_pairs)
    ]
    assert peer[1] == mask[1], "the longest sequence is right"
    assert mask[0] - peer[0] == {(4, 7)}
    assert (4, 2) in peer[0] - mask[0]
