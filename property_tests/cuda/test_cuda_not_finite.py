"""NaN and infinities on the GPU reach the rows that see them, and no others: test_not_finite.py."""

import numpy as np
import pytest
import ringside as rs
from assertions import assert_same_bits, noted, valid_rows
from cuda_cases import DTYPES, NEEDS_KERNELS, OnGpu, keywords_of, rounded, to_device
from hypothesis import example, given, note
from hypothesis import strategies as st
from independent import seeing_rows
from mask_of_each_kind import MASKS
from not_finite import NOT_FINITE, behind, classes, who_sees_whom
from ringside.testing import Arrays, Case, Results, strategies
from ringside.testing.dtypes import float_of

pytestmark = NEEDS_KERNELS

BORDERS = st.sampled_from([0, 1, 63, 64, 65, 127, 128, 129, 300])
LAYOUTS = strategies.layouts(lengths=st.lists(BORDERS, max_size=3))
DIMS = st.sampled_from([1, 8, 40, 64, 72, 96, 128, 136, 192, 256])
# A weight that rounded to 0 would make NaN of an infinity, which no kernel promises not to do:
# scores are close to each other, as softmax_scale is small, and where they are infinite, v and dout
# are not.
CASES = noted(
    strategies.cases(layouts_q=LAYOUTS, layouts_k=lambda _: st.none(), head_dims=DIMS)
).map(lambda case: case.replace(softmax_scale=0.3 / np.sqrt(case.head_dim)))
OPTIONS = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {},
        optional={
            "sink": st.sampled_from([0.0, 1.5]),
            "softcap": st.sampled_from([2.0, 12.0]),
            "dropout_p": st.sampled_from([0.25, 0.9]),
        },
    ),
)


@st.composite
def poisoned(draw):
    """A case and its arrays with some numbers, or whole rows, that are not finite."""
    case = draw(CASES)
    arrays = Arrays(*(x.copy() for x in case.arrays()))
    layouts = (case.layout_q, case.keys, case.keys, case.layout_q)
    infinite = draw(st.sampled_from([("q", "k"), ("v", "dout")]))
    for _ in range(draw(st.integers(1, 4))):
        name, layout = draw(st.sampled_from([*zip(Arrays._fields, layouts, strict=True)]))
        rows, x = np.flatnonzero(valid_rows(layout)), getattr(arrays, name)
        if not len(rows):
            continue
        place = (draw(st.sampled_from(rows.tolist())), draw(st.integers(0, x.shape[1] - 1)))
        if draw(st.booleans()):
            place += (draw(st.integers(0, x.shape[2] - 1)),)
        value = draw(NOT_FINITE) if name in infinite else np.nan
        note(f"{name}{list(place)} = {value}")
        x[place] = value
    return case, arrays


def run_on_gpu(case, arrays, dtype, options=None, deterministic=True):
    """Results of both passes, the second from what the first one returned."""
    run = OnGpu(dtype, options or rs.Options(softmax_scale=case.scale), deterministic)
    plan = case.plan()
    q, k, v, dout = rounded(arrays, dtype)
    out, lse = run.forward(plan, q, k, v)
    return Results(out, lse, *run.backward(plan, dout, q, k, v, out, lse))


def allowed(wanted, dtype):
    """Of finite results: as in the C++ conformance test, which says why."""
    largest = max(1.0, np.abs(wanted).max(initial=0))
    roundoff = 0 if dtype == "float32" else float_of(dtype).roundoff
    return largest * (1.6e-5 + 3 * roundoff)


def assert_same_classes(name, got, wanted, dtype):
    """The same NaNs, the same infinities, and the rest close."""
    np.testing.assert_array_equal(classes(got), classes(wanted), err_msg=name)
    finite = np.isfinite(wanted)
    off = np.abs(got[finite] - wanted[finite]).max(initial=0)
    assert off <= allowed(wanted[finite], dtype), f"{name} is off by {off}"


