"""NaN and infinities reach what sees them, and nothing else; definition, plan and NumPy agree."""

import numpy as np
import pytest
import ringside as rs
from assertions import assert_close, assert_same_bits, noted, scale_of, valid_rows
from each_way import RUNS, both_ways
from hypothesis import assume, example, given, note
from hypothesis import strategies as st
from not_finite import NOT_FINITE, behind, classes, who_sees_whom
from pairwise import pairwise
from ringside.testing import Arrays, Case, Results, strategies

BOTH = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())


@st.composite
def options(draw, num_heads):
    """Any combination; what may differ from head to head does."""

    def per_head(numbers):
        each = st.lists(numbers, min_size=num_heads, max_size=num_heads, unique=True).map(tuple)
        return st.one_of(st.none(), numbers, each)

    given_options = {
        "softcap": draw(st.sampled_from([0.0, 1.5, 20.0])),
        "sink": draw(per_head(st.integers(-3, 12).map(float))),
        "alibi_slopes": draw(per_head(st.integers(-4, 12).map(lambda n: n / 8))),
        "dropout_p": draw(st.sampled_from([0.0, 0.0, 0.25, 0.9])),
        "dropout_seed": draw(st.integers(0, 2**64 - 1)),
    }
    return {name: x for name, x in given_options.items() if x is not None}


CASES = noted(strategies.cases(options=options))


@st.composite
def poisoned(draw, cases=CASES):
    """A case and its arrays with some numbers, or whole rows, that are not finite."""
    case = draw(cases)
    arrays = Arrays(*(x.copy() for x in case.arrays()))
    layouts = (case.layout_q, case.keys, case.keys, case.layout_q)
    for _ in range(draw(st.integers(1, 5))):
        name, layout = draw(st.sampled_from([*zip(Arrays._fields, layouts, strict=True)]))
        rows, x = np.flatnonzero(valid_rows(layout)), getattr(arrays, name)
        if not len(rows):
            continue
        place = (draw(st.sampled_from(rows.tolist())), draw(st.integers(0, x.shape[1] - 1)))
        if draw(st.booleans()):
            place += (draw(st.integers(0, x.shape[2] - 1)),)
        value = draw(NOT_FINITE)
        note(f"{name}{list(place)} = {value}")
        x[place] = value
    return case, arrays


def assert_agree(case, arrays, got, wanted):
    """The same NaNs, the same infinities, and the rest close."""
    ds = case.scale * case.head_dim_v * scale_of(arrays.dout) * scale_of(arrays.v)
    operands = [16 * ds * scale_of(arrays.q, arrays.k), 3.0 * 64]  # as in test_options
    for name, a, b in zip(Results._fields, got, wanted, strict=True):
        np.testing.assert_array_equal(classes(a), classes(b), err_msg=name)
        finite = np.isfinite(b)
        assert_close(name, a[finite], b[finite], operands=operands)


@given(poisoned())
def test_the_definition_is_the_sum_over_the_pairs_that_are_seen(poisoned_case):
    case, arrays = poisoned_case
    assert_agree(case, arrays, case.by_definition(arrays), pairwise(case, arrays))


@given(poisoned())
def test_any_plan_has_the_nans_and_infinities_of_the_definition(poisoned_case):
    case, arrays = poisoned_case
    case = case.replace(softmax_scale=case.scale)
    assert_agree(case, arrays, case.by_plan(arrays), case.by_definition(arrays))


@given(poisoned())
def test_the_largest_logit_is_nan_where_a_score_is(poisoned_case):
    case, arrays = poisoned_case
    options, layouts = case.options, (case.layout_q, case.layout_k)
    wanted = rs.attention(*arrays[:3], *layouts, mask=case.mask, return_max_logit=True, **options)
    got = case.plan().attention(*arrays[:3], return_max_logit=True, **options)
    np.testing.assert_array_equal(classes(got[2]), classes(wanted[2]))
    nothing = np.isnan(wanted[1]).any(axis=1)
    np.testing.assert_array_equal(np.isnan(wanted[2]), nothing)


# Documents of many blocks, where a block of keys is seen by some rows of a block of queries.
LONG = Case(
    rs.PackedLayout([0, 300, 301, 460], [0, 304, 306, 471]),
    cp_size=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim_v=3,
)


@given(case=CASES, share=st.floats(0, 1), value=NOT_FINITE)
@example(case=LONG, share=0.4, value=np.nan)
@example(case=LONG.replace(comm="a2a", head_dim_v=1, sink=0.5), share=0.7, value=np.inf)
@example(case=LONG.replace(partition="striped", mask=rs.Mask.chunked(70)), share=0.5, value=-np.inf)
@both_ways
def test_whoever_does_not_see_the_poison_keeps_his_bits(run, case, share, value):
    """Causality as people test it: everything behind a position is poisoned, q and dout too."""
    sees, late_q, late_k = (
        who_sees_whom(case),
        behind(case.layout_q, share),
        behind(case.keys, share),
    )
    clean = case.arrays()
    dirty = Arrays(*(x.copy() for x in clean))
    for x, late in zip(dirty, (late_q, late_k, late_k, late_q), strict=True):
        x[late] = value
    rows = ~late_q & ~(sees & late_k).any(axis=1)
    keys = ~late_k & ~(sees & ~rows[:, None]).any(axis=0)
    a, b = run(case, clean), run(case, dirty)
    for name, chosen in (("out", rows), ("dq", rows), ("dk", keys), ("dv", keys)):
        assert_same_bits(name, getattr(b, name)[chosen], getattr(a, name)[chosen])
    assert_same_bits("lse", b.lse[:, rows], a.lse[:, rows])


