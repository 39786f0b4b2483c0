"""backend="cuda" computes what the CPU does: any plan, any mask, any shape, between canaries."""

import numpy as np
import pytest
import ringside as rs
from assertions import noted, scale_of
from cuda_cases import (
    DTYPES,
    NEEDS_KERNELS,
    blind_blocks,
    cases_run,
    check,
    needs_gpu,
    rounded,
    to_device,
    to_host,
)
from half_steps import in_half_steps
from hypothesis import example, given
from hypothesis import strategies as st
from mask_of_each_kind import MASKS
from ringside.testing import Case, strategies
from ringside.testing.dtypes import float_of

pytestmark = NEEDS_KERNELS

BORDERS = [0, 1, 63, 64, 65, 127, 128, 129]
DIMS = st.one_of(st.integers(1, 9), st.sampled_from([32, 63, 64, 65, 96, 128, 192, 255, 256]))


def border_layouts():
    lengths = st.lists(st.sampled_from(BORDERS), max_size=3)
    return strategies.layouts(lengths=st.one_of(strategies.lengths(), lengths))


def border_keys(layout_q):
    batch = layout_q.num_sequences
    lengths = st.lists(
        st.one_of(st.integers(0, 20), st.sampled_from(BORDERS)), min_size=batch, max_size=batch
    )
    return st.one_of(st.none(), strategies.layouts(lengths=lengths))


