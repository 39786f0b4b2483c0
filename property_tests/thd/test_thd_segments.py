"""Rows moved and summed by a table of segments, and the checks that serve arrays on a device."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import given
from hypothesis import strategies as st
from ringside import thd
from thd_cases import cumulative, segment_tables

ROW = np.arange(3, dtype=np.float32)


@given(segment_tables())
def test_rows_follow_the_table_and_no_other_is_touched(case):
    table, out_rows, x_rows = case
    x = np.arange(x_rows, dtype=np.float32)[:, None] + ROW / 4
    out = np.full((out_rows, 3), np.nan, np.float32)
    want = out.copy()
    for from_row, from_step, to_row, to_step, rows in table:
        for i in range(rows):
            want[to_row + i * to_step] = x[from_row + i * from_step]
    thd.copy_rows(out, x, table)
    assert np.array_equal(out, want, equal_nan=True)


@given(segment_tables(), st.sampled_from(["float32", "float16"]))
def test_sums_are_kept_in_float32(case, dtype):
    table, out_rows, x_rows = case
    rng = np.random.default_rng(0)
    x = rng.normal(size=(x_rows, 3)).astype(dtype)
    out = rng.normal(size=(out_rows, 3)).astype(np.float32)
    want = out.copy()
    for from_row, from_step, to_row, to_step, rows in table:
        for i in range(rows):
            want[to_row + i * to_step] += x[from_row + i * from_step].astype(np.float32)
    thd.add_rows(out, x, table)
    assert np.array_equal(out, want)


@given(st.lists(st.integers(0, 9), max_size=5), st.integers(1, 4))
def test_a_reorder_is_such_a_table(lengths, cp_size):
    starts = cumulative(lengths)
    x = np.random.default_rng(0).normal(size=(starts[-1], 2))
    to_rank = np.concatenate([thd.partition_indices(starts, cp_size, r) for r in range(cp_size)])
    out = np.empty_like(x)
    thd.copy_rows(out, x, [(row, 1, i, 1, 1) for i, row in enumerate(to_rank)])
    assert np.array_equal(out, thd.sequence_order_to_cp_rank_order(x, starts, cp_size))


X, OUT = np.zeros((8, 2), np.float32), np.zeros((6, 2), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: thd.copy_rows(OUT, X, [(0, 1, 4, 1, 3)]),
            ValueError,
            "segment 0 writes rows 4 to 6 of an array of 6 rows; expected rows inside it",
        ),
        (
            lambda: thd.copy_rows(OUT, X, [(0, 1, 0, 1, 0), (7, 1, 0, 1, 2)]),
            ValueError,
            "segment 1 reads rows 7 to 8 of an array of 8 rows",
        ),
        (
            lambda: thd.copy_rows(OUT, X, [(0, -1, 0, 1, 2)]),
            ValueError,
            "segment 0 reads rows 0 to -1",
        ),
        (
            lambda: thd.add_rows(OUT, X, [(0, 1, 0, 1, 2), (0, 1, 1, 1, 1)]),
            ValueError,
            "row 1 is written 2 times; expected once at most",
        ),
        (lambda: thd.add_rows(OUT, X, [(0, 1, 0, 1, -1)]), ValueError, "segment 0 has -1 rows"),
        (
            lambda: thd.copy_rows(OUT, X, [(0, 1, 0, 1)]),
            ValueError,
            r"segments has shape \(1, 4\); expected \[segments, 5\]",
        ),
        (
            lambda: thd.copy_rows(OUT, X, np.zeros((1, 5))),
            TypeError,
            "segments has dtype float64; expected integers",
        ),
        (
            lambda: thd.copy_rows(OUT, X[:, :1], []),
            ValueError,
            r"x has shape \(8, 1\) and out has shape \(6, 2\); expected rows of the same shape",
        ),
        (lambda: thd.copy_rows(X, X, []), ValueError, "out and x share memory"),
        (lambda: thd.copy_rows([0.0], X, []), TypeError, "out is a builtins.list; expected an arr"),
        (lambda: thd.copy_rows(OUT, X.astype(int), []), TypeError, "x has dtype int64 and out"),
        (
            lambda: thd.add_rows(OUT.astype(float), X, []),
            TypeError,
            "accumulator has dtype float64; expected float32",
        ),
        (
            lambda: thd.add_rows(OUT, X.astype(float), []),
            TypeError,
            "x has dtype float64; expected float32, float16 or bfloat16",
        ),
        (lambda: thd.check_offsets([0, 8, 4]), ValueError, r"cu_seqlens_padded\[2\]=4 is less"),
        (lambda: thd.check_offsets([1, 8]), ValueError, r"cu_seqlens_padded\[0\]=1; it must start"),
        (lambda: thd.check_offsets([0, 8], num_rows=9), ValueError, "x has 9 rows but"),
        (lambda: thd.check_offsets([0, 8], [0, 9]), ValueError, "sequence 0 has 9 tokens but only"),
        (
            lambda: thd.check_offsets([2, 8], num_rows=7, covers=False),
            ValueError,
            r"cu_seqlens_padded\[1\]=8 lies beyond the 7 rows",
        ),
        (
            lambda: thd.partition_indices([0, 8], 2, 0, num_rows=8),
            ValueError,
            "num_rows=8 with offsets on the host; expected none",
        ),
        (
            lambda: thd.chunkify([0, 8], None, 2, capacity=9),
            ValueError,
            "capacity=9 with offsets on the host",
        ),
        (
            lambda: thd.p2p_step_metadata(
                rs.PackedLayout([0, 8]), 2, 0, 0, rs.Mask.causal(), capacity=9
            ),
            ValueError,
            "capacity=9 with offsets on the host",
        ),
        (
            lambda: thd.DeviceLayout(np.array([0, 8]), None, 8),
            TypeError,
            "cu_seqlens is a numpy.ndarray; expected an array on a device",
        ),
    ],
)
def test_bad_calls_are_told_what_to_fix(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("segment", "message"),
    [
        ((0, 2**62, 0, 1, 5), f"segment 0 reads rows 0 to {2**64} of an array of 5 rows"),
        ((0, 1, 4, -(2**63), 2), f"segment 0 writes rows 4 to {4 - 2**63} of an array of 5 rows"),
        ((2**63 - 1, 1, 0, 1, 2), f"segment 0 reads rows {2**63 - 1} to {2**63} of an array"),
        ((0, 0, 0, 0, 2**62), f"segment 0 has {2**62} rows; expected 0 to the 5 of the array"),
    ],
)
def test_what_int64_does_not_hold_lies_outside_of_every_array(segment, message):
    with pytest.raises(ValueError, match=message):
        thd.check_segments([segment], 5, 5)


def test_more_rows_than_can_be_listed_are_refused_by_their_number():
    rows = 2**25
    with pytest.raises(ValueError, match=f"segments write {2 * rows} rows of an array of {rows};"):
        thd.check_segments([(0, 1, 0, 1, rows)] * 2, rows, rows)


def test_good_offsets_pass():
    thd.check_offsets([0, 8, 8, 12], [0, 3, 3, 7], num_rows=12)
    thd.check_offsets([2, 6], [5, 9], num_rows=7, covers=False)
    thd.check_segments([], 0, 0)
