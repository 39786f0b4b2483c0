"""Chunks as varlen pieces: together they show exactly the pairs of Mask.chunked."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import example, given
from hypothesis import strategies as st
from ringside import thd
from thd_cases import SeenPairs, cp_sizes, global_tokens, layout_of, layouts, local_tokens

chunk_sizes = st.integers(1, 11)

# The same sums of some ten terms of size 1 in float64, vectorised from another address.
ROUNDING = 1e-13


def arguments(layout: rs.PackedLayout, chunk_size: int) -> tuple:
    return layout.cu_seqlens, layout.cu_seqlens_padded, chunk_size


def pieces_of(cu_seqlens: np.ndarray, cu_seqlens_padded: np.ndarray) -> list[range]:
    """The valid rows of each piece; a piece's rows must end before the next one's begin."""
    layout_lengths = np.diff(cu_seqlens)
    assert np.all(layout_lengths >= 0)
    assert np.all(layout_lengths <= np.diff(cu_seqlens_padded))
    return [
        range(int(start), int(start + length))
        for start, length in zip(cu_seqlens_padded, layout_lengths, strict=False)
    ]


def add_causal(seen: SeenPairs, pieces: thd.Pieces, tokens: list) -> None:
    for rows in pieces_of(*pieces):
        for q in rows:
            for k in range(rows.start, q + 1):
                seen.add(tokens[q], tokens[k])


def add_full(seen: SeenPairs, pairs: thd.PiecePairs, q_tokens: list, k_tokens: list) -> None:
    q_pieces, k_pieces = pieces_of(*pairs[:2]), pieces_of(*pairs[2:])
    assert len(q_pieces) == len(k_pieces) == len(seen.counts), "one pair a sequence"
    for q_rows, k_rows in zip(q_pieces, k_pieces, strict=True):
        assert bool(q_rows) == bool(k_rows), "a one-sided pair"
        for q in q_rows:
            for k in k_rows:
                seen.add(q_tokens[q], k_tokens[k])


@given(layouts(), chunk_sizes)
def test_causal_pieces_are_the_chunked_mask(layout, chunk_size):
    seen = SeenPairs(layout, layout)
    pieces = thd.chunkify(*arguments(layout, chunk_size))
    add_causal(seen, pieces, global_tokens(layout))
    seen.assert_are(rs.Mask.chunked(chunk_size))
    assert pieces.cu_seqlens_padded[-1] == layout.num_rows


@given(layouts(), chunk_sizes)
def test_no_piece_is_empty_but_those_of_empty_sequences(layout, chunk_size):
    pieces = thd.chunkify(*arguments(layout, chunk_size))
    wanted = [max(-(-int(length) // chunk_size), 1) for length in layout.lengths]
    assert len(pieces.cu_seqlens) - 1 == sum(wanted)
    assert np.count_nonzero(np.diff(pieces.cu_seqlens)) == sum(-(-layout.lengths // chunk_size))


@given(layouts(), chunk_sizes, st.integers(0, 9))
def test_causal_attention_over_the_pieces_is_chunked_attention(layout, chunk_size, seed):
    q, k, v = np.random.default_rng(seed).normal(size=(3, layout.num_rows, 1, 2))
    pieces = rs.PackedLayout(*thd.chunkify(*arguments(layout, chunk_size)))
    out, lse = rs.attention(q, k, v, pieces)
    want = rs.attention(q, k, v, layout, mask=rs.Mask.chunked(chunk_size))
    np.testing.assert_allclose(out, want[0], rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(lse, want[1], rtol=0, atol=ROUNDING)


@given(layouts(), chunk_sizes, cp_sizes)
@example(layout_of([24], [0]), 2, 2)  # several whole chunks in a half: the peer merges them
@example(layout_of([21], [3]), 8, 2)
def test_diagonal_below_and_above_together_are_the_chunked_mask(layout, chunk_size, cp_size):
    seen = SeenPairs(layout, layout)
    cut = arguments(layout, chunk_size)
    for rank in range(cp_size):
        tokens = local_tokens(layout, cp_size, rank)
        add_causal(seen, thd.chunkify_p2p(*cut, cp_size, rank), tokens)
        for kv_rank in range(cp_size):
            if kv_rank == rank:
                continue
            pairs_of = (
                thd.chunkify_p2p_below_diagonal
                if kv_rank < rank
                else thd.chunkify_p2p_above_diagonal
            )
            pairs = pairs_of(*cut, cp_size, rank, kv_rank)
            assert pairs.cu_seqlens_q_padded[-1] == len(tokens)
            add_full(seen, pairs, tokens, local_tokens(layout, cp_size, kv_rank))
    seen.assert_are(rs.Mask.chunked(chunk_size))


@given(layouts(), chunk_sizes, cp_sizes)
def test_off_diagonal_pairs_are_the_step_metadata_of_the_ring(layout, chunk_size, cp_size):
    mask = rs.Mask.chunked(chunk_size)
    for rank in range(cp_size):
        for i in range(1, cp_size):
            step = thd.p2p_step_metadata(layout, cp_size, rank, i, mask)
            below = step.kv_rank < rank
            pairs_of = thd.chunkify_p2p_below_diagonal if below else thd.chunkify_p2p_above_diagonal
            pairs = pairs_of(*arguments(layout, chunk_size), cp_size, rank, step.kv_rank)
            assert pairs.cu_seqlens_q.tolist() == step.cu_seqlens_q.tolist()
            assert pairs.cu_seqlens_kv.tolist() == step.cu_seqlens_kv.tolist()
            assert step.window_size == (-1, -1)


# --- worked examples: cp_size 2, one sequence of 24 tokens, so halves of 6


def as_lists(arrays: tuple) -> list:
    return [x.tolist() for x in arrays]


def test_two_sequences_in_chunks_of_eight():
    valid, padded = thd.chunkify([0, 10, 30], [0, 10, 33], 8)
    assert valid.tolist() == [0, 8, 10, 18, 26, 30]
    assert padded.tolist() == [0, 8, 10, 18, 26, 33]


def test_padding_longer_than_a_chunk_adds_no_piece():
    assert as_lists(thd.chunkify([0, 8, 8, 9], [0, 30, 40, 50], 8)) == [
        [0, 8, 8, 9],
        [0, 30, 40, 50],
    ]


def test_rank_one_holds_6_to_17_and_joins_chunk_one_across_its_halves():
    assert thd.chunkify_p2p([0, 24], None, 8, 2, 1).cu_seqlens.tolist() == [0, 2, 10, 12]


def test_rank_zero_holds_0_to_5_and_18_to_23():
    assert thd.chunkify_p2p([0, 24], None, 8, 2, 0).cu_seqlens.tolist() == [0, 6, 12]


def test_interior_chunks_are_not_merged():
    pieces = thd.chunkify_p2p([0, 24], None, 2, 2, 0)
    assert pieces.cu_seqlens.tolist() == [0, 2, 4, 6, 8, 10, 12], "the peer leaves 10 out"


def test_valid_lengths_end_inside_a_piece():
    """21 of 24 tokens: rank 0 holds 0..5 and 18..20, three rows of padding behind."""
    assert as_lists(thd.chunkify_p2p([0, 21], [0, 24], 2, 2, 0)) == [
        [0, 2, 4, 6, 8, 9],
        [0, 2, 4, 6, 8, 12],
    ]


def test_below_the_diagonal_the_first_half_ends_in_the_chunk_where_the_queries_start():
    """Positions 6, 7 see 0..5."""
    assert as_lists(thd.chunkify_p2p_below_diagonal([0, 24], None, 8, 2, 1, 0)) == [
        [0, 2],
        [0, 12],
        [0, 6],
        [0, 12],
    ]


def test_above_the_diagonal_the_second_half_starts_in_the_chunk_where_the_keys_end():
    """Positions 18..23, rows 0..5 of the second half, see 16, 17, local rows 10, 11."""
    assert as_lists(thd.chunkify_p2p_above_diagonal([0, 24], None, 8, 2, 0, 1)) == [
        [0, 6],
        [6, 12],
        [0, 2],
        [10, 12],
    ]


def test_a_chunk_that_ends_before_the_queries_start_pairs_nothing():
    pairs = thd.chunkify_p2p_below_diagonal([0, 24], None, 6, 2, 1, 0)
    assert pairs.cu_seqlens_q.tolist() == pairs.cu_seqlens_kv.tolist() == [0, 0]


# --- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: thd.chunkify([0, 8], None, 0), r"chunk_size=0; expected at least 1 token"),
        (lambda: thd.chunkify([0, 8], [0, 4], 2), r"sequence 0 has 8 tokens but only 4 rows"),
        (lambda: thd.chunkify_p2p([0, 8], None, 2, 2, 2), r"rank=2; expected 0 to 1\. Pass"),
        (
            lambda: thd.chunkify_p2p_below_diagonal([0, 8], None, 2, 3, 1, 1),
            r"kv_rank=1 with rank=1; below the diagonal .* Use chunkify_p2p for the rank's own",
        ),
        (
            lambda: thd.chunkify_p2p_above_diagonal([0, 8], None, 2, 3, 1, 3),
            r"kv_rank=3 with rank=1 and cp_size=3; above the diagonal .* rank\+1 to cp_size-1",
        ),
    ],
)
def test_bad_calls_are_told_what_to_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()
