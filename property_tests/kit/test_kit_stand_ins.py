"""The stand-in for flash_attn is the definition, in flash_attn's words."""

import doctest
import inspect
import sys

import numpy as np
import pytest
import ringside as rs
import torch
from hypothesis import given
from hypothesis import strategies as st
from ringside.testing import stand_ins
from ringside.testing.stand_ins import flash_attn

LENGTHS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4)
BOUNDS = st.sampled_from([-1, 0, 1, 3])


def tensors(rows_q, rows_k, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed % 2**31)
    shapes = [(rows_q, 4, 8), (rows_k, 2, 8), (rows_k, 2, 8)]
    return [
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes
    ]


def allowed(sq, sk, causal, window):
    """[sq, sk] bool, as FlashAttention documents it."""
    p, j = np.arange(sq)[:, None] + sk - sq, np.arange(sk)
    left = (window[0] < 0) | (j >= p - window[0])
    right = (window[1] < 0) | (j <= p + window[1])
    return left & right & (j <= p if causal else True)


@given(
    LENGTHS, st.booleans(), st.tuples(BOUNDS, BOUNDS), st.sampled_from([0.0, 2.0]), st.integers(0)
)
def test_packs_are_plain_attention_of_each_sequence(lengths, causal, window, softcap, seed):
    sums = np.concatenate([[[0, 0]], np.cumsum(lengths, axis=0)])
    q, k, v = tensors(*sums[-1], seed)
    offsets = torch.from_numpy(sums.astype(np.int32))
    longest = np.max(lengths, axis=0)
    out, lse, probabilities = flash_attn.flash_attn_varlen_func(
        q, k, v, offsets[:, 0], offsets[:, 1], *map(int, longest), causal=causal,
        window_size=window, softcap=softcap, return_attn_probs=True,
    )  # fmt: skip
    assert probabilities is None and lse.dtype == torch.float32 and lse.shape == (4, len(q))
    dout = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
    got = torch.autograd.grad(out, (q, k, v), dout)
    wanted_out, wanted_lse = torch.zeros_like(out), torch.full((4, len(q)), torch.inf)
    parts = []
    for (begin_q, begin_k), (sq, sk) in zip(sums[:-1], lengths, strict=True):
        rows, keys = slice(begin_q, begin_q + sq), slice(begin_k, begin_k + sk)
        seen = torch.from_numpy(np.broadcast_to(allowed(sq, sk, causal, window), (sq, sk)).copy())
        some = seen.any(dim=1)
        heads_k, heads_v = (x[keys].repeat_interleave(2, dim=1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q[rows], heads_k) / 8**0.5
        scores = softcap * torch.tanh(scores / softcap) if softcap else scores
        scores = scores.masked_fill(~seen, -torch.inf)[:, some]
        of_rows = torch.logsumexp(scores, dim=-1)
        weights = torch.exp(scores - of_rows[..., None])
        part = torch.einsum("hqk,khd->qhd", weights, heads_v)
        number = torch.arange(begin_q, begin_q + sq)[some]
        wanted_out[number], wanted_lse[:, number] = part.detach(), of_rows.detach().float()
        parts.append((part * dout[number]).sum())
    torch.testing.assert_close(out, wanted_out, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(lse, wanted_lse, rtol=1e-6, atol=1e-6)
    wanted = torch.autograd.grad(sum(parts), (q, k, v), allow_unused=True, materialize_grads=True)
    for x, y in zip(got, wanted, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)  # lse is float32


def test_dense_batches_are_packs_of_equal_lengths():
    q, k, v = tensors(12, 12, 0)
    offsets = torch.arange(0, 13, 6, dtype=torch.int32)
    alike = {"causal": True, "window_size": (3, 0), "return_attn_probs": True}
    packed = flash_attn.flash_attn_varlen_func(q, k, v, offsets, offsets, 6, 6, **alike)
    dense = flash_attn.flash_attn_func(*(x.reshape(2, 6, -1, 8) for x in (q, k, v)), **alike)
    assert torch.equal(dense[0].reshape(12, 4, 8), packed[0])
    assert torch.equal(dense[1].transpose(0, 1).reshape(4, 12), packed[1])
    dout = torch.randn(12, 4, 8, dtype=torch.float64)
    of_packed = torch.autograd.grad(packed[0], (q, k, v), dout)
    of_dense = torch.autograd.grad(dense[0], (q, k, v), dout.reshape(2, 6, 4, 8))
    assert all(map(torch.equal, of_packed, of_dense))


def test_a_ring_s_backward_uses_the_merged_out_and_lse():
    """Two steps over halves of the keys, as a ring makes them, add to the whole gradient."""
    q, k, v = tensors(6, 6, 3)
    offsets, half = torch.tensor([0, 6], dtype=torch.int32), torch.tensor([0, 3], dtype=torch.int32)
    out, lse, *_ = flash_attn._flash_attn_varlen_forward(
        q, k, v, offsets, offsets, 6, 6, 0.0, None, False
    )
    dout = torch.randn(out.shape, dtype=out.dtype)

    def backward(keys, cu_seqlens_k, rows):
        dq, dk, dv = torch.full_like(q, torch.nan), torch.empty(rows, 2, 8), torch.empty(rows, 2, 8)
        dk, dv = dk.double(), dv.double()
        flash_attn._flash_attn_varlen_backward(
            *(dout, q, k[keys], v[keys], out, lse, dq, dk, dv, offsets, cu_seqlens_k, 6, rows),
            *(0.0, None, False, -1, -1, 0.0, None, False),
        )
        return dq, dk, dv

    first, second = backward(slice(0, 3), half, 3), backward(slice(3, 6), half, 3)
    whole = backward(slice(0, 6), offsets, 6)
    torch.testing.assert_close(first[0] + second[0], whole[0])
    for i in (1, 2):
        torch.testing.assert_close(torch.cat([first[i], second[i]]), whole[i])


def test_results_have_the_dtype_of_q():
    offsets = torch.tensor([0, 5], dtype=torch.int32)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        q, k, v = tensors(5, 5, 0, dtype)
        out = flash_attn.flash_attn_varlen_func(q, k, v, offsets, offsets, 5, 5)
        assert out.dtype == dtype
        assert {x.dtype for x in torch.autograd.grad(out.sum(), (q, k, v))} == {dtype}


def test_imports_find_the_stand_in_inside_only():
    assert "flash_attn" not in sys.modules
    with stand_ins.flash_attn_installed() as package:
        import flash_attn as found
        from flash_attn.flash_attn_interface import _flash_attn_backward

        assert found is package and found.__version__ == stand_ins.VERSION
        assert _flash_attn_backward is flash_attn._flash_attn_backward
    assert "flash_attn" not in sys.modules and "flash_attn.flash_attn_interface" not in sys.modules


def test_what_it_cannot_play_is_refused():
    q, k, v = tensors(4, 4, 0)
    offsets = torch.tensor([0, 4], dtype=torch.int32)
    call = lambda **more: flash_attn.flash_attn_varlen_func(  # noqa: E731
        q, k, v, offsets, offsets, more.pop("longest", 4), 4, **more
    )
    for more, text in (
        ({"dropout_p": 0.1}, "dropout_p > 0"),
        ({"block_table": offsets}, "block_table"),
        ({"alibi_slopes": torch.ones(1, 4)}, "alibi_slopes for each sequence"),
    ):
        with pytest.raises(rs.Unsupported, match=rf"{text}.*Nearest supported"):
            call(**more)
    with pytest.raises(ValueError, match="max_seqlen_q is 3 where a sequence has 4"):
        call(longest=3)


def test_offsets_are_int32_as_on_a_gpu():
    q = torch.zeros(4, 1, 8)
    for offsets in (torch.tensor([0, 4]), np.array([0, 4], np.int32), [0, 4]):
        with pytest.raises(RuntimeError, match=r"cu_seqlens_q is .*; expected a torch ten"):
            flash_attn.flash_attn_varlen_func(q, q, q, offsets, offsets, 4, 4)


def test_arguments_stand_in_the_order_that_rings_pass_them():
    names = list(inspect.signature(flash_attn._flash_attn_varlen_backward).parameters)
    assert names[:9] == ["dout", "q", "k", "v", "out", "softmax_lse", "dq", "dk", "dv"]
    assert names[13:17] == ["dropout_p", "softmax_scale", "causal", "window_size_left"]


@pytest.mark.parametrize("module", [stand_ins, flash_attn], ids=["package", "flash_attn"])
def test_its_examples_run(module):
    ended = doctest.testmod(module)
    assert ended.attempted and not ended.failed
