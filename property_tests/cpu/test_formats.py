"""Other people's words for a layout: prefix sums, position ids, segment ids, dense batches."""

import numpy as np
import pytest
import ringside as rs
from assertions import noted, valid_rows
from hypothesis import given
from hypothesis import strategies as st
from ringside.testing import strategies

LAYOUTS = strategies.layouts()


@given(LAYOUTS)
def test_flash_attention_and_transformer_engine_say_the_same_layout(layout):
    starts = layout.cu_seqlens_padded
    assert rs.PackedLayout.from_flash(starts, seqused=layout.lengths) == layout
    assert rs.PackedLayout.from_te(layout.cu_seqlens, starts) == layout
    assert rs.PackedLayout.from_flash(starts) == rs.PackedLayout(starts)
    assert rs.PackedLayout.from_te(starts) == rs.PackedLayout(starts)


@given(strategies.layouts(lengths=strategies.lengths(min_sequences=1)), st.integers(0, 5))
def test_rows_behind_the_last_offset_are_padding(layout, tail):
    rows = layout.num_rows + tail
    longer = rs.PackedLayout.from_te(layout.cu_seqlens, layout.cu_seqlens_padded, num_rows=rows)
    assert longer.num_rows == rows
    assert longer.lengths.tolist() == layout.lengths.tolist()
    assert longer.cu_seqlens_padded[:-1].tolist() == layout.cu_seqlens_padded[:-1].tolist()


@given(strategies.layouts(padding=st.just(0)))
def test_position_ids_that_restart_tell_the_documents(layout):
    positions = np.concatenate([np.zeros(0, int), *(np.arange(n) for n in layout.lengths)])
    told = rs.PackedLayout.from_position_ids(positions)
    assert told.lengths.tolist() == [n for n in layout.lengths.tolist() if n]


@given(LAYOUTS)
def test_segment_ids_tell_documents_and_padding(layout):
    """Empty documents leave no trace in segment ids; padding before the first becomes one."""
    ids = np.zeros(layout.num_rows, int)
    for s, (begin, n) in enumerate(zip(layout.cu_seqlens_padded[:-1], layout.lengths, strict=True)):
        ids[begin : begin + n] = s + 1
    told = rs.PackedLayout.from_segment_ids(ids)
    assert told.num_rows == layout.num_rows
    assert [n for n in told.lengths.tolist() if n] == [n for n in layout.lengths.tolist() if n]
    np.testing.assert_array_equal(valid_rows(told), ids != 0)


@pytest.mark.parametrize("qkv_format", ["bshd", "sbhd"])
@given(
    case=noted(strategies.cases(layouts_k=lambda _: st.none())),
    batch=st.integers(1, 3),
    seqlen=st.integers(0, 7),
)
def test_a_dense_batch_is_a_pack_of_equal_lengths(qkv_format, case, batch, seqlen):
    layout = rs.PackedLayout.from_lengths([seqlen] * batch)
    case = case.replace(layout_q=layout, partition="zigzag")
    wanted = case.by_definition()

    def dense(x):
        x = x.reshape(batch, seqlen, *x.shape[1:])
        return x if qkv_format == "bshd" else x.swapaxes(0, 1)

    q, k, v, dout = (dense(x) for x in case.arrays())
    settings = {"softmax_scale": case.softmax_scale, "qkv_format": qkv_format}
    for forward, backward in (
        (rs.attention, rs.attention_backward),
        (case.plan().attention, case.plan().attention_backward),
    ):
        mask = {"mask": case.mask} if forward is rs.attention else {}
        out, lse = forward(q, k, v, **mask, **settings)
        gradients = backward(dout, q, k, v, out, lse, **mask, **settings)
        np.testing.assert_allclose(out, dense(wanted.out), rtol=0, atol=1e-12)
        by_batch = wanted.lse.reshape(case.num_heads, batch, seqlen).swapaxes(0, 1)
        np.testing.assert_allclose(lse, by_batch, rtol=1e-12, atol=1e-12)
        for got, x in zip(gradients, wanted[2:5], strict=True):
            assert got.shape == dense(x).shape
            np.testing.assert_allclose(got, dense(x), rtol=0, atol=1e-9)  # sums of large products


MASKS = [
    rs.Mask.full(),
    rs.Mask.causal(),
    rs.Mask.sliding_window(2, 1),
    rs.Mask.chunked(3),
    rs.Mask(align="bottom_right"),
]
PADDED = rs.PackedLayout([0, 5, 12, 12], [0, 8, 16, 24])


@pytest.mark.parametrize("qkv_format", ["bshd", "sbhd"])
@pytest.mark.parametrize("mask", MASKS, ids=repr)
def test_padding_of_a_dense_batch_is_padding_of_its_pack(qkv_format, mask):
    """The layout says which rows hold tokens, of keys too; NaN in the others reaches nobody."""
    rng = np.random.default_rng(0)
    q, k, v, dout = rng.normal(size=(4, PADDED.num_rows, 2, 4))
    for x in (q, k, v, dout):
        x[~valid_rows(PADDED)] = np.nan

    def dense(x):
        x = x.reshape(3, 8, *x.shape[1:])
        return x if qkv_format == "bshd" else x.swapaxes(0, 1)

    out, lse = rs.attention(q, k, v, PADDED, mask=mask)
    wanted = rs.attention_backward(dout, q, k, v, out, lse, PADDED, mask=mask)
    assert np.isfinite(out).all() and all(np.isfinite(x).all() for x in wanted)
    batches = [dense(x) for x in (q, k, v)]
    plan = rs.plan(PADDED, mask=mask, cp_size=2, num_heads=2)
    for forward, backward, more in (
        (rs.attention, rs.attention_backward, {"layout_q": PADDED, "mask": mask}),
        (plan.attention, plan.attention_backward, {}),
    ):
        more["qkv_format"] = qkv_format
        got, got_lse = forward(*batches, **more)
        np.testing.assert_allclose(got, dense(out), rtol=0, atol=1e-14)
        np.testing.assert_allclose(got_lse, lse.reshape(2, 3, 8).swapaxes(0, 1), rtol=1e-14)
        gradients = backward(dense(dout), *batches, got, got_lse, **more)
        for x, y in zip(gradients, wanted, strict=True):
            np.testing.assert_allclose(x, dense(y), rtol=0, atol=1e-13)
