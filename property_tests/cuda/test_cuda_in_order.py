"""Deterministic gradients of documents of several items of keys.

Where kernels add up dq of a query from several items, these may take turns at it; the C++ tests
have every mask, these what a program makes of it, and the same bits time after time.
"""

import numpy as np
import pytest
import ringside as rs
from assertions import assert_same_bits
from cuda_cases import (
    DTYPES,
    NEEDS_KERNELS,
    OnGpu,
    check,
    keywords_of,
    needs_gpu,
    on_device,
    rounded,
)
from not_finite import classes, who_sees_whom
from ringside.testing import Arrays, Case, Results
from ringside.testing.dtypes import float_of

pytestmark = NEEDS_KERNELS

# Short ones, too, and some that end within a block; all longer than what may be one item: 384 keys.
SHORT = rs.PackedLayout.from_lengths([400, 30, 523], pad_to_multiple_of=32)
LONG = rs.PackedLayout.from_lengths([2500, 385, 1, 1111], pad_to_multiple_of=32)
MASKS = {
    "full": rs.Mask.full(),
    "causal": rs.Mask.causal(),
    "window": rs.Mask.sliding_window(300, 20),
}
OPTIONS = {"softcap": 2.0, "alibi_slopes": 0.125, "dropout_p": 0.3, "dropout_seed": 5}
of_every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
of_16_bits = pytest.mark.parametrize("dtype", DTYPES[1:])


def case_of(layout, mask, heads, dim):
    return Case(
        layout, mask=mask, num_heads=heads[0], num_kv_heads=heads[1], head_dim=dim,
        head_dim_v=dim, seed=2,
    )  # fmt: skip


def prepared(case, dtype, **options):
    """forward() and backward(), deterministic, of one plan and arrays on the GPU."""
    import torch

    generator = torch.Generator().manual_seed(case.seed)

    def array(heads, dim):
        shape = (case.layout_q.num_rows, heads, dim)
        return on_device(torch.randn(shape, generator=generator).to(getattr(torch, dtype)))

    q, dout = (array(case.num_heads, dim) for dim in (case.head_dim, case.head_dim_v))
    k, v = (array(case.num_kv_heads, dim) for dim in (case.head_dim, case.head_dim_v))
    plan = case.plan()

    def forward():
        return plan.attention(q, k, v, backend="cuda", **options)

    saved = (dout, q, k, v, *forward())

    def backward():
        return plan.attention_backward(*saved, deterministic=True, backend="cuda", **options)[:3]

    return forward, backward


def assert_near(name, got, wanted, dtype):
    """Operands of products are rounded once more than inputs are, and results again."""
    allowed = max(1.0, np.abs(wanted).max()) * (1.6e-5 + 3 * float_of(dtype).roundoff)
    assert np.abs(got - wanted).max() <= allowed, name


@of_every_mask
@pytest.mark.parametrize("dim", [64, 128])
@of_16_bits
def test_they_agree_with_the_cpu(dtype, dim, mask):
    check(case_of(SHORT, mask, (3, 1), dim), dtype)  # an even seed is deterministic


@pytest.mark.parametrize("dim", [64, 128])
@of_16_bits
def test_they_agree_with_the_cpu_where_many_heads_share_one(dtype, dim):
    layout = rs.PackedLayout.from_lengths([400, 30])
    check(case_of(layout, rs.Mask.causal(), (64, 8), dim), dtype)


@of_16_bits
def test_they_agree_with_the_cpu_with_options(dtype):
    case, options = case_of(SHORT, rs.Mask.causal(), (4, 2), 128), rs.Options(**OPTIONS)
    q, k, v, dout = rounded(case.arrays(), dtype)
    run, plan = OnGpu(dtype, options, deterministic=True), case.plan()
    out, lse = run.forward(plan, q, k, v)
    got = run.backward(plan, dout, q, k, v, out, lse)
    wanted = rs.attention_backward(
        dout, q, k, v, out, lse, SHORT, SHORT, mask=case.mask, **keywords_of(options)
    )
    for name, a, b in zip(("dq", "dk", "dv"), got, wanted, strict=False):
        assert_near(name, a, b, dtype)


