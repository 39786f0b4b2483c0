"""CuPy in the kit's hands: arrays of the caller's own kind, on a real GPU."""

from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside.testing import Disagreement, check_attention
from ringside.testing.adapters import pack_mask
from ringside.testing.dense import Cupy
from ringside.testing.strategies import cases, layouts, lengths

FULL = layouts(lengths=lengths(min_sequences=1, min_length=1))  # CuPy has no maximum of nothing
DRAWN = cases(
    layouts_q=FULL,
    layouts_k=lambda layout_q: st.none(),
    dtypes=st.sampled_from(["float64", "float32"]),
    comms=st.just("p2p"),
    options=lambda heads: st.just({}),
)


def weights_of(q, k, layout_q, layout_k, mask, scale):
    """(weights [heads, rows_q, rows_k], what is seen), by CuPy's own operations."""
    import cupy

    assert isinstance(q, cupy.ndarray) and isinstance(k, cupy.ndarray)
    seen = cupy.asarray(pack_mask(layout_q, layout_k, mask))
    scale = q.shape[2] ** -0.5 if scale is None else scale
    scores = cupy.einsum("qhd,khd->hqk", cupy.nan_to_num(q), k) * q.dtype.type(scale)
    scores = cupy.where(seen, scores, -cupy.inf)
    top = cupy.maximum(scores.max(axis=2, keepdims=True), -1e30)
    weights = cupy.where(seen, cupy.exp(scores - top), 0)
    return weights / cupy.maximum(weights.sum(axis=2, keepdims=True), 1e-30), scale


def wide(x, heads):
    import cupy

    return cupy.repeat(cupy.nan_to_num(x), heads // x.shape[1], axis=1)


def attend(q, k, v, *, layout_q, layout_k, mask, softmax_scale):
    import cupy

    k, v = (wide(x, q.shape[1]) for x in (k, v))
    weights, _ = weights_of(q, k, layout_q, layout_k, mask, softmax_scale)
    return cupy.einsum("hqk,khd->qhd", weights, v)


def gradients(dout, q, k, v, out, lse, *, layout_q, layout_k, mask, softmax_scale):
    import cupy

    group, heads_k = q.shape[1] // k.shape[1], k.shape[1]
    many_k, many_v = (wide(x, q.shape[1]) for x in (k, v))
    weights, scale = weights_of(q, many_k, layout_q, layout_k, mask, softmax_scale)
    q, dout, out = (cupy.nan_to_num(x) for x in (q, dout, out))
    inner = cupy.einsum("qhd,khd->hqk", dout, many_v) - (dout * out).sum(axis=2).T[..., None]
    ds = weights * inner * q.dtype.type(scale)
    dk = cupy.einsum("hqk,qhd->khd", ds, q)
    dv = cupy.einsum("hqk,qhd->khd", weights, dout)
    sums = (x.reshape(len(x), heads_k, group, x.shape[2]).sum(axis=2) for x in (dk, dv))
    return (cupy.einsum("hqk,khd->qhd", ds, many_k), *sums)


@pytest.mark.skipif(find_spec("cupy") is None, reason="cupy is not installed")
@settings(max_examples=15)
@given(DRAWN)
def test_attention_in_cupy_agrees_and_its_wrong_rows_are_named(case):
    assert check_attention(Cupy(attend, gradients), case).largest_ratio < 1

    def doubled(*arrays, **options):
        out = attend(*arrays, **options)
        out[-1:] *= 2
        return out

    if not attended(case):
        return
    with pytest.raises(Disagreement, match="out is wrong"):
        check_attention(Cupy(doubled), case)


def attended(case):
    """Whether the last row sees a key."""
    return bool(pack_mask(case.layout_q, case.keys, case.mask)[-1:].any())
