"""Rank order, valid rows, padding: rows arrive whole where they belong, nothing else moves."""

from itertools import pairwise

import numpy as np
import pytest
import ringside as rs
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from ringside import thd
from thd_cases import cp_ranks, cp_sizes, cumulative, layouts, local_tokens

dtypes = st.one_of(
    hnp.scalar_dtypes(),
    hnp.byte_string_dtypes(max_len=3),
    hnp.array_dtypes(hnp.integer_dtypes(), max_size=3),
)
row_shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@st.composite
def rows_of(draw: st.DrawFn, layout: rs.PackedLayout) -> np.ndarray:
    """[rows, ...] of any dtype and row width, bytes random; sometimes not contiguous."""
    dtype, shape = draw(dtypes), draw(row_shapes)
    width = np.dtype(dtype).itemsize * int(np.prod(shape))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    raw = rng.integers(0, 256, layout.num_rows * width, dtype=np.uint8)
    x = np.empty((layout.num_rows, *shape), dtype)
    if x.nbytes:
        x = raw.view(dtype).reshape(x.shape)
    return np.asfortranarray(x) if draw(st.booleans()) else x


@given(st.data(), layouts(), cp_sizes)
def test_rank_order_is_every_ranks_shard_in_turn_and_back(data, layout, cp_size):
    x = data.draw(rows_of(layout))
    plan = rs.plan(layout, cp_size=cp_size, partition="zigzag")
    by_rank = thd.sequence_order_to_cp_rank_order(x, layout.cu_seqlens_padded, cp_size)
    assert (by_rank.dtype, by_rank.shape) == (x.dtype, x.shape)
    assert by_rank.tobytes() == b"".join(plan.shard(x, r).tobytes() for r in range(cp_size))
    back = thd.cp_rank_order_to_sequence_order(by_rank, layout.cu_seqlens_padded, cp_size)
    assert (back.dtype, back.shape, back.tobytes()) == (x.dtype, x.shape, x.tobytes())
    assert not np.may_share_memory(by_rank, x)


@given(layouts(), cp_ranks())
def test_partition_indices_are_the_definition_of_dual_chunks(layout, cp_rank):
    indices = thd.partition_indices(layout.cu_seqlens_padded, *cp_rank)
    starts = layout.cu_seqlens_padded
    assert indices.dtype == np.int32
    assert indices.tolist() == [starts[s] + p for s, p in local_tokens(layout, *cp_rank)]


@given(st.lists(st.integers(0, 5), max_size=4), st.integers(1, 5), st.data())
def test_divisible_lengths_have_transformer_engines_indices(halves, cp_size, data):
    """Its kernel: local row x of a sequence with P = half its local rows."""
    starts = cumulative([2 * cp_size * half for half in halves])
    rank = data.draw(st.integers(0, cp_size - 1))
    want = []
    for start, half in zip(starts, halves, strict=False):
        for x in range(2 * half):
            first = rank * half + x
            want.append(start + (first if x < half else x + half * (2 * (cp_size - 1) - rank)))
    assert thd.partition_indices(starts, cp_size, rank).tolist() == want


def test_the_worked_example_of_transformer_engine():
    starts = [0, 8, 16, 24, 40]
    position = np.concatenate([np.arange(8), np.arange(8), np.arange(8), np.arange(16)])
    by_rank = thd.sequence_order_to_cp_rank_order(position, starts, 4).reshape(4, -1)
    assert by_rank[0].tolist() == [0, 7] * 3 + [0, 1, 14, 15]
    assert by_rank[1].tolist() == [1, 6] * 3 + [2, 3, 12, 13]
    assert by_rank[2].tolist() == [2, 5] * 3 + [4, 5, 10, 11]
    assert by_rank[3].tolist() == [3, 4] * 3 + [6, 7, 8, 9]


def test_an_array_large_enough_for_several_threads_keeps_every_row():
    lengths = [1000, 1, 0, 70_001, 3]
    starts = cumulative(lengths)
    x = np.arange(starts[-1] * 64, dtype=np.int64).reshape(-1, 64)
    by_rank = thd.sequence_order_to_cp_rank_order(x, starts, 3)
    want = np.concatenate([x[thd.partition_indices(starts, 3, r)] for r in range(3)])
    assert np.array_equal(by_rank, want)
    assert np.array_equal(thd.cp_rank_order_to_sequence_order(by_rank, starts, 3), x)


# --- valid rows


