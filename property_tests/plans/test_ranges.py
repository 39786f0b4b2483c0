"""from_ranges: a packed mask in the words of those who say any mask by ranges."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import given
from hypothesis import strategies as st

sizes = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 2)), max_size=4)
KINDS = ["full", "causal", "inv_causal", "bi_causal"]


def dense_of_slices(q_ranges, k_ranges, kind, shape):
    """The mask of the slices, from the definition of their types."""
    seen = np.zeros(shape, bool)
    for (q0, q1), (k0, k1) in zip(q_ranges, k_ranges, strict=True):
        for i in range(q0, q1):
            for j in range(k0, k1):
                below = j - k0 <= i - q0 + (k1 - k0) - (q1 - q0) or kind in ("full", "inv_causal")
                above = j - k0 >= i - q0 or kind in ("full", "causal")
                seen[i, j] = below and above
    return seen


def dense_of_packed(packed):
    seen = np.zeros((packed.layout_q.num_rows, packed.layout_k.num_rows), bool)
    for s in range(packed.layout_q.num_sequences):
        q, k = (int(x.cu_seqlens_padded[s]) for x in packed[:2])
        len_q, len_k = (int(x.lengths[s]) for x in packed[:2])
        seen[q : q + len_q, k : k + len_k] = packed.mask.to_dense(len_q, len_k)
    return seen


def laid_out(counts, gaps):
    """Ranges one after the other, and the rows behind the last gap."""
    ranges, row = [], 0
    for count, gap in zip(counts, gaps, strict=True):
        ranges.append([row, row + count])
        row += count + gap
    return ranges, row


@given(sizes, st.sampled_from(KINDS), st.booleans())
def test_the_packed_mask_is_that_of_the_slices(slices, kind, as_number):
    counts_k = [q if kind == "bi_causal" else k for q, k, _ in slices]
    gaps = [gap for _, _, gap in slices]
    q_ranges, rows_q = laid_out([q for q, _, _ in slices], gaps)
    k_ranges, rows_k = laid_out(counts_k, gaps)
    one = KINDS.index(kind) if as_number else kind
    types = one if len(slices) % 2 else [one] * len(slices)
    packed = rs.from_ranges(
        np.array(q_ranges, int), k_ranges, types, num_rows_q=rows_q, num_rows_k=rows_k
    )
    assert (packed.layout_q.num_rows, packed.layout_k.num_rows) == (rows_q, rows_k)
    want = dense_of_slices(q_ranges, k_ranges, kind, (rows_q, rows_k))
    np.testing.assert_array_equal(dense_of_packed(packed), want)
    assert rs.plan(packed.layout_q, packed.layout_k, mask=packed.mask, cp_size=2).verify()


TWO = [[0, 3], [3, 8]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"k_ranges": [[0, 3]]}, "q_ranges has 2 ranges; expected 1, as k_ranges"),
        ({"q_ranges": [[0, 3], [5, 4]]}, r"q_ranges\[1\] is \[5, 4\]; expected 0 <= begin <= end"),
        ({"q_ranges": [0, 3]}, r"q_ranges has shape \[2\]; expected \[slices, 2\]"),
        ({"q_ranges": [[0, 3.5], [4, 5]]}, "q_ranges"),
        (
            {"types": "diagonal"},
            r"types\[0\] is 'diagonal'; expected one of 0 to 3 or full",
        ),
        ({"types": [0, 7]}, r"types\[1\] is 7; expected one of 0 to 3"),
        ({"types": [0]}, "types has 1 of them; expected 2, one for each slice"),
        ({"num_rows_q": 7}, "num_rows_q=7; expected at least 8, where ranges end"),
    ],
)
def test_what_is_no_range_is_refused(arguments, words):
    with pytest.raises((ValueError, TypeError), match=words):
        rs.from_ranges(**{"q_ranges": TWO, "k_ranges": TWO, **arguments})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"q_ranges": [[0, 3], [2, 8]]}, r"q_ranges\[1\] begins at 2, before .* Nearest supported"),
        ({"k_ranges": [[3, 8], [0, 3]]}, r"k_ranges\[1\] begins at 0, before .* Nearest supported"),
        ({"q_ranges": [[1, 3], [3, 8]]}, "q_ranges begins at row 1.* Nearest supported"),
        (
            {"types": ["full", "causal"]},
            r"types\[1\] is 'causal' beside .full.*Nearest",
        ),
        ({"types": 3, "k_ranges": [[0, 4], [4, 9]]}, "bi_causal slices .* Nearest supported"),
    ],
)
def test_what_one_packed_mask_cannot_say_is_refused_by_name(arguments, words):
    with pytest.raises(rs.Unsupported, match=words):
        rs.from_ranges(**{"q_ranges": TWO, "k_ranges": TWO, **arguments})