def cases(**restricted):
    return noted(
        strategies.cases(
            layouts_q=border_layouts(), layouts_k=border_keys, head_dims=DIMS, **restricted
        )
    )


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=cases())
@example(case=Case(rs.PackedLayout([0]), num_heads=2, head_dim=64, head_dim_v=64))  # in place
@example(case=Case(rs.PackedLayout([0]), cp_size=3))
@example(case=Case(rs.PackedLayout([0, 1]), cp_size=8, comm="a2a"))
def test_any_plan_agrees_with_the_cpu(dtype, case):
    check(case, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@given(case=cases(cp_sizes=st.sampled_from([4, 6, 8]), comms=st.just("a2a+p2p")))
def test_rings_of_all_to_all_groups_agree_with_the_cpu(dtype, case):
    check(case, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@given(
    case=cases(
        cp_sizes=st.integers(2, 8),
        comms=st.sampled_from(["a2a", "a2a+p2p"]),
        heads=strategies.heads(max_kv_heads=2),
    )
)
def test_heads_that_do_not_divide_by_the_ranks_agree_with_the_cpu(dtype, case):
    check(case, dtype)


@pytest.mark.parametrize("comm", rs.COMMS)
@pytest.mark.parametrize("partition", rs.PARTITIONS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_cell_agrees_on_documents_longer_than_a_block(dtype, mask, partition, comm):
    layout_q = rs.PackedLayout([0, 300, 301, 301, 460], [0, 304, 306, 311, 471])
    layout_k = rs.PackedLayout([0, 290, 310, 311, 480], [0, 299, 320, 321, 490])
    check(
        Case(
            layout_q, layout_k, mask=mask, cp_size=4, partition=partition, comm=comm,
            a2a_size=2 if comm == "a2a+p2p" else None, num_heads=4, num_kv_heads=2, head_dim=64,
            head_dim_v=64, seed=7,
        ),
        dtype,
    )  # fmt: skip


@pytest.mark.parametrize(
    "dims", [(64, 64), (96, 96), (128, 128), (192, 128), (256, 256), (40, 200)]
)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("dtype", DTYPES)
def test_lengths_around_the_tiles_agree_for_every_head_dimension(dtype, mask, dims):
    layout = rs.PackedLayout.from_lengths(BORDERS, pad_to_multiple_of=16)
    check(
        Case(
            layout, mask=mask, cp_size=2, num_heads=4, num_kv_heads=2, head_dim=dims[0],
            head_dim_v=dims[1],
        ),
        dtype,
    )  # fmt: skip


OPTIONS = {
    "a low softcap": {"softcap": 2.0},
    "softcap": {"softcap": 12.0},
    "sink": {"sink": np.array([0.5, -1.0, 2.0, 0.0])},
    "alibi": {"alibi_slopes": np.array([0.5, 0.25, 0.125, 0.0])},
    "dropout": {"dropout_p": 0.3, "dropout_seed": 2**40 + 5},
    "all": {
        "softcap": 2.0,
        "sink": 0.25,
        "alibi_slopes": 0.125,
        "dropout_p": 0.5,
        "dropout_seed": 3,
    },
}


@pytest.mark.parametrize("comm", rs.COMMS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("dtype", DTYPES)
def test_options_agree_with_the_cpu(dtype, options, comm):
    layout = rs.PackedLayout([0, 70, 71, 160], [0, 72, 80, 170])
    check(
        Case(
            layout, cp_size=4, comm=comm, a2a_size=2 if comm == "a2a+p2p" else None, num_heads=4,
            num_kv_heads=2, head_dim=16, head_dim_v=24,
        ),
        dtype, **options,
    )  # fmt: skip


@pytest.mark.parametrize("comm", rs.COMMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_that_exchange_nothing_go_on_where_the_one_before_ended(dtype, comm):
    case = Case(
        rs.PackedLayout([0, 300, 301, 460], [0, 304, 306, 471]), mask=rs.Mask.causal(), cp_size=4,
        comm=comm, a2a_size=2 if comm == "a2a+p2p" else None, num_heads=4, num_kv_heads=2,
    )  # fmt: skip
    check(case, dtype, plan=in_half_steps(case.plan()))


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("scale", [1e-31, 1e-29])
def test_scales_near_zero_have_no_reciprocal(scale, dtype):
    layout = rs.PackedLayout([0, 300, 301, 460])
    check(Case(layout, cp_size=4, head_dim=64, softmax_scale=scale), dtype)


@needs_gpu
@pytest.mark.parametrize("dim", [64, 136])  # of two families
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_a_key_among_a_hundred_thousand_keeps_its_digits(dtype, dim):
    """Beside all that its row has seen before it weighs 100.5 of the smallest steps of float16.

    Rank 0 sees `many` values of -1, then 64 that make up for them, as all scores are equal; other
    keys of rank 1 are far below. Rounded to such a step, the 64 would weigh 0.5 % too much.
    """
    many, few, value = 166_935, 64, 2608.0
    k, v = np.zeros((2, 2 * many, 1, dim))
    v[:many], v[many : many + few], k[many + few :] = -1, value, -100
    queries, keys = rs.PackedLayout([0, 2]), rs.PackedLayout([0, 2 * many])
    plan = rs.plan(queries, keys, mask=rs.Mask.full(), cp_size=2, partition="contiguous")
    x = (to_device(x, dtype) for x in (np.ones((2, 1, dim)), k, v))
    out, _ = plan.attention(*x, backend="cuda")
    want = (few * value - many) / (few + many)
    assert np.abs(to_host(out) - want).max() <= float_of(dtype).roundoff


@pytest.mark.parametrize("comm", rs.COMMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [None, -0.5, 0.0])
def test_the_largest_logit_of_each_head_is_the_cpus(scale, dtype, comm):
    layout = rs.PackedLayout([0, 300, 301, 301, 460], [0, 304, 306, 311, 471])
    case = Case(
        layout, mask=rs.Mask.sliding_window(70, 0), cp_size=4, comm=comm,
        a2a_size=2 if comm == "a2a+p2p" else None, num_heads=4, num_kv_heads=2, head_dim=72,
        head_dim_v=13, softmax_scale=scale,
    )  # fmt: skip
    plan, arrays = case.plan(), rounded(case.arrays(), dtype)[:3]
    keywords = {"softmax_scale": scale, "return_max_logit": True}
    *_, want = plan.attention(*arrays, **keywords)
    *_, got = plan.attention(*(to_device(x, dtype) for x in arrays), backend="cuda", **keywords)
    assert np.abs(to_host(got) - want).max() <= 4e-6 * scale_of(want)  # as lse: a float32 product


@pytest.mark.parametrize("dim", [64, 128, 136])  # of three kernels
@pytest.mark.parametrize("cp_size", [1, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_of_negative_logits_is_negative(dtype, cp_size, dim):
    """Rows that fill up a block have scores of 0, which nobody asked for."""
    case = Case(
        rs.PackedLayout([0, 300, 301, 460]), cp_size=cp_size, num_heads=2, head_dim=dim,
        head_dim_v=dim,
    )  # fmt: skip
    arrays = case.arrays()
    q, k, v = rounded(arrays._replace(q=np.abs(arrays.q), k=-np.abs(arrays.k)), dtype)[:3]
    plan, x = case.plan(), [to_device(x, dtype) for x in (q, k, v)]
    *_, want = plan.attention(q, k, v, return_max_logit=True)
    *_, got = plan.attention(*x, backend="cuda", return_max_logit=True)
    assert (want < 0).all()
    assert np.abs(to_host(got) - want).max() <= 4e-6 * scale_of(want)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("cp_size", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_that_see_nothing_and_blocks_that_nobody_sees_hold_zeros(dtype, cp_size, mask):
    check(blind_blocks(mask, cp_size), dtype)


def test_a_head_that_sees_nothing_has_no_largest_logit():
    plan = rs.plan(rs.PackedLayout([0, 0]), cp_size=2, num_heads=3)
    x = to_device(np.zeros((0, 3, 8)))
    *_, max_logit = plan.attention(x, x, x, backend="cuda", return_max_logit=True)
    assert to_host(max_logit).tolist() == [-np.inf] * 3


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("dims", [(1, 1), (5, 8), (13, 40), (67, 129), (255, 250)])
def test_odd_head_dimensions_run_on_the_tensor_cores(dims, dtype):
    """Home buffers have columns of zeros; cells of `worst` are named after one of two families."""
    case = Case(
        rs.PackedLayout([0, 70, 71, 160], [0, 72, 80, 170]), cp_size=4, num_heads=4,
        num_kv_heads=2, head_dim=dims[0], head_dim_v=dims[1],
    )  # fmt: skip

    def run():
        return sum(cases_run[f"{family} {dtype} zigzag p2p"] for family in ("mma", "hopper"))

    before = run()
    check(case, dtype)
    assert run() == before + 1


def test_a_sink_enters_rows_that_see_nothing():
    layout = rs.PackedLayout([0, 9])
    keys = rs.PackedLayout([0, 3])
    for dtype in DTYPES:
        check(Case(layout, keys, mask=rs.Mask.sliding_window(0, 0), num_heads=2), dtype, sink=1.5)


@needs_gpu
def test_more_sequences_than_one_block_could_hold():
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 4, size=13_000).tolist()
    check(Case(rs.PackedLayout.from_lengths(lengths), cp_size=2, head_dim=8, head_dim_v=8))