@pytest.mark.parametrize("dtype", DTYPES)
@given(poisoned_case=poisoned(), keywords=OPTIONS, deterministic=st.booleans())
def test_they_are_those_of_the_definition(dtype, poisoned_case, keywords, deterministic):
    case, arrays = poisoned_case
    options = rs.Options(softmax_scale=case.scale, **keywords)
    got = run_on_gpu(case, arrays, dtype, options, deterministic)
    arrays = rounded(arrays, dtype)
    layouts = (case.layout_q, case.layout_k)
    saved = (*arrays[:3], got.out, got.lse)
    keywords = {"mask": case.mask, **keywords_of(options)}
    out, lse = rs.attention(*arrays[:3], *layouts, **keywords)
    wanted = Results(out, lse, *rs.attention_backward(arrays.dout, *saved, *layouts, **keywords))
    for name, a, b in zip(Results._fields, got, wanted, strict=True):
        if b is not None:
            of_float32 = name in ("lse", "dsink")
            assert_same_classes(name, a, b, "float32" if of_float32 else dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(poisoned_case=poisoned())
def test_the_largest_logit_is_nan_where_a_score_is(dtype, poisoned_case):
    case, arrays = poisoned_case
    q, k, v = rounded(arrays, dtype)[:3]
    keywords = {"softmax_scale": case.scale, "return_max_logit": True}
    layouts = (case.layout_q, case.layout_k)
    *_, wanted = rs.attention(q, k, v, *layouts, mask=case.mask, **keywords)
    x = [to_device(a, dtype) for a in (q, k, v)]
    *_, got = case.plan().attention(*x, backend="cuda", **keywords)
    assert_same_classes("max_logit", got.double().cpu().numpy(), wanted, "float32")


# Documents of many blocks, where a block of keys is seen by some rows of a block of queries.
LONG = Case(
    rs.PackedLayout([0, 300, 301, 460], [0, 304, 306, 471]),
    cp_size=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    head_dim_v=64,
)


@pytest.mark.parametrize("dtype", DTYPES)
@given(case=CASES, share=st.floats(0, 1), value=NOT_FINITE)
@example(case=LONG, share=0.4, value=np.nan)
@example(case=LONG.replace(cp_size=1, head_dim=128, head_dim_v=128), share=0.4, value=np.inf)
@example(case=LONG.replace(head_dim=192, head_dim_v=128), share=0.7, value=-np.inf)
@example(case=LONG.replace(head_dim=192, head_dim_v=192), share=0.4, value=np.inf)
@example(case=LONG.replace(head_dim=256, mask=rs.Mask.chunked(70)), share=0.5, value=np.nan)
def test_whoever_does_not_see_the_poison_keeps_his_bits(dtype, case, share, value):
    """Causality as people test it: everything behind a position is poisoned, q and dout too."""
    sees = who_sees_whom(case)
    late_q, late_k = behind(case.layout_q, share), behind(case.keys, share)
    clean = case.arrays()
    dirty = Arrays(*(x.copy() for x in clean))
    for x, late in zip(dirty, (late_q, late_k, late_k, late_q), strict=True):
        x[late] = value
    rows = ~late_q & ~(sees & late_k).any(axis=1)
    keys = ~late_k & ~(sees & ~rows[:, None]).any(axis=0)
    a, b = run_on_gpu(case, clean, dtype), run_on_gpu(case, dirty, dtype)
    for name, chosen in (("out", rows), ("dq", rows), ("dk", keys), ("dv", keys)):
        assert_same_bits(name, getattr(b, name)[chosen], getattr(a, name)[chosen])
    assert_same_bits("lse", b.lse[:, rows], a.lse[:, rows])


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("cp_size", [1, 4])
@pytest.mark.parametrize("dims", [64, 128, 192])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_was_saved_of_a_row_that_sees_nothing_is_not_read(
    dtype, mask, dims, cp_size, deterministic
):
    """Its out, lse, q and dout are anything, and dsink is not touched either."""
    layouts = [rs.PackedLayout.from_lengths(x) for x in ([300, 20, 70], [20, 300, 0])]
    case = Case(*layouts, mask=mask, cp_size=cp_size, num_heads=2, head_dim=dims, head_dim_v=dims)
    blind = ~seeing_rows(mask, *layouts)
    assert blind.any()
    run = OnGpu(dtype, rs.Options(softmax_scale=case.scale, sink=0.5), deterministic)
    plan, (q, k, v, dout) = case.plan(), rounded(case.arrays(), dtype)
    out, lse = run.forward(plan, q, k, v)
    wanted = run.backward(plan, dout, q, k, v, out, lse)
    for value in (np.nan, np.inf, -np.inf):
        for x in (q, dout, out):
            x[blind] = value
        lse[:, blind] = value
        got = run.backward(plan, dout, q, k, v, out, lse)
        for name, a, b in zip(("dq", "dk", "dv", "dsink"), got, wanted, strict=True):
            assert np.isfinite(a).all(), name
            if deterministic or name != "dq":
                assert_same_bits(name, a, b)
            else:  # float32 sums in another order: where they end between two numbers, either
                assert np.abs(a - b).max() <= allowed(b, dtype), name