@needs_gpu
@of_every_mask
@pytest.mark.parametrize(
    ("heads", "dim"), [((4, 2), 128), ((4, 2), 64), ((64, 8), 128), ((64, 8), 64)]
)
@of_16_bits
def test_a_hundred_calls_give_the_same_bits(dtype, heads, dim, mask):
    import torch

    _, backward = prepared(case_of(LONG, mask, heads, dim), dtype)
    first = backward()
    for _ in range(100):
        assert all(map(torch.equal, backward(), first))


@needs_gpu
@pytest.mark.parametrize(
    ("dims", "ranks"),
    [
        ((96, 96), 1),
        ((192, 128), 1),
        ((192, 192), 1),
        ((256, 256), 1),
        ((64, 64), 2),
        ((128, 128), 2),
    ],
)
@of_16_bits
def test_a_hundred_calls_of_other_kernels_and_rings_give_the_same_bits(dtype, dims, ranks):
    """Where items take no turns, another kernel has dq."""
    import torch

    case = case_of(LONG, rs.Mask.causal(), (4, 2), 128)
    case = case.replace(head_dim=dims[0], head_dim_v=dims[1], cp_size=ranks)
    _, backward = prepared(case, dtype)
    first = backward()
    for _ in range(100):
        assert all(map(torch.equal, backward(), first))


@needs_gpu
@of_16_bits
def test_a_hundred_calls_with_options_give_the_same_bits(dtype):
    import torch

    _, backward = prepared(case_of(LONG, rs.Mask.causal(), (8, 2), 128), dtype, **OPTIONS)
    first = backward()
    for _ in range(100):
        assert all(map(torch.equal, backward(), first))


@needs_gpu
@of_16_bits
def test_two_streams_that_run_one_plan_at_once_give_the_same_bits(dtype):
    """Each call's turns are its own, and one that waits keeps nobody else's place."""
    import torch

    forward, backward = prepared(case_of(LONG, rs.Mask.causal(), (8, 2), 128), dtype)
    first = *forward(), *backward()
    torch.cuda.synchronize()
    streams, results = [torch.cuda.Stream() for _ in range(2)], []
    for _ in range(20):
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append((*forward(), *backward()))
    torch.cuda.synchronize()
    for again in results:
        assert all(map(torch.equal, again, first))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dim", [64, 128])
@of_16_bits
def test_what_is_not_finite_stays_with_those_who_see_it(dtype, dim, value):
    """Who does not keeps his bits, and all have theirs again."""
    case = case_of(SHORT, rs.Mask.causal(), (4, 2), dim)
    case = case.replace(softmax_scale=0.3 / np.sqrt(dim))
    clean = rounded(case.arrays(), dtype)
    dirty = Arrays(*(x.copy() for x in clean))
    first = np.asarray(SHORT.cu_seqlens_padded)
    poisoned = [first[0] + 333, first[2] + 200]
    dirty.k[poisoned[0], 1, 40] = value  # a panel of columns, late in the first document
    dirty.k[poisoned[1], 0] = value  # all, in the middle of the third
    run, plan = OnGpu(dtype, rs.Options(softmax_scale=case.scale), deterministic=True), case.plan()

    def results(arrays):
        out, lse = run.forward(plan, *arrays[:3])
        return Results(out, lse, *run.backward(plan, arrays.dout, *arrays[:3], out, lse))

    without, got, again = results(clean), results(dirty), results(dirty)
    rows = ~who_sees_whom(case)[:, poisoned].any(axis=1)
    for name in ("dq", "dk", "dv"):
        assert_same_bits(name, getattr(again, name), getattr(got, name))
    assert_same_bits("dq", got.dq[rows], without.dq[rows])
    saved = (*dirty[:3], got.out, got.lse)
    wanted = rs.attention_backward(
        dirty.dout, *saved, SHORT, SHORT, mask=case.mask, softmax_scale=case.scale
    )
    for name, b in zip(("dq", "dk", "dv"), wanted, strict=False):
        np.testing.assert_array_equal(classes(getattr(got, name)), classes(b), err_msg=name)
