"""The stand-ins of packages' own kernels against the definition and ringside.thd."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import ringside as rs
import torch
from ringside.testing.peers.adapter import STAND_IN, _module

HERE = Path(__file__).parent
LENGTHS, PADDED, CP = [3, 8, 0, 5], [4, 8, 4, 8], 2
LAYOUT = rs.PackedLayout(np.cumsum([0, *LENGTHS]), np.cumsum([0, *PADDED]))
KINDS = {
    "PADDING_MASK": False,
    "PADDING_CAUSAL_MASK": False,
    "PADDING_CAUSAL_BOTTOM_RIGHT_MASK": True,
}


@pytest.fixture(scope="module")
def te():
    """Of Transformer Engine; nothing is installed."""
    return _module(HERE / "transformer_engine" / STAND_IN, "stand_in_of_transformer_engine")


@pytest.fixture(scope="module")
def flash_3():
    return _module(HERE / "flashinfer" / STAND_IN, "stand_in_of_flashinfer")


def rows(count, heads=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, heads, 8, generator=generator, dtype=torch.float64)


def int32(x):
    return torch.tensor(np.asarray(x), dtype=torch.int32)


def close(*pairs):
    for got, expected in pairs:
        torch.testing.assert_close(got, torch.as_tensor(expected), rtol=0, atol=2e-6)


def test_rows_of_ranks_are_ordered_as_by_ringside(te):
    x, ends = rows(LAYOUT.num_rows), int32(LAYOUT.cu_seqlens_padded)
    of_ranks = te.thd_sequence_order_to_cp_rank_order(x, ends, CP, len(x))
    np.testing.assert_array_equal(
        of_ranks, rs.thd.sequence_order_to_cp_rank_order(x.numpy(), ends.numpy(), CP)
    )
    assert torch.equal(te.thd_cp_rank_order_to_sequence_order(of_ranks, ends, CP, len(x)), x)


def test_valid_tokens_are_copied_and_no_others(te):
    to, part = rows(LAYOUT.num_rows), rows(LAYOUT.num_rows, seed=1)
    expected = to.clone()
    for start, length in zip(LAYOUT.cu_seqlens_padded[:-1], LENGTHS, strict=True):
        expected[start : start + length] = part[start : start + length]
    ends = int32(LAYOUT.cu_seqlens_padded), int32(LAYOUT.cu_seqlens)
    te.thd_copy_valid_tokens_from_per_split_to_rank_local(to, part, *ends)
    assert torch.equal(to, expected)


@pytest.mark.parametrize("mask", KINDS)
@pytest.mark.parametrize("window", [(-1, -1), (2, 0), (2, 1)])
def test_cudnn_is_played_by_the_definition(te, mask, window):
    window = window if "CAUSAL" not in mask or window[0] >= 0 else (-1, 0)
    right = 0 if "CAUSAL" in mask else window[1]
    align = "bottom_right" if KINDS[mask] else "top_left"
    keys = rs.PackedLayout(np.cumsum([0, 2, 9, 1, 5]), np.cumsum([0, 4, 10, 4, 6]))
    q, dout = rows(LAYOUT.num_rows), rows(LAYOUT.num_rows, seed=1)
    k, v = rows(keys.num_rows, 1, seed=2), rows(keys.num_rows, 1, seed=3)
    layouts = (LAYOUT, keys)
    settings = {"mask": rs.Mask(window_size=(window[0], right), align=align), "softmax_scale": 0.3}
    cu = [int32(x.cu_seqlens) for x in layouts]
    padded = [int32(x.cu_seqlens_padded) for x in layouts]
    kind = ("NVTE_THD_THD_THD", *"012", f"NVTE_{mask}", "", window, KINDS[mask])
    out, stats, rng = te.fused_attn_fwd(
        8, 9, True, 0.3, 0.0, True, kind[0], "", "", "", *kind[4:], *cu, q, k, v, None, *padded
    )
    true_out, true_lse = rs.attention(q, k, v, *layouts, **settings)
    valid = torch.as_tensor(~np.isneginf(true_lse.numpy()))
    close((out, true_out), (stats[..., 0].T[valid].double(), true_lse[valid]))
    found = te.fused_attn_bwd(
        *(8, 9, 0.3, 0.0, True, kind[0], "", "", "", "", "", "", *kind[4:], False, *cu, q, k, v),
        *(out, dout, None, [stats, rng], *padded),
    )
    expected = rs.attention_backward(dout, q, k, v, true_out, true_lse, *layouts, **settings)
    close(*zip(found[:3], expected, strict=True))


@pytest.mark.parametrize("layout", ["bshd", "sbhd"])
def test_cudnns_dense_batches_are_packs_of_equal_lengths(te, layout):
    batch = rs.PackedLayout([0, 6, 12])
    q, dout = rows(12), rows(12, seed=1)
    k, v = rows(12, 1, seed=2), rows(12, 1, seed=3)

    def dense(x):
        x = x.unflatten(0, (2, 6))
        return x.transpose(0, 1).contiguous() if layout == "sbhd" else x

    name = "_".join(["NVTE", *[layout.upper()] * 3])
    mask = ("NVTE_CAUSAL_MASK", "", (-1, 0), False, None, None)
    given = (*map(dense, (q, k, v)), None, None, None)
    out, stats, rng = te.fused_attn_fwd(6, 6, True, 0.3, 0.0, True, name, "", "", "", *mask, *given)
    settings = {"mask": rs.Mask.causal(), "softmax_scale": 0.3}
    true_out, lse = rs.attention(q, k, v, batch, **settings)
    close(
        (out, dense(true_out)), (stats[..., 0].double(), lse.unflatten(1, (2, 6)).transpose(0, 1))
    )
    mask = (*mask[:4], False, None, None)
    given = (*given[:3], out, dense(dout), None, [stats, rng], None, None)
    start = (6, 6, 0.3, 0.0, True, name, "", "", "", "", "", "")
    found = te.fused_attn_bwd(*start, *mask, *given)
    expected = rs.attention_backward(dout, q, k, v, true_out, lse, batch, **settings)
    close(*zip(found[:3], map(dense, expected), strict=True))


def test_flash_attention_3_is_played_by_the_definition(te):
    used = int32(LENGTHS)
    ends = int32(LAYOUT.cu_seqlens_padded)
    q, dout, k, v = (rows(LAYOUT.num_rows, 2, seed) for seed in range(4))
    settings = {"softmax_scale": 0.3, "window_size_left": 2, "window_size_right": 1}
    packed = (None, None, None, None, ends, ends, None, used, used, 8, 8)
    out, lse, *_ = te.flash_3_forward(q, k, v, *packed, causal=False, **settings)
    mask = rs.Mask(window_size=(2, 1), align="bottom_right")
    true_out, true_lse = rs.attention(q, k, v, LAYOUT, mask=mask, softmax_scale=0.3)
    close((out, true_out), (lse[~true_lse.isinf()].double(), true_lse[~true_lse.isinf()]))
    found = [torch.full_like(q, torch.nan) for _ in range(3)]
    given = (ends, ends, used, used, 8, 8, *found)
    keywords = {"is_causal": False, "deterministic": True}
    te.flash_3_backward(dout, q, k, v, out, lse, *given, **keywords, **settings)
    gradients = (dout, q, k, v, true_out, true_lse, LAYOUT)
    close(*zip(found, rs.attention_backward(*gradients, mask=mask, softmax_scale=0.3), strict=True))


def test_halves_are_read_merged_and_added(te):
    """Keys in two parts, merged, are all keys; queries of second halves alone, too."""
    ends = int32([0, 4, 12])
    first, second = te.halves(ends)
    assert first.tolist() == [0, 1, 4, 5, 6, 7] and second.tolist() == [2, 3, 8, 9, 10, 11]
    q, parts = rows(12), [rows(5, seed=s) for s in (1, 2)]
    one = [
        te.Pack(*map(int32, ([0], [12], [0], [5])), (-1, -1), False, 0.3).forward(q, x, x)
        for x in parts
    ]
    whole = te.Pack(*map(int32, ([0], [12], [0], [10])), (-1, -1), False, 0.3)
    expected, true_lse = whole.forward(q, *[torch.cat(parts)] * 2)
    (out, old), (step, lse_step) = one
    old, lse_step = old.T.contiguous(), lse_step.T.contiguous()
    lse = old.clone()
    te.thd_second_half_lse_correction(lse, lse_step[:, second], ends, True)
    te.thd_out_correction(out, step[second], old, lse, lse_step[:, second], ends, True, True)
    close((out[second], expected[second]), (lse[:, second], true_lse.T[:, second]))
    close(
        (out[first], one[0][0][first]),
        (te.thd_read_second_half_lse(lse, ends, True, 6), lse[:, second]),
    )
    lse = torch.logaddexp(old, lse_step)
    out = te.Pack(*map(int32, ([0], [12], [0], [5])), (-1, -1), False, 0.3).forward(
        q, *parts[:1] * 2
    )[0]
    te.thd_out_correction(out, step, old, lse, lse_step, ends, False, True)
    close((out, expected))
    assert torch.equal(te.thd_read_half_tensor(q, ends, 1), q[second])


@pytest.mark.parametrize(
    ("first", "second"), [x for x in itertools.product(("add", "copy", "none", "zero"), repeat=2)]
)
def test_gradients_of_halves_are_added_copied_cleared_or_left(te, first, second):
    ends, grad = int32([0, 4, 12]), rows(12)
    whole = not {first, second} & {"none", "zero"}
    step = rows(12 if whole else 6, seed=1)
    before = grad.clone()
    te.thd_grad_correction(grad, step, ends, first, second)
    for how, half in zip((first, second), te.halves(ends), strict=True):
        given = step[half] if whole else step
        expected = {"add": before[half] + given, "copy": given, "none": before[half]}
        assert torch.equal(grad[half], expected.get(how, torch.zeros_like(given)))


def test_flashinfers_flash_attention_3_is_played_by_the_definition(flash_3):
    keys = rs.PackedLayout([0, 4, 10])
    queries = rs.PackedLayout([0, 3, 8])
    q, k, v = rows(9), rows(10, 1, seed=1), rows(10, 1, seed=2)  # a row behind the last document
    out, lse = flash_3.flash_attn_varlen_func(
        q, k, v, int32(queries.cu_seqlens), int32(keys.cu_seqlens), 5, 6, causal=True,
        return_attn_probs=True,
    )  # fmt: skip
    mask = rs.Mask.causal(align="bottom_right")
    true_out, true_lse = rs.attention(q[:8], k, v, queries, keys, mask=mask)
    close((out[:8], true_out), (lse[:, :8].double(), true_lse), (out[8:], torch.zeros_like(q[8:])))
    dense = flash_3.flash_attn_func(*(x[None] for x in (q[:5], k[4:], v[4:])), softmax_scale=0.3)
    whole = rs.PackedLayout([0, 5]), rs.PackedLayout([0, 6])
    true_out, _ = rs.attention(q[:5], k[4:], v[4:], *whole, mask=rs.Mask.full(), softmax_scale=0.3)
    close((dense[0], true_out))
