"""Arrays in place of lists, too large ones, and values that an array's dtype would change."""

import numpy as np
import pytest
import ringside as rs
from bad_calls import LAYOUT, PLAN, K, Q, V, refused
from hypothesis import given
from hypothesis import strategies as st


def test_one_array_in_place_of_a_list_is_its_parts():
    """Its rows are made as they are read: nothing may hold on to one that is gone."""
    rows = np.arange(6 * 4 * 3.0).reshape(6, 4, 3)
    parts = np.stack([PLAN.shard(rows, rank) for rank in (0, 1)])
    np.testing.assert_array_equal(PLAN.unshard(parts), rows)
    equal = rs.PackedLayout([0, 2, 4])
    np.testing.assert_array_equal(equal.pack(rows[:4].reshape(2, 2, 4, 3)), rows[:4])
    buffers = np.stack([np.ones((3, 4, 2)), 2 * np.ones((3, 4, 2))])
    for got, wanted in zip(
        PLAN.exchange(0, "q", buffers), PLAN.exchange(0, "q", list(buffers)), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


class Parts:
    """A sequence that makes its items anew and keeps none."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 2

    def __getitem__(self, i):
        if i >= 2:
            raise IndexError
        return self.make(i)


def test_a_sequence_that_makes_its_items_is_a_list():
    rows = np.arange(6 * 50_000.0).reshape(6, -1)
    parts = Parts(lambda rank: PLAN.shard(rows, rank).tolist())
    np.testing.assert_array_equal(PLAN.unshard(parts), rows)
    packed = LAYOUT.pack(Parts(lambda i: rows[:3].tolist() if i == 0 else rows[4:].tolist()))
    np.testing.assert_array_equal(packed[:3], rows[:3])
    np.testing.assert_array_equal(packed[4:], rows[4:])


# --- memory and shapes


def test_too_little_memory_for_a_copy_is_a_memory_error():
    """More than any machine can address, and the copy to float64 is more still."""
    huge = np.broadcast_to(np.float32(0), (6, 2**31 - 1, 2**20))
    with pytest.raises(MemoryError):
        rs.attention(huge, K, V, LAYOUT)
    with pytest.raises(MemoryError):
        PLAN.attention(huge, K, V)
    with pytest.raises(MemoryError):
        rs.attention_backward(huge, Q, K, V, huge, np.ones((4, 6)), LAYOUT)
    with pytest.raises(MemoryError):
        PLAN.exchange(0, "q", [np.broadcast_to(np.float32(0), (2**20, 2**20, 2**17))] * 2)


@pytest.mark.parametrize("shape", [(6, 2**33, 3), (6, 4, 2**32 + 3)])
def test_shapes_beyond_int32_are_refused(shape):
    """Cut to int32, 2**32 + 3 would be the 3 that the keys have."""
    q = np.broadcast_to(0.0, shape)
    for call in (lambda: rs.attention(q, K, V, LAYOUT), lambda: PLAN.attention(q, K, V)):
        refused(call, "q has shape", str(shape[1]), "at most 2147483647", kind=rs.Unsupported)


# --- fill values


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        *((np.int64, 0.5), (np.uint8, -100), (np.int8, 128), (np.int32, np.nan), (bool, 2)),
        *((np.float32, 1e300), (np.int64, 2**63), (np.int64, "7"), (np.float64, 1j)),
        ("U2", "long"),
    ],
)
def test_a_fill_value_that_the_dtype_would_change_is_refused(dtype, fill):
    x = np.zeros(6, dtype)
    for call in (
        lambda: LAYOUT.pack([x[:3], x[:2]], fill_value=fill),
        lambda: LAYOUT.roll(x, fill_value=fill),
        lambda: PLAN.roll(x, fill_value=fill),
        lambda: rs.thd.pad_to_multiple(x[:5], None, [0, 5], 4, pad_token=fill),
    ):
        with pytest.raises((TypeError, ValueError), match=r"(fill_value|pad_token).* of dtype"):
            call()


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        *((np.float32, 0.1), (np.float16, np.nan), (np.float32, np.inf), (np.int64, -100.0)),
        *((np.uint8, 255), (complex, 1j), (object, "anything"), ("U3", "abc"), (bool, 1)),
    ],
)
def test_a_fill_value_that_the_dtype_holds_is_taken(dtype, fill):
    x = np.zeros(6, dtype)
    wanted = np.full(1, fill, dtype)
    np.testing.assert_array_equal(LAYOUT.pack([x[:3], x[:2]], fill_value=fill)[3:4], wanted)
    np.testing.assert_array_equal(LAYOUT.roll(x, fill_value=fill)[3:4], wanted)


@given(st.integers(-(2**31), 2**31 - 1))
def test_rolling_by_any_shift_fills_what_has_no_source(shift):
    got = LAYOUT.roll(np.arange(1, 7), shift)
    wanted = [0] * 6
    for begin, end in ((0, 3), (4, 6)):
        for row in range(begin, end):
            wanted[row] = row - shift + 1 if begin <= row - shift < end else 0
    assert got.tolist() == wanted
