"""Packing, unpacking and rolling: rows go where the prefix sums say, and nowhere else."""

import numpy as np
import pytest
import ringside as rs
from assertions import valid_rows
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from independent import split
from ringside.testing import strategies

LAYOUTS = strategies.layouts()
DTYPES = st.sampled_from(["i8", "i4", "u1", "f8", "f4", "f2", "?", "c16", "S3", "datetime64[s]"])
TRAILING = st.lists(st.integers(0, 3), max_size=2).map(tuple)


def numbered(dtype, *shape):
    """Distinct values, as far as the dtype allows."""
    return (np.arange(np.prod(shape, dtype=int)) % 251).reshape(shape).astype(dtype)


@given(LAYOUTS, DTYPES, TRAILING)
def test_unpack_undoes_pack(layout, dtype, trailing):
    sequences = [numbered(dtype, n, *trailing) for n in layout.lengths]
    again = layout.unpack(layout.pack(sequences))
    assert len(again) == len(sequences)
    for got, wanted in zip(again, sequences, strict=True):
        np.testing.assert_array_equal(got, wanted, strict=True)


@given(LAYOUTS, DTYPES, TRAILING)
def test_pack_undoes_unpack_on_tokens_and_fills_the_padding(layout, dtype, trailing):
    x = numbered(dtype, layout.num_rows, *trailing)
    packed = layout.pack(layout.unpack(x), fill_value=1)
    if layout.num_sequences == 0:
        assert len(packed) == 0
        return
    valid = valid_rows(layout)
    np.testing.assert_array_equal(packed[valid], x[valid], strict=True)
    fill = np.full(packed[~valid].shape, 1, dtype)
    np.testing.assert_array_equal(packed[~valid], fill, strict=True)


@given(LAYOUTS)
def test_unpack_returns_copies_not_views(layout):
    x = np.arange(layout.num_rows)
    for sequence in layout.unpack(x):
        sequence[...] = -1
    assert (x >= 0).all()


@given(strategies.lengths(), st.integers(1, 16))
def test_a_layout_from_lengths_has_these_lengths_and_the_least_padding(lengths, multiple):
    layout = rs.PackedLayout.from_lengths(lengths, pad_to_multiple_of=multiple)
    assert layout.lengths.tolist() == lengths
    assert layout.padded_lengths.tolist() == [-(-n // multiple) * multiple for n in lengths]
    assert layout.cu_seqlens.tolist() == [0, *np.cumsum(lengths).astype(int)]
    assert layout.num_tokens == sum(lengths)
    assert layout.num_sequences == len(lengths)


@given(LAYOUTS)
def test_a_layout_is_its_two_prefix_sums(layout):
    assert rs.PackedLayout(layout.cu_seqlens, layout.cu_seqlens_padded) == layout
    assert layout.lengths.tolist() == np.diff(layout.cu_seqlens).tolist()
    assert layout.padded_lengths.tolist() == np.diff(layout.cu_seqlens_padded).tolist()
    assert layout.num_rows == layout.cu_seqlens_padded[-1]
    assert layout.num_tokens == layout.cu_seqlens[-1]
    for x in (layout.cu_seqlens, layout.cu_seqlens_padded, layout.lengths, layout.padded_lengths):
        assert x.dtype == np.int32


def test_nothing_can_be_written_to_the_numbers_of_a_layout():
    """They are copies: a write would change nothing, and say nothing."""
    layout = rs.PackedLayout([0, 5, 12], [0, 8, 16])
    for name in ("cu_seqlens", "cu_seqlens_padded", "lengths", "padded_lengths"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(layout, name)[1] = 7


@given(LAYOUTS)
def test_layouts_are_equal_when_both_prefix_sums_are(layout):
    padded = layout.cu_seqlens_padded.copy()
    padded[-1] += 1
    if layout.num_sequences:
        assert rs.PackedLayout(layout.cu_seqlens, padded) != layout


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint16, np.uint64])
def test_prefix_sums_may_have_any_integer_type_or_be_a_list(dtype):
    sums = np.array([0, 5, 12], dtype)
    assert rs.PackedLayout(sums, sums.astype(np.int64)) == rs.PackedLayout([0, 5, 12])
    strided = np.array([0, 99, 5, 99, 12, 99], dtype)[::2]
    assert rs.PackedLayout(strided) == rs.PackedLayout((0, 5, 12))


def rolled_by_hand(layout, x, shift, fill):
    """Token i of a document gets token i - shift of the same document."""
    rolled = np.full_like(x, fill)
    for s, sequence in enumerate(split(x, layout)):
        begin = layout.cu_seqlens_padded[s]
        for i in range(len(sequence)):
            if 0 <= i - shift < len(sequence):
                rolled[begin + i] = sequence[i - shift]
    return rolled


@given(LAYOUTS, st.one_of(st.integers(-4, 4), st.integers(-(2**31), 2**31 - 1)), TRAILING)
def test_rolling_stays_inside_documents(layout, shift, trailing):
    x = numbered("i8", layout.num_rows, *trailing)
    rolled = layout.roll(x, shift, fill_value=-100)
    np.testing.assert_array_equal(rolled, rolled_by_hand(layout, x, shift, -100), strict=True)


@given(LAYOUTS)
def test_rolling_once_makes_next_token_labels(layout):
    tokens = np.arange(layout.num_rows) + 1000
    labels = layout.roll(tokens, fill_value=-100)
    for token, label in zip(split(tokens, layout), split(labels, layout), strict=True):
        assert label[:-1].tolist() == token[1:].tolist()
        assert label[-1:].tolist() == [-100] * min(1, len(token))
    assert (labels[~valid_rows(layout)] == -100).all()


@given(LAYOUTS, hnp.array_shapes(min_dims=1, max_dims=2, max_side=2))
def test_rolling_by_nothing_changes_only_padding(layout, trailing):
    x = numbered("f8", layout.num_rows, *trailing)
    valid = valid_rows(layout)
    np.testing.assert_array_equal(layout.roll(x, 0)[valid], x[valid])


def test_the_documented_layout_of_transformer_engine():
    """Letters a a a _ b b _ _ c c c c _ as in the docs of its padded THD format."""
    layout = rs.PackedLayout([0, 3, 5, 9], [0, 4, 8, 13])
    text = np.array(list("aaa_bb__cccc_"))
    assert ["".join(x) for x in layout.unpack(text)] == ["aaa", "bb", "cccc"]


def test_sequences_of_unlike_dtype_are_promoted_never_truncated():
    layout = rs.PackedLayout([0, 2, 3])
    packed = layout.pack([np.array([1, 2]), np.array([2.5])])
    assert packed.tolist() == [1.0, 2.0, 2.5]


def test_sequences_of_unlike_shape_are_refused_not_broadcast():
    layout = rs.PackedLayout([0, 2, 3])
    with pytest.raises(ValueError, match=r"sequence 1 has shape \(1, 1\)"):
        layout.pack([np.ones((2, 3)), np.ones((1, 1))])
