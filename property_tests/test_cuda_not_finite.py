"""On a GPU, NaN and infinities reach what sees them, and nothing else.

The truth is pairwise.py, in float64, on the values that the GPU sees; its backward starts from what
the GPU's forward returned. Where a finite score's weight would be rounded to 0, a kernel may have
NaN and not an infinity (0 * inf): infinities are put into one operand at a time, whose weights are
not that small.
"""

import numpy as np
import pytest
import ringside as rs
from assertions import assert_same_bits, assert_within, noted
from cuda_cases import DTYPES, OnGpu, blind_blocks, needs_gpu, rounded, to_device, to_host
from hypothesis import given
from hypothesis import strategies as st
from independent import seeing_rows
from mask_of_each_kind import MASKS
from pairwise import Options, backward, forward
from ringside._attention import Options as GivenOptions
from ringside.testing import Arrays, Case, Results, strategies
from rounding import limits
from unfused import unfused

pytestmark = needs_gpu

WILD = (np.nan, np.inf, -np.inf)
LAYOUT_Q = rs.PackedLayout([0, 150, 151, 151, 230], [0, 154, 156, 161, 241])
LAYOUT_K = rs.PackedLayout([0, 140, 160, 161, 240], [0, 149, 170, 171, 250])


def classes(x):
    """1 for +inf, -1 for -inf, 2 for NaN, 0 for what is finite."""
    return np.select([np.isnan(x), np.isposinf(x), np.isneginf(x)], [2, 1, -1], 0)


def poisoned(arrays, seed):
    """Some numbers, or whole rows of a head, that are not finite; of any rows, padding included.

    NaN in any operands; or any of the three in one.
    """
    rng = np.random.default_rng(seed)
    arrays = Arrays(*(x.copy() for x in arrays))
    one = rng.choice(Arrays._fields) if rng.integers(4) else None
    for _ in range(rng.integers(1, 4)):
        x = getattr(arrays, one or rng.choice(Arrays._fields))
        if not x.size:
            continue
        place = [rng.integers(n) for n in x.shape]
        x[tuple(place[: rng.integers(2, 4)])] = rng.choice(WILD) if one else np.nan
    return arrays


known_tolerances: dict[tuple[str, str, str], Results] = {}


def tolerances(case, dtype, options):
    """Of every number: the largest of its tensor's, were everything finite; 0 where that is."""
    case = case.replace(
        cp_size=1, partition="zigzag", partition_k=None, comm="p2p", a2a_size=None
    )  # nothing here depends on them
    key = (repr(case), dtype, repr(options))
    if key not in known_tolerances:
        known_tolerances[key] = measured_tolerances(case, dtype, options)
    return known_tolerances[key]


def measured_tolerances(case, dtype, options):
    with np.errstate(over="ignore", invalid="ignore"):
        finite = Arrays(*(np.nan_to_num(x, nan=0.5) for x in rounded(case.arrays(), dtype)))
        out, lse, _ = forward(case, finite, options)
        want = Results(out, lse, *backward(case, finite, options, out, lse))
        plain = None  # of those, the tensor cores know sinks
        if dtype != "float32" and not (
            options.softcap or options.dropout_p or options.alibi_slopes
        ):
            plain = unfused(case, finite, dtype, want, options.sink)
    allowed = limits(case, finite, want, dtype, plain, GivenOptions(**options._asdict()))
    return Results(*(np.where(x > 0, x.max(initial=0.0), 0.0) for x in allowed))


def assert_agree(got, want, allowed):
    for name, a, b, limit in zip(Results._fields, got, want, allowed, strict=True):
        np.testing.assert_array_equal(classes(a), classes(b), err_msg=name)
        finite = np.isfinite(b)
        limit = np.broadcast_to(limit, b.shape)
        assert_within(name, a[finite], b[finite], limit[finite])


def check(case, dtype, seed, *, arrays=None, **keywords):
    """Forward, backward and the largest logits, with NaN and infinities in the operands."""
    arrays = poisoned(rounded(case.arrays(), dtype), seed) if arrays is None else arrays
    options = Options(softmax_scale=case.scale, **keywords)
    run = OnGpu(dtype, GivenOptions(**options._asdict()), deterministic=seed % 2 == 0)
    plan, (q, k, v, dout) = case.plan(), arrays
    out, lse = run.forward(plan, q, k, v)
    got = Results(out, lse, *run.backward(plan, dout, q, k, v, out, lse))
    *_, highest = plan.attention(
        *(to_device(x, dtype) for x in (q, k, v)), backend="cuda", return_max_logit=True,
        **options._asdict(),
    )  # fmt: skip
    with np.errstate(invalid="ignore", over="ignore"):
        *of_forward, max_logit = forward(case, arrays, options)
        want = Results(*of_forward, *backward(case, arrays, options, out, lse))
    np.testing.assert_array_equal(classes(to_host(highest)), classes(max_logit))
    assert_agree(got, want, tolerances(case, dtype, options))


def a2a_size(comm):
    return 2 if comm == "a2a+p2p" else None


