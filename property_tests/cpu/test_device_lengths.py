"""What DevicePlan.set_lengths takes, on arrays that only say they lie on a device."""

import types

import numpy as np
import pytest
import ringside as rs
from ringside._arrays import cuda as _cuda
from ringside._arrays.device_lengths import DeviceLengths


class Array:
    """Numbers that nobody can read."""

    def __init__(self, values, dtype):
        self.shape, self.dtype = (len(values),), np.dtype(dtype)


class Library:
    """Owns the arrays that it made."""

    def __init__(self, device=0):
        self.on, self.made = device, []

    def array(self, *values, dtype=np.int32):
        self.made.append(Array(values, dtype))
        return self.made[-1]

    def owns(self, x):
        return any(x is mine for mine in self.made)

    def device(self, x):
        return self.on

    def ready(self, x):
        return x

    def describe(self, x):
        return x

    def stream(self, device):
        return 7


class Program:
    """Remembers what it was told."""

    def __init__(self):
        self.lengths = []

    def set_lengths(self, q, k, stream):
        self.lengths.append((q, k, stream))


@pytest.fixture
def library(monkeypatch):
    library = Library()
    monkeypatch.setattr(_cuda, "library_of", lambda x: library)
    core = types.SimpleNamespace(
        Capacity=lambda **sizes: sizes, thd=types.SimpleNamespace(Layout=lambda *parts: parts)
    )
    monkeypatch.setattr(_cuda, "cuda_core", lambda: core)
    monkeypatch.setattr(_cuda, "require_cuda", lambda *_: None)
    return library


def told(*arrays, **keywords):
    """What a program of such a plan is told."""
    plan = rs.DevicePlan(max_sequences=3, num_rows_q=8, num_rows_k=9)
    program = Program()
    plan._programs["some"] = program
    plan.set_lengths(*arrays, **keywords)
    ((q, k, stream),) = program.lengths
    assert stream == 7
    return q, k


def test_keys_have_the_lengths_of_the_queries_unless_told(library):
    q, padded, k = (library.array(*x) for x in ([0, 2], [0, 4], [0, 3]))
    assert told(q) == ((q, q, 8), (q, q, 9))
    assert told(q, padded) == ((q, padded, 8), (q, padded, 9))
    assert told(q, padded, k) == ((q, padded, 8), (k, k, 9))
    assert told(q, padded, k, padded) == ((q, padded, 8), (k, padded, 9))


def test_either_width_is_taken_whichever_the_other_arrays_have(library):
    q, wide = library.array(0, 2), library.array(0, 2, dtype=np.int64)
    assert told(q, wide, wide, q) == ((q, wide, 8), (wide, q, 9))


def test_layouts_are_taken_as_well_as_their_arrays(library):
    q, padded, k = (library.array(*x) for x in ([0, 2], [0, 4], [0, 3]))
    layout, layout_k = rs.thd.DeviceLayout(q, padded, 8), rs.thd.DeviceLayout(k, None, 9)
    assert told(layout) == ((q, padded, 8), (q, padded, 9))
    assert told(layout, None, layout_k) == ((q, padded, 8), (k, k, 9))
    assert told(layout, cu_seqlens_k=k) == ((q, padded, 8), (k, k, 9))
    assert told(q, cu_seqlens_k=layout_k) == ((q, q, 8), (k, k, 9))


def test_layouts_that_do_not_fit_are_refused(library):
    q = library.array(0, 2)
    layout = rs.thd.DeviceLayout(q, None, 8)
    with pytest.raises(ValueError, match="cu_seqlens_padded beside a DeviceLayout"):
        told(layout, q)
    with pytest.raises(ValueError, match="cu_seqlens_k_padded beside a DeviceLayout"):
        told(layout, None, rs.thd.DeviceLayout(q, None, 9), q)
    with pytest.raises(ValueError, match="cu_seqlens_k is a DeviceLayout of num_rows=8; expected"):
        told(layout, None, layout)
    with pytest.raises(ValueError, match="num_rows=7; expected the plan's 8"):
        told(rs.thd.DeviceLayout(q, None, 7))


def test_arrays_that_do_not_fit_are_refused(library):
    q = library.array(0, 2)
    with pytest.raises(ValueError, match="pass both"):
        told(q, None, None, q)
    for dtype in (np.int16, np.uint32, np.float32):
        with pytest.raises(TypeError, match="expected int32 or int64"):
            told(library.array(0, 2, dtype=dtype))
        with pytest.raises(TypeError, match=r"cu_seqlens_k_padded is .*; expected int32 or int64"):
            told(q, q, q, library.array(0, 2, dtype=dtype))
    with pytest.raises(ValueError, match="one batch of at most max_sequences=3"):
        told(library.array(0, 1, 2, 3, 4))
    with pytest.raises(ValueError, match="one batch"):
        told(q, library.array(0, 2, 4))
    with pytest.raises(ValueError, match="one batch"):
        told(library.array())
    with pytest.raises(TypeError, match="not its kind of array"):
        told(q, np.array([0, 2], np.int32))


def test_one_library_and_one_device_order_the_work(library):
    layout = rs.thd.DeviceLayout(library.array(0, 2), None, 8)
    taken = DeviceLengths(3, layout, layout)
    taken.require_with(library, 0)
    with pytest.raises(TypeError, match="lies on device 0 and the other arrays on 1"):
        taken.require_with(library, 1)
    with pytest.raises(TypeError, match="one library"):
        taken.require_with(Library(), 0)