@st.composite
def row_ranges(draw: st.DrawFn) -> tuple[int, list[int], list[int]]:
    """(rows of the array, cu_seqlens_padded, cu_seqlens); neither has to start at 0."""
    starts = sorted(draw(st.lists(st.integers(0, 40), min_size=1, max_size=5)))
    lengths = [draw(st.integers(0, b - a)) for a, b in pairwise(starts)]
    first = draw(st.integers(0, 9))
    return draw(st.integers(starts[-1], 45)), starts, [first + n for n in cumulative(lengths)]


@given(row_ranges())
@example((12, [2, 6, 12], [0, 3, 5]))
def test_only_valid_rows_are_copied(case):
    num_rows, starts, cu_seqlens = case
    out, step_out = np.full((num_rows, 2), -7.0), np.full((num_rows, 2), np.nan)
    want = out.copy()
    for s, start in enumerate(starts[:-1]):
        for row in range(start, start + cu_seqlens[s + 1] - cu_seqlens[s]):
            step_out[row] = want[row] = row
    thd.copy_valid_tokens(out, step_out, starts, cu_seqlens)
    assert np.array_equal(out, want)


@given(layouts(), cp_sizes, st.integers(-1, 6), st.integers(-1, 6))
def test_the_two_steps_of_an_all_gather_fill_the_ranks_valid_rows(layout, cp_size, left, right):
    mask = rs.Mask(window_size=(left, right))
    for rank in range(cp_size):
        tokens = local_tokens(layout, cp_size, rank)
        out = np.zeros(len(tokens))
        for value, step in enumerate(thd.all_gather_step_metadata(layout, cp_size, rank, mask), 1):
            step_out = np.full(len(tokens), value)
            offsets = step.cu_seqlens_q_padded, step.cu_seqlens_q
            thd.copy_valid_tokens(out, step_out.astype(out.dtype), *offsets)
        cut = [layout.padded_lengths[s] * (rank + 1) // (2 * cp_size) for s, _ in tokens]
        want = [
            0 if p >= layout.lengths[s] else 1 if p < first_end else 2
            for (s, p), first_end in zip(tokens, cut, strict=True)
        ]
        assert out.tolist() == want


# --- padding a batch


@given(st.lists(st.integers(0, 9), max_size=5), st.integers(1, 8), st.integers(-3, 3))
def test_a_padded_batch_holds_the_same_tokens(lengths, multiple, pad_token):
    cu_seqlens = cumulative(lengths)
    tokens = np.arange(100, 100 + cu_seqlens[-1])
    batch = thd.pad_to_multiple(tokens, tokens + 1, cu_seqlens, multiple, pad_token=pad_token)
    layout = rs.PackedLayout(cu_seqlens, batch.cu_seqlens_padded)
    assert all(rows % multiple == 0 for rows in layout.padded_lengths)
    assert np.all(layout.padded_lengths - layout.lengths < multiple)
    for s, (start, rows) in enumerate(
        zip(batch.cu_seqlens_padded, layout.padded_lengths, strict=False)
    ):
        mine, end = slice(start, start + rows), start + lengths[s]
        assert batch.position_ids[mine].tolist() == list(range(rows))
        assert batch.tokens[start:end].tolist() == tokens[cu_seqlens[s] :][: lengths[s]].tolist()
        assert np.all(batch.tokens[end : start + rows] == pad_token)
        assert np.array_equal(batch.labels[start:end], batch.tokens[start:end] + 1)
        assert np.all(batch.labels[end : start + rows] == -100)


def test_a_batch_without_labels_and_with_rows_of_any_width_is_padded_too():
    batch = thd.pad_to_multiple(np.ones((3, 2), np.float32), None, [0, 3], 4, pad_token=np.nan)
    assert batch.labels is None
    assert batch.tokens.dtype == np.float32
    assert np.array_equal(np.isnan(batch.tokens), [[False] * 2] * 3 + [[True] * 2])


# --- errors

X = np.zeros(8)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: thd.sequence_order_to_cp_rank_order(np.zeros(10), [0, 8], 2),
            ValueError,
            r"x has 10 rows but cu_seqlens_padded ends at row 8: the last 2 belong to no sequence "
            r".* Pass x\[:8\], or append 10",
        ),
        (
            lambda: thd.cp_rank_order_to_sequence_order(np.zeros(6), [0, 8], 2),
            ValueError,
            r"x has 6 rows but cu_seqlens_padded ends at row 8; .* Pass the global array",
        ),
        (
            lambda: thd.sequence_order_to_cp_rank_order(X, [2, 8], 2),
            ValueError,
            r"cu_seqlens_padded\[0\]=2; it must start at 0\. Slice off",
        ),
        (
            lambda: thd.sequence_order_to_cp_rank_order(X, [], 2),
            ValueError,
            r"cu_seqlens_padded is empty; expected \[batch\+1\]",
        ),
        (
            lambda: thd.sequence_order_to_cp_rank_order(X, [0, 8], 0),
            ValueError,
            r"cp_size=0; expected 1 to 32768 ranks\. Pass the size",
        ),
        (
            lambda: thd.sequence_order_to_cp_rank_order(np.float32(1), [0], 2),
            ValueError,
            r"x is a scalar; expected an array of \[rows, \.\.\.\]",
        ),
        (
            lambda: thd.sequence_order_to_cp_rank_order(np.array([None] * 8), [0, 8], 2),
            TypeError,
            r"x has dtype object; expected numbers.*x\.astype",
        ),
        (
            lambda: thd.sequence_order_to_cp_rank_order(X, [0.0, 8.0], 2),
            TypeError,
            r"cu_seqlens_padded has dtype float64; expected integers",
        ),
        (
            lambda: thd.partition_indices([0, 8, 4], 2, 0),
            ValueError,
            r"cu_seqlens_padded\[2\]=4 is less than cu_seqlens_padded\[1\]=8; .*not lengths",
        ),
        (
            lambda: thd.partition_indices([0, 8], 2, -1),
            ValueError,
            r"rank=-1; expected 0 to 1\. Pass the rank inside",
        ),
        (
            lambda: thd.copy_valid_tokens(X.copy(), X, [0, 9], [0, 3]),
            ValueError,
            r"cu_seqlens_padded\[1\]=9 lies beyond the 8 rows of the array; .*Pass the offsets",
        ),
        (
            lambda: thd.copy_valid_tokens(X.copy(), X, [-1, 8], [0, 3]),
            ValueError,
            r"cu_seqlens_padded\[0\]=-1; expected a row number of at least 0",
        ),
        (
            lambda: thd.copy_valid_tokens(X.copy(), X, [0, 4, 8], [0, 5, 6]),
            ValueError,
            r"sequence 0 has 5 tokens but only 4 rows .*Did you swap",
        ),
        (
            lambda: thd.copy_valid_tokens(X.copy(), X, [0, 4, 8], [0, 4]),
            ValueError,
            r"cu_seqlens has 2 entries and cu_seqlens_padded has 3; both must have \[batch\+1\]",
        ),
        (
            lambda: thd.copy_valid_tokens(X.copy(), np.zeros(9), [0, 8], [0, 3]),
            ValueError,
            r"step_out is float64 \(9,\) and out is float64 \(8,\); expected the same",
        ),
        (
            lambda: thd.copy_valid_tokens(X, X, [0, 8], [0, 3]),
            ValueError,
            r"out and step_out share memory; expected two arrays\. Pass step_out\.copy\(\)",
        ),
        (
            lambda: thd.copy_valid_tokens(np.zeros(16)[::2], X, [0, 8], [0, 3]),
            ValueError,
            r"out has strides \(16,\) for shape \(8,\); expected C-contiguous",
        ),
        (
            lambda: thd.copy_valid_tokens(np.broadcast_to(1.0, 8), X, [0, 8], [0, 3]),
            ValueError,
            r"out is read-only; expected an array to write to",
        ),
        (
            lambda: thd.copy_valid_tokens([0.0] * 8, X, [0, 8], [0, 3]),
            TypeError,
            r"out is a <class 'list'>; expected a NumPy array",
        ),
        (
            lambda: thd.pad_to_multiple([1, 2], None, [0, 3], 4),
            ValueError,
            r"tokens has shape \(2,\); expected 3 rows, as cu_seqlens says",
        ),
        (
            lambda: thd.pad_to_multiple([1, 2, 3], [1, 2], [0, 3], 4),
            ValueError,
            r"labels has shape \(2,\); expected 3 rows",
        ),
        (
            lambda: thd.pad_to_multiple(np.uint8([1]), np.uint8([1]), [0, 1], 4),
            ValueError,
            r"pad_label=-100 does not fit labels of dtype uint8; it would become 156.*np\.int64",
        ),
        (
            lambda: thd.pad_to_multiple([1], None, [0, 1], 0),
            ValueError,
            r"pad_to_multiple_of=0; expected at least 1",
        ),
    ],
)
def test_bad_calls_are_told_what_to_fix(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_refused_copy_leaves_out_as_it_was():
    out = np.zeros(8)
    with pytest.raises(ValueError):
        thd.copy_valid_tokens(out, np.ones(8), [0, 4, 8], [0, 4, 9])
    assert not out.any()
