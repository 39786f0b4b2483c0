"""Packs of so many short documents that kernels may take all keys of one in one go.

Then dq goes from block to block of these keys, and is final behind the last. Where some documents
are a bit longer, blocks of keys take turns at it, and the last one leaves what is final. The C++
tests have every mask and length, these what a program makes of it.
"""

import numpy as np
import pytest
import ringside as rs
from cuda_cases import (
    DTYPES,
    NEEDS_KERNELS,
    OnGpu,
    check,
    multiprocessors,
    needs_gpu,
    on_device,
    rounded,
)
from mask_of_each_kind import MASKS
from not_finite import classes
from ringside.testing import Arrays, Case

pytestmark = NEEDS_KERNELS

HEADS = 4
LENGTHS = [129, 384, 257, 1, 200, 128, 383]  # at once
IN_TURN = [129, 400, 257, 1, 390, 128, 385]
of_both = pytest.mark.parametrize("lengths", [LENGTHS, IN_TURN], ids=["at once", "in turn"])


def documents(shortest, lengths=LENGTHS):
    """As many as it takes to keep a device busy, most of them of one length."""
    processors = multiprocessors()
    if lengths is IN_TURN:  # which it takes long ones for
        rest = [385 + shortest % 16] * (processors // 5)
    else:
        rest = [shortest] * (4 * processors // HEADS + 1 - len(lengths))
    return rs.PackedLayout.from_lengths([*lengths, *rest], pad_to_multiple_of=8)


@of_both
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_they_agree_with_the_cpu(dtype, mask, lengths):
    for seed, dims in enumerate([(128, 128), (72, 96)]):  # an even seed is deterministic
        check(
            Case(
                documents(5, lengths), mask=mask, num_heads=2 * HEADS, num_kv_heads=HEADS,
                head_dim=dims[0], head_dim_v=dims[1], seed=seed,
            ),
            dtype,
        )  # fmt: skip


@of_both
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_options_agree_with_those_of_few_documents(dtype, lengths):
    """The same documents by themselves go another way; dropout knows where a document begins."""
    import torch

    layout, options = documents(7, lengths), {"softcap": 2.0, "alibi_slopes": 0.125}
    generator = torch.Generator().manual_seed(3)
    shape = (int(layout.cu_seqlens_padded[-1]), HEADS, 128)
    q, k, v, dout = (
        on_device(torch.randn(shape, generator=generator).to(getattr(torch, dtype)))
        for _ in range(4)
    )
    plan = rs.plan(layout, cp_size=1, num_heads=HEADS, num_kv_heads=HEADS)
    out, lse = plan.attention(q, k, v, backend="cuda", **options)
    grads = plan.attention_backward(dout, q, k, v, out, lse, backend="cuda", **options)
    few = rs.PackedLayout.from_lengths(lengths, pad_to_multiple_of=8)
    rows = int(few.cu_seqlens_padded[-1])
    short = rs.plan(few, cp_size=1, num_heads=HEADS, num_kv_heads=HEADS)
    some = [x[:rows].contiguous() for x in (dout, q, k, v, out)]
    wanted = short.attention_backward(*some, lse[:, :rows].contiguous(), backend="cuda", **options)
    unit = torch.finfo(getattr(torch, dtype)).eps
    for name, got, want in zip(("dq", "dk", "dv"), grads, wanted, strict=False):
        got, want = got[:rows].float(), want.float()
        # Sums of up to 400 terms, rounded to dtype in another order.
        assert (got - want).abs().max() <= 4 * unit * want.abs().max(), name


@of_both
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_what_is_not_finite_reaches_those_who_see_it(dtype, value, lengths):
    layout = documents(3, lengths)
    case = Case(layout, num_heads=HEADS, num_kv_heads=HEADS, head_dim=128, head_dim_v=128)
    case = case.replace(softmax_scale=0.3 / np.sqrt(case.head_dim))
    arrays = Arrays(*(x.copy() for x in case.arrays()))
    first = np.asarray(layout.cu_seqlens_padded)
    arrays.k[first[1] + 300, 2, 70] = value  # a panel of columns, late in the second document
    arrays.k[first[1] + 5, 2, 70] = -value  # which another block of keys may add to the same dq
    arrays.k[first[2] + 3, 1] = value  # all, early in the third
    arrays.q[first[6] + 140, 3, 3] = value
    run = OnGpu(dtype, rs.Options(softmax_scale=case.scale))
    q, k, v, dout = rounded(arrays, dtype)
    out, lse = run.forward(case.plan(), q, k, v)
    got = run.backward(case.plan(), dout, q, k, v, out, lse)
    saved = (q, k, v, out, lse)
    wanted = rs.attention_backward(dout, *saved, layout, layout, softmax_scale=case.scale)
    for name, a, b in zip(("dq", "dk", "dv"), got, wanted, strict=False):
        np.testing.assert_array_equal(classes(a), classes(b), err_msg=name)


@needs_gpu
@of_both
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_they_are_the_same_bits_from_run_to_run(dtype, lengths):
    import torch

    layout = documents(90, lengths)
    x = torch.randn(4, int(layout.cu_seqlens_padded[-1]), HEADS, 128, device="cuda")
    q, k, v, dout = x.to(getattr(torch, dtype))
    plan = rs.plan(layout, cp_size=1, num_heads=HEADS, num_kv_heads=HEADS)
    out, lse = plan.attention(q, k, v, backend="cuda")
    # Where memory is quick, only those that ask for it take turns.
    options = {"backend": "cuda", "deterministic": lengths is IN_TURN}
    grads = plan.attention_backward(dout, q, k, v, out, lse, **options)[:3]
    for _ in range(20):
        again = plan.attention_backward(dout, q, k, v, out, lse, **options)[:3]
        assert all(map(torch.equal, again, grads))