@pytest.mark.parametrize("comm", rs.COMMS)
@pytest.mark.parametrize("partition", rs.PARTITIONS)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_cell_has_the_nans_and_infinities_of_the_definition(dtype, mask, partition, comm):
    seed = 7 * rs.COMMS.index(comm) + 29 * rs.PARTITIONS.index(partition)
    check(
        Case(
            LAYOUT_Q, LAYOUT_K, mask=mask, cp_size=4, partition=partition, comm=comm,
            a2a_size=a2a_size(comm), num_heads=4, num_kv_heads=2, head_dim=64, head_dim_v=64,
        ),
        dtype, seed,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_rank_has_the_nans_and_infinities_of_the_definition(dtype, mask, seed):
    """Kernels work on the caller's arrays there."""
    case = Case(LAYOUT_Q, LAYOUT_K, mask=mask, num_heads=2, head_dim=64, head_dim_v=64)
    check(case, dtype, 100 + seed)


@pytest.mark.parametrize("seed", range(1, 16, 2))
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("dtype", DTYPES)
def test_short_documents_have_them(dtype, mask, seed):
    """There kernels store dq, and do not add to it: one block of keys is all that a row meets."""
    layout = rs.PackedLayout.from_lengths([100, 1, 37, 128, 64])
    check(Case(layout, mask=mask, num_heads=2, head_dim=64, head_dim_v=64), dtype, 400 + seed)


@pytest.mark.parametrize(
    "dims", [(96, 96), (128, 128), (192, 128), (192, 192), (256, 256), (40, 200), (13, 7)]
)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_head_dimension_has_them(dtype, seed, dims):
    layout = rs.PackedLayout.from_lengths([129, 1, 200], pad_to_multiple_of=16)
    check(
        Case(
            layout, cp_size=1 + seed // 2, num_heads=2, num_kv_heads=1, head_dim=dims[0],
            head_dim_v=dims[1],
        ),
        dtype, 200 + seed,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@given(
    case=noted(
        strategies.cases(
            layouts_q=strategies.layouts(lengths=strategies.lengths(min_sequences=1)),
            head_dims=st.sampled_from([8, 64, 72]),
        )
    )
)
def test_any_plan_has_the_nans_and_infinities_of_the_definition(dtype, case):
    check(case, dtype, case.seed)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("comm", rs.COMMS)
@pytest.mark.parametrize(
    "options",
    [
        {"sink": np.array([0.5, -1.0, 2.0, 0.0])},
        {"softcap": 2.0, "sink": 0.25, "alibi_slopes": 0.125, "dropout_p": 0.5, "dropout_seed": 3},
    ],
    ids=["sink", "all"],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_options_do_not_change_that(dtype, options, comm, seed):
    mask = [*MASKS.values()][seed]
    check(
        Case(
            LAYOUT_Q, LAYOUT_K, mask=mask, cp_size=4, comm=comm, a2a_size=a2a_size(comm),
            num_heads=4, num_kv_heads=2, head_dim=16, head_dim_v=24,
        ),
        dtype, 300 + seed, **options,
    )  # fmt: skip


@pytest.mark.parametrize("cp_size", [1, 4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_of_minus_infinity_weigh_nothing(dtype, cp_size):
    """Rows that see nothing else have out 0 and lse -inf; NaN in v reaches them all the same."""
    case = Case(
        LAYOUT_Q, mask=rs.Mask.sliding_window(20, 0), cp_size=cp_size, head_dim=64, head_dim_v=64
    )
    arrays = rounded(case.arrays(), dtype)
    q, k, v = np.abs(arrays.q), -np.abs(arrays.k), arrays.v.copy()
    k[30:90, 0, 3] = -np.inf
    v[70, 0, 5], v[85, 0, 6] = np.nan, np.inf
    check(case, dtype, cp_size, arrays=arrays._replace(q=q, k=k, v=v))


@pytest.mark.parametrize("cp_size", [1, 4])
@pytest.mark.parametrize("wild", WILD)
@pytest.mark.parametrize("place", [1, 64, 77, 130])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_comes_later_changes_no_bit_of_what_came_before(dtype, place, wild, cp_size):
    """All tokens from a place on; gradients of keys that no later query sees, too."""
    window = 20
    case = Case(
        LAYOUT_Q, mask=rs.Mask.sliding_window(window, 0), cp_size=cp_size, num_heads=2,
        head_dim=64, head_dim_v=64,
    )  # fmt: skip
    run = OnGpu(dtype, GivenOptions(softmax_scale=case.scale), deterministic=True)
    plan, arrays = case.plan(), rounded(case.arrays(), dtype)
    before, unseen = np.zeros((2, LAYOUT_Q.num_rows), bool)
    for begin, length in zip(LAYOUT_Q.cu_seqlens_padded[:-1], LAYOUT_Q.lengths, strict=True):
        before[begin : begin + min(place, length)] = True
        unseen[begin : begin + (length if length <= place else max(place - window, 0))] = True
    poison = np.where(before[:, None, None], 0.0, wild)
    first, second = (
        results_of(run, plan, Arrays(*(x + extra for x in arrays))) for extra in (0.0, poison)
    )
    for name, rows in [("out", before), ("dq", before), ("dk", unseen), ("dv", unseen)]:
        assert_same_bits(name, getattr(second, name)[rows], getattr(first, name)[rows])
    assert_same_bits("lse", second.lse[:, before], first.lse[:, before])


def results_of(run, plan, arrays):
    q, k, v, dout = arrays
    out, lse = run.forward(plan, q, k, v)
    return Results(out, lse, *run.backward(plan, dout, q, k, v, out, lse))


@pytest.mark.parametrize("sink", [None, 1.5])
@pytest.mark.parametrize("wild", [1e4, *WILD])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_rows_that_see_nothing_hold_reaches_nobody(dtype, mask, wild, sink):
    case = blind_blocks(mask, 2)
    seeing = seeing_rows(case.mask, case.layout_q, case.keys)
    options = GivenOptions(softmax_scale=case.scale, sink=sink)
    run = OnGpu(dtype, options, deterministic=True)
    plan, arrays = case.plan(), rounded(case.arrays(), dtype)
    loud = arrays._replace(q=arrays.q.copy(), dout=arrays.dout.copy())
    loud.q[~seeing] = loud.dout[~seeing] = wild
    for name, a, b in zip(
        Results._fields, results_of(run, plan, arrays), results_of(run, plan, loud), strict=True
    ):
        assert_same_bits(name, b, a)