@given(case=CASES, value=NOT_FINITE)
def test_what_was_saved_of_a_row_that_sees_nothing_is_not_read(case, value):
    """Its out, lse, q and dout are anything; dsink is not touched either."""
    blind = ~who_sees_whom(case).any(axis=1)
    assume(blind.any())
    case = case.replace(sink=0.5)
    q, k, v, dout = case.arrays()
    layouts, plan = (case.layout_q, case.layout_k), case.plan()
    out, lse = plan.attention(q, k, v, **case.options)
    wanted = plan.attention_backward(dout, q, k, v, out, lse, **case.options)
    for x in (q, dout, out):
        x[blind] = value
    lse[:, blind] = value
    saved = (dout, q, k, v, out, lse)
    got = plan.attention_backward(*saved, **case.options)
    truth = rs.attention_backward(*saved, *layouts, mask=case.mask, **case.options)
    for a, b, c in zip(got, wanted, truth, strict=True):
        assert_same_bits("a gradient", a, b)
        assert np.isfinite(c).all()


FAR = 3000.0  # exp of minus that is 0 in float64


def of_scores(scores, v, **settings):
    """(out, lse) of one row whose scores are given, by the definition and on rings of any size."""
    layouts = (rs.PackedLayout([0, 1]), rs.PackedLayout([0, len(scores)]))
    q, k = np.ones((1, 1, 1)), np.array(scores, float).reshape(-1, 1, 1)
    v = np.array(v, float).reshape(-1, 1, 1)
    settings = {"softmax_scale": 1.0, **settings}
    plans = [
        rs.plan(*layouts, mask=rs.Mask.full(), cp_size=n, comm=comm, partition="striped")
        for n in (1, 2, 3)
        for comm in ("p2p", "all_gather")
    ]
    results = [plan.attention(q, k, v, **settings) for plan in plans]
    results.append(rs.attention(q, k, v, *layouts, mask=rs.Mask.full(), **settings))
    return [(float(out.item()), float(lse.item())) for out, lse in results]


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("scores", "v", "out", "lse"),
    [
        ([0, -FAR, 0], [1, INF, 3], INF, np.log(2)),  # a weight that only rounds to 0 is positive
        ([-FAR, 0, FAR], [-INF, 1, 1], -INF, FAR),  # also where a later block takes over
        ([0, -INF, 0], [1, INF, 3], NAN, np.log(2)),  # a score of -inf has weight 0: 0 * inf
        ([0, -INF, 0], [1, 7, 3], 2, np.log(2)),
        ([-INF, -INF, -INF], [1, 2, 3], 0, -INF),
        ([-INF, -INF, -INF], [1, NAN, 3], NAN, -INF),
        ([0, INF, 0], [1, 2, 3], NAN, INF),  # inf - inf in the weight, not in lse
        ([INF, 1, INF], [1, 2, 3], NAN, INF),
        ([INF, NAN, 0], [1, 2, 3], NAN, NAN),
        ([NAN, 0, -INF], [1, 2, 3], NAN, NAN),
        ([0, 0, 0], [INF, 1, -INF], NAN, np.log(3)),
    ],
)
def test_one_row_by_hand_on_rings_of_any_size(scores, v, out, lse):
    for got in of_scores(scores, v):
        np.testing.assert_allclose(got, (out, lse), rtol=1e-14)


@BOTH
def test_where_lse_is_nan_so_is_every_weight_of_the_row(run):
    """The first row's scores: -inf with key 0, NaN with key 1."""
    case = Case(rs.PackedLayout([0, 2]), mask=rs.Mask.full(), cp_size=2, head_dim=2, head_dim_v=1)
    arrays = Arrays(*(x.copy() for x in case.arrays()))
    arrays.q[0], arrays.k[0], arrays.k[1] = -INF, 1, [[1, -1]]
    got = run(case, arrays)
    assert np.isnan(got.lse[:, 0]).all() and np.isnan(got.out[0]).all()
    assert np.isnan(got.dv).all() and np.isnan(got.dk).all()


def test_a_dropped_pair_is_seen_with_weight_zero():
    dropped = [
        x == 0
        for x, _ in (of_scores([0], [1], dropout_p=0.5, dropout_seed=s)[-1] for s in range(8))
    ]
    assert 0 < sum(dropped) < 8
    for seed, is_dropped in enumerate(dropped):
        for out, lse in of_scores([0], [INF], dropout_p=0.5, dropout_seed=seed):
            np.testing.assert_equal((out, lse), (NAN if is_dropped else INF, 0.0))


@pytest.mark.parametrize("more", [{}, {"sink": 0.5}])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_weights_of_zero_leave_zeros_of_finite_values_alone(more, value):
    """All scores are -inf: weights are 0, and 0 * inf is NaN, of each dimension by itself."""
    q, k, v = np.ones((2, 1, 2)), np.full((2, 1, 2), -np.inf), np.ones((2, 1, 3))
    v[0, 0, 1] = value
    layout = rs.PackedLayout([0, 2])
    found = rs.attention(q, k, v, layout, **more)
    for out, lse in (found, rs.plan(layout, cp_size=2).attention(q, k, v, **more)):
        np.testing.assert_array_equal(out, [[[0, np.nan, 0]]] * 2)
        np.testing.assert_array_equal(lse, [[more.get("sink", -np.inf)] * 2])
