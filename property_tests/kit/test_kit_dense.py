"""Functions of dense batches and of CuPy's arrays in the ring; CuPy is played."""

import sys
import types

import numpy as np
import pytest
import ringside as rs
from ringside.testing import Case, Disagreement, check_attention, fuzz
from ringside.testing.dense import Cupy, Dense, batches

TWO = Case(rs.PackedLayout([0, 5, 10]), dtype="float32", num_heads=4, num_kv_heads=2)


def of(layout):
    """Forward and backward of batches of one format, by the definition."""

    def forward(q, k, v, *, mask, softmax_scale):
        out, lse = rs.attention(q, k, v, mask=mask, softmax_scale=softmax_scale, qkv_format=layout)
        batch = q.shape[0] if layout == "bshd" else q.shape[1]
        return out, np.asarray(lse).reshape(batch, q.shape[2], -1)

    def backward(dout, q, k, v, out, lse, *, mask, softmax_scale):
        settings = {"mask": mask, "softmax_scale": softmax_scale, "qkv_format": layout}
        return rs.attention_backward(dout, q, k, v, out, lse, **settings)

    return forward, backward


@pytest.mark.parametrize("layout", ["bshd", "sbhd"])
def test_batches_are_given_in_their_format_and_come_back(layout):
    forward, backward = of(layout)
    report = check_attention(Dense(forward, layout, backward), TWO)
    assert set(report.ratios) == {"out", "lse", "dq", "dk", "dv"} and report.largest_ratio < 1
    fuzz(examples=20, cases=batches())(Dense(forward, layout, backward))()


def test_the_other_format_is_called_wrong():
    case = TWO.replace(layout_q=rs.PackedLayout([0, 3, 6, 9]))  # 3 x 3: every shape fits
    forward, _ = of("bshd")
    check_attention(Dense(forward, "bshd"), case)
    with pytest.raises(Disagreement, match="out is wrong"):
        check_attention(Dense(forward, "sbhd"), case)


def test_what_a_batch_cannot_hold_is_refused():
    dense = Dense(of("bshd")[0], "bshd")
    for layout in (rs.PackedLayout([0, 3, 5]), rs.PackedLayout([0, 3, 6], [0, 4, 8])):
        with pytest.raises(NotImplementedError, match="documents of one length, without padding"):
            check_attention(dense, TWO.replace(layout_q=layout))
    with pytest.raises(ValueError, match='qkv_format="thd"; expected "bshd" or "sbhd"'):
        Dense(of("bshd")[0], "thd")


class Played(np.ndarray):
    """An array of CuPy's: NumPy does not convert it by itself."""

    def __array__(self, *_arguments, **_keywords):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


@pytest.fixture
def cupy(monkeypatch):
    played = types.ModuleType("cupy")
    played.asarray = lambda x: np.array(x).view(Played)
    played.asnumpy = lambda x: x.view(np.ndarray)
    monkeypatch.setitem(sys.modules, "cupy", played)
    return played


def test_arrays_of_cupy_are_given_and_taken(cupy):
    seen = []

    def mine(q, k, v, *, layout_q, layout_k, mask, softmax_scale):
        seen.extend([q, k, v])
        settings = {"mask": mask, "softmax_scale": softmax_scale}
        found = rs.attention(
            *(x.view(np.ndarray) for x in (q, k, v)), layout_q, layout_k, **settings
        )
        return tuple(np.asarray(x).view(Played) for x in found)

    assert check_attention(Cupy(mine), TWO).largest_ratio < 1
    assert all(type(x) is Played for x in seen)

    def batch(q, k, v, *, mask, softmax_scale):
        out, _ = of("sbhd")[0](
            *(x.view(np.ndarray) for x in (q, k, v)), mask=mask, softmax_scale=softmax_scale
        )
        return out.view(Played)

    assert check_attention(Dense(Cupy(batch), "sbhd"), TWO).largest_ratio < 1


def test_without_cupy_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(NotImplementedError, match="cupy cannot be imported"):
        check_attention(Cupy(of("bshd")[0]), TWO)
