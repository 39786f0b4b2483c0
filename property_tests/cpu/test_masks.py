"""visible (an interval), allows (the definition) and to_dense (a matrix) tell one story."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import example, given
from hypothesis import strategies as st
from independent import dense_mask
from ringside.testing import strategies

SIZES = st.integers(0, 14)
MASKS = strategies.masks()


@given(MASKS, SIZES, SIZES)
@example(rs.Mask(window_size=(0, 0), align="bottom_right"), 5, 2)
@example(rs.Mask(chunk_size=3, align="bottom_right"), 7, 4)
def test_the_dense_mask_is_the_documented_formula(mask, len_q, len_k):
    np.testing.assert_array_equal(mask.to_dense(len_q, len_k), dense_mask(mask, len_q, len_k))


@given(MASKS, SIZES, SIZES)
def test_a_query_sees_exactly_the_interval_that_it_is_allowed(mask, len_q, len_k):
    dense = mask.to_dense(len_q, len_k)
    for q in range(len_q):
        begin, end = mask.visible(q, len_q, len_k)
        seen = [begin <= k < end for k in range(len_k)]
        assert seen == dense[q].tolist(), f"query {q}: visible says [{begin}, {end})"
        assert seen == [mask.allows(q, k, len_q, len_k) for k in range(len_k)]


@given(MASKS, SIZES, SIZES, st.integers(-3, 20), st.integers(-3, 20))
def test_positions_outside_the_sequence_see_and_are_seen_by_nobody(mask, len_q, len_k, q, k):
    if not (0 <= q < len_q and 0 <= k < len_k):
        assert not mask.allows(q, k, len_q, len_k)
    if 0 <= q < len_q:
        begin, end = mask.visible(q, len_q, len_k)
        assert 0 <= begin <= end <= len_k
    else:
        with pytest.raises(ValueError, match=f"q={q} is no query of len_q={len_q}"):
            mask.visible(q, len_q, len_k)


@given(MASKS, SIZES, SIZES)
def test_both_ends_of_what_is_visible_never_decrease(mask, len_q, len_k):
    ends = np.array([mask.visible(q, len_q, len_k) for q in range(len_q)]).reshape(-1, 2)
    assert (np.diff(ends, axis=0) >= 0).all(), ends.tolist()


@given(MASKS, SIZES, SIZES)
def test_window_and_chunks_only_ever_take_keys_away(mask, len_q, len_k):
    (left, right), chunk_size, align = mask.window_size, mask.chunk_size, mask.align
    parts = [
        rs.Mask(window_size=(left, -1), align=align),
        rs.Mask(window_size=(-1, right), align=align),
        rs.Mask(chunk_size=chunk_size, align=align),
    ]
    both = np.logical_and.reduce([part.to_dense(len_q, len_k) for part in parts])
    np.testing.assert_array_equal(mask.to_dense(len_q, len_k), both)


@given(MASKS, SIZES)
def test_alignments_agree_where_lengths_are_equal(mask, length):
    settings = {"window_size": mask.window_size, "chunk_size": mask.chunk_size}
    top_left, bottom_right = (
        rs.Mask(**settings, align=align).to_dense(length, length)
        for align in ("top_left", "bottom_right")
    )
    np.testing.assert_array_equal(top_left, bottom_right)


@given(st.integers(1, 12), st.integers(1, 12))
def test_a_bottom_right_causal_mask_lets_the_last_query_see_the_last_key(len_q, len_k):
    mask = rs.Mask.causal(align="bottom_right")
    assert mask.visible(len_q - 1, len_q, len_k) == (0, len_k)
    if len_q > 1:
        assert mask.visible(len_q - 2, len_q, len_k)[1] == len_k - 1


@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_named_masks_are_values_of_the_same_settings(align):
    assert rs.Mask.full() == rs.Mask()
    assert rs.Mask.causal(align=align) == rs.Mask(window_size=(-1, 0), align=align)
    assert rs.Mask.sliding_window(3, 2, align=align) == rs.Mask(window_size=(3, 2), align=align)
    assert rs.Mask.chunked(4, align=align) == rs.Mask(
        window_size=(-1, 0), chunk_size=4, align=align
    )


@given(MASKS, MASKS)
def test_equal_masks_hash_alike_and_others_differ(a, b):
    same = (a.window_size, a.chunk_size, a.align) == (b.window_size, b.chunk_size, b.align)
    assert (a == b) is same
    assert not same or hash(a) == hash(b)


def test_the_documented_pictures():
    assert rs.Mask.causal().to_dense(2, 4).astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]
    assert rs.Mask(window_size=(1, 0), align="bottom_right").to_dense(4, 2).astype(
        int
    ).tolist() == [[0, 0], [0, 0], [1, 0], [1, 1]]
    assert rs.Mask(chunk_size=2, align="bottom_right").to_dense(2, 3).astype(int).tolist() == [
        [1, 1, 0],
        [0, 0, 1],
    ]
