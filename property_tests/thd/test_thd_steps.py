"""Step metadata: the pairs it means, over all steps and ranks, are exactly the mask's."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import example, given
from hypothesis import strategies as st
from ringside import thd
from thd_cases import (
    SeenPairs,
    cp_sizes,
    global_tokens,
    layout_of,
    layouts,
    local_tokens,
    masks,
    pairs_of_entry,
)

UNBOUNDED = -1


def assert_well_formed(step: thd.StepMetadata, layout: rs.PackedLayout) -> None:
    """What a kernel relies on, whatever the pairs."""
    entries = len(step.sequence)
    assert sorted(set(step.sequence.tolist())) == list(range(layout.num_sequences))
    assert step.sequence.tolist() == sorted(step.sequence.tolist())
    for name in ("cu_seqlens_q", "cu_seqlens_q_padded", "cu_seqlens_kv", "cu_seqlens_kv_padded"):
        offsets = getattr(step, name)
        assert len(offsets) == entries + 1, name
        assert np.all(np.diff(offsets) >= 0), name
    assert np.diff(step.cu_seqlens_q).tolist() == step.seqused_q.tolist()
    assert np.diff(step.cu_seqlens_kv).tolist() == step.seqused_k.tolist()
    assert np.all(step.seqused_q <= np.diff(step.cu_seqlens_q_padded)), "queries overlap"
    assert np.all((step.seqused_q > 0) == (step.seqused_k > 0)), "a one-sided entry"
    assert np.all(np.minimum(step.window_left, step.window_right) >= UNBOUNDED)
    assert step.max_seqlen_q == max(step.seqused_q, default=0)
    assert step.max_seqlen_kv == max(step.seqused_k, default=0)


def add_pairs(seen: SeenPairs, step: thd.StepMetadata, q_tokens: list, k_tokens: list) -> None:
    assert_well_formed(step, seen.layouts[0])
    assert step.cu_seqlens_q_padded[-1] == len(q_tokens)
    assert step.cu_seqlens_kv_padded[-1] == len(k_tokens)
    for b in range(len(step.sequence)):
        pairs = pairs_of_entry(step, b)
        for q_row, k_row in pairs:
            assert q_tokens[q_row][0] == step.sequence[b]
            seen.add(q_tokens[q_row], k_tokens[k_row])
        assert {q for q, _ in pairs} == {
            int(step.cu_seqlens_q_padded[b]) + i for i in range(step.seqused_q[b])
        }, "an entry holds a query that sees nothing"


def all_gather_pairs(layout, layout_k, cp_size: int, mask: rs.Mask) -> SeenPairs:
    seen = SeenPairs(layout, layout_k)
    for rank in range(cp_size):
        tokens = local_tokens(layout, cp_size, rank)
        steps = thd.all_gather_step_metadata(layout, cp_size, rank, mask, layout_k=layout_k)
        for step in steps:
            add_pairs(seen, step, tokens, global_tokens(layout_k))
    return seen


def p2p_pairs(layout, layout_k, cp_size: int, mask: rs.Mask) -> SeenPairs:
    seen = SeenPairs(layout, layout_k)
    for rank in range(cp_size):
        tokens = local_tokens(layout, cp_size, rank)
        for i in range(cp_size):
            step = thd.p2p_step_metadata(layout, cp_size, rank, i, mask, layout_k=layout_k)
            assert step.kv_rank == (rank - i) % cp_size
            add_pairs(seen, step, tokens, local_tokens(layout_k, cp_size, step.kv_rank))
    return seen


TWO_OF_FOUR = layout_of([2], [2])


@given(layouts(), cp_sizes, masks())
@example(TWO_OF_FOUR, 2, rs.Mask.sliding_window(0, 1))
@example(layout_of([10, 3], [6, 0]), 2, rs.Mask.chunked(3))
def test_the_two_steps_of_an_all_gather_mean_exactly_the_mask(layout, cp_size, mask):
    all_gather_pairs(layout, layout, cp_size, mask).assert_are(mask)


@given(layouts(), cp_sizes, masks())
@example(layout_of([24], [0]), 2, rs.Mask.sliding_window(7, 7))
@example(layout_of([24], [0]), 2, rs.Mask.chunked(1))
def test_the_steps_of_a_ring_mean_exactly_the_mask(layout, cp_size, mask):
    p2p_pairs(layout, layout, cp_size, mask).assert_are(mask)


@given(layouts(batch=2), layouts(batch=2), cp_sizes, masks())
def test_unequal_queries_and_keys_mean_exactly_the_mask(layout, layout_k, cp_size, mask):
    all_gather_pairs(layout, layout_k, cp_size, mask).assert_are(mask)
    p2p_pairs(layout, layout_k, cp_size, mask).assert_are(mask)


@given(layouts(), cp_sizes, st.integers(-1, 12), st.integers(-1, 12))
def test_without_chunks_gathered_keys_need_one_entry_a_sequence(layout, cp_size, left, right):
    mask = rs.Mask(window_size=(left, right))
    for rank in range(cp_size):
        for step in thd.all_gather_step_metadata(layout, cp_size, rank, mask):
            assert step.sequence.tolist() == list(range(layout.num_sequences))


@given(layouts(), cp_sizes)
def test_causal_rings_need_one_entry_a_sequence_and_one_window(layout, cp_size):
    for rank in range(cp_size):
        for i in range(cp_size):
            step = thd.p2p_step_metadata(layout, cp_size, rank, i, rs.Mask.causal())
            assert step.sequence.tolist() == list(range(layout.num_sequences))
            assert step.section == ("diagonal" if i == 0 else "lower" if i <= rank else "upper")
            assert step.window_size in [(-1, -1), (-1, 0) if i == 0 else (-1, -1)]


@given(layouts(), cp_sizes, masks())
def test_a_scalar_window_is_offered_only_if_it_means_the_same(layout, cp_size, mask):
    for rank in range(cp_size):
        for step in thd.all_gather_step_metadata(layout, cp_size, rank, mask):
            if step.window_size is None:
                continue
            for b in range(len(step.sequence)):
                want = pairs_of_entry(step, b)
                step.window_left[b], step.window_right[b] = step.window_size
                assert pairs_of_entry(step, b) == want


# --- worked examples


def test_the_ring_of_two_ranks_in_numbers():
    """Lengths 8 and 5 of 8: rank 0 holds 0 1 6 7 | 0 1 (6 7), rank 1 2 3 4 5 | 2 3 4 (5)."""
    layout = rs.PackedLayout([0, 8, 13], [0, 8, 16])
    upper = thd.p2p_step_metadata(layout, 2, 0, 1, rs.Mask.causal())
    assert upper.section == "upper"
    assert upper.cu_seqlens_q_padded.tolist() == [2, 6, 8]
    assert upper.cu_seqlens_q.tolist() == [
        0,
        2,
        2,
    ]  # of the second sequence's rows 6, 7 none is valid
    assert upper.cu_seqlens_kv_padded.tolist() == [0, 4, 8]
    assert upper.cu_seqlens_kv.tolist() == [0, 4, 4]
    diagonal = thd.p2p_step_metadata(layout, 2, 1, 0, rs.Mask.causal())
    assert diagonal.cu_seqlens_q.tolist() == diagonal.cu_seqlens_kv.tolist() == [0, 4, 7]
    assert diagonal.window_size == (-1, 0)
    assert (diagonal.max_seqlen_q, diagonal.max_seqlen_kv) == (4, 4)


def test_a_window_across_the_gap_takes_two_entries():
    """Rank 0 of 2 holds 0..3 and 12..15, rank 1 4..11: 12..15 look back 6 keys, 0..3 ahead 2."""
    mask = rs.Mask.sliding_window(6, 2)
    step = thd.p2p_step_metadata(rs.PackedLayout([0, 16]), 2, 0, 1, mask)
    assert step.sequence.tolist() == [0, 0]
    assert step.cu_seqlens_q_padded.tolist() == [2, 4, 8]
    assert step.seqused_q.tolist() == [2, 4]  # queries 2, 3 and 12..15
    assert step.cu_seqlens_kv_padded.tolist() == [0, 2, 8]
    assert step.seqused_k.tolist() == [2, 6]  # keys 4, 5 and 6..11
    assert step.window_left.tolist() == [-1, 2]
    assert step.window_right.tolist() == [0, -1]


# --- errors

CAUSAL = rs.Mask.causal()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda layout: thd.all_gather_step_metadata(layout, 2, 2, CAUSAL),
            r"rank=2; expected 0 to 1\. Pass the rank inside",
        ),
        (
            lambda layout: thd.all_gather_step_metadata(layout, 0, 0, CAUSAL),
            r"cp_size=0; expected 1 to 32768 ranks",
        ),
        (
            lambda layout: thd.p2p_step_metadata(layout, 2, 0, 2, CAUSAL),
            r"step=2; expected 0 to 1: a ring has cp_size steps",
        ),
        (
            lambda layout: thd.p2p_step_metadata(
                layout, 2, 0, 0, CAUSAL, layout_k=rs.PackedLayout([0, 1, 2])
            ),
            r"layout_q holds 1 sequences and layout_k 2",
        ),
    ],
)
def test_bad_calls_are_told_what_to_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call(rs.PackedLayout([0, 8]))
