"""Gradients against finite differences and against laws that need no second implementation.

dout is always random: with dout = 1 many wrong gradients look right (mindone #1438).
"""

import numpy as np
from assertions import assert_close, noted, scale_of, valid_rows
from each_way import both_ways, each_of
from hypothesis import given
from hypothesis import strategies as st
from independent import dense_mask, seeing_rows, split
from ringside.testing import Arrays, strategies

CASES = noted(strategies.cases())
# Step H, fourth-order differences: the formula is off by H^4 / 30 of the fifth derivative, 3e-14 of
# scale^5, and each loss is rounded to 1e-16 of its size, over H. 1e-8 leaves room for both.
H, DIFFERENCES = 1e-3, 1e-8
GENTLE = noted(
    strategies.cases(
        layouts_q=strategies.layouts(lengths=strategies.lengths(max_length=10)),
        softmax_scales=st.sampled_from([None, 0.5, -0.5]),
    )
)


def loss(run, case, arrays):
    """sum(dout * out) over the tokens."""
    out = run(case, arrays).out
    tokens = valid_rows(case.layout_q)
    return float((arrays.dout[tokens] * out[tokens]).sum())


@given(case=GENTLE)
@each_of("name", ["q", "k", "v"])
@both_ways
def test_gradients_are_what_finite_differences_say(run, name, case):
    arrays = case.arrays()
    x = getattr(arrays, name)
    direction = np.random.default_rng(case.seed + 1).normal(size=x.shape)
    gradient = getattr(run(case, arrays), "d" + name)

    def moved(step):
        return loss(run, case, arrays._replace(**{name: x + step * direction}))

    numeric = (8 * (moved(H) - moved(-H)) - (moved(2 * H) - moved(-2 * H))) / (12 * H)
    analytic = float((gradient * direction).sum())
    size = float(np.abs(gradient * direction).sum())
    tokens = valid_rows(case.layout_q)
    operands = [size, np.abs(arrays.dout[tokens]).sum() * scale_of(arrays.v)]
    assert_close(f"<d{name}, u>", analytic, numeric, operands=operands, tolerance=DIFFERENCES)


def by_head_of_kv(x, case):
    """Sums [rows, num_heads, dim] over the query heads of each kv head."""
    group = case.num_heads // case.num_kv_heads
    return x.reshape(len(x), case.num_kv_heads, group, x.shape[-1]).sum(axis=2)


def largest_ds(case, arrays):
    return case.scale * case.head_dim_v * scale_of(arrays.dout) * scale_of(arrays.v)


@given(case=CASES)
@both_ways
def test_q_and_k_feel_the_same_scores(run, case):
    """s = scale * q.k, so sum(dq * q) == sum(dk * k) over each document and kv head."""
    arrays = case.arrays()
    got = run(case, arrays)
    operands = [largest_ds(case, arrays) * scale_of(arrays.q) * scale_of(arrays.k) * case.head_dim]
    of_q = split(by_head_of_kv(got.dq * arrays.q, case), case.layout_q)
    of_k = split(got.dk * arrays.k, case.keys)
    for s, (a, b) in enumerate(zip(of_q, of_k, strict=True)):
        size = np.abs(a).sum() + np.abs(b).sum()
        assert_close(
            f"sum(dq * q) of document {s}",
            a.sum(axis=(0, 2)),
            b.sum(axis=(0, 2)),
            operands=[*operands, size],
        )


@given(case=CASES)
@both_ways
def test_moving_all_keys_of_a_document_alike_changes_nothing(run, case):
    """softmax does not notice a constant added to a row of scores: dk sums to zero."""
    arrays = case.arrays()
    got = run(case, arrays)
    operands = [largest_ds(case, arrays) * scale_of(arrays.q) * case.num_heads]
    for s, dk in enumerate(split(got.dk, case.keys)):
        total = dk.sum(axis=0)
        assert_close(
            f"sum(dk) of document {s}", total, np.zeros_like(total), operands=[*operands, dk.size]
        )


@given(case=CASES)
@both_ways
def test_a_value_added_everywhere_arrives_in_every_row_that_sees_something(run, case):
    """The weights of a row sum to one: dv sums to the dout of rows that see something."""
    arrays = case.arrays()
    got = run(case, arrays)
    seeing = seeing_rows(case.mask, case.layout_q, case.keys)
    seen_dout = np.where(seeing[:, None, None], arrays.dout, 0.0)
    wanted = split(by_head_of_kv(seen_dout, case), case.layout_q)
    for s, (dv, dout) in enumerate(zip(split(got.dv, case.keys), wanted, strict=True)):
        assert_close(
            f"sum(dv) of document {s}", dv.sum(axis=0), dout.sum(axis=0), operands=[len(dout)]
        )


@given(case=CASES, factor=st.sampled_from([2.0, -4.0, 0.5]))
@both_ways
def test_gradients_are_linear_in_dout(run, case, factor):
    """A power of two only moves the exponent: equal bit for bit."""
    arrays = case.arrays()
    once = run(case, arrays)
    scaled = run(case, arrays._replace(dout=factor * arrays.dout))
    for name in ("dq", "dk", "dv"):
        np.testing.assert_array_equal(
            getattr(scaled, name), factor * getattr(once, name), err_msg=name
        )


@given(case=CASES)
@both_ways
def test_kv_gradients_are_sums_over_the_query_heads_of_a_group(run, case):
    """Grouped heads are kv heads repeated: repeat them and sum their gradients by hand."""
    arrays = case.arrays()
    group = case.num_heads // case.num_kv_heads
    repeated = arrays._replace(k=arrays.k.repeat(group, axis=1), v=arrays.v.repeat(group, axis=1))
    single = run(case.replace(num_kv_heads=case.num_heads), Arrays(*repeated))
    got = run(case, arrays)
    operands = [largest_ds(case, arrays) * scale_of(arrays.q, arrays.k), arrays.dout]
    for name, wanted in (
        ("dk", by_head_of_kv(single.dk, case)),
        ("dv", by_head_of_kv(single.dv, case)),
        ("out", single.out),
        ("dq", single.dq),
    ):
        assert_close(name, getattr(got, name), wanted, operands=operands)


def attention_by_hand(case, arrays):
    """Forward and backward in four lines of NumPy a head, from the formulas."""
    q, k, v, dout = arrays
    results = [np.zeros_like(x) for x in (dout, q, k, v)]
    results = [np.nan_to_num(x) for x in results]
    group = case.num_heads // case.num_kv_heads
    for s in range(case.layout_q.num_sequences):
        begin_q, begin_k = (int(y.cu_seqlens_padded[s]) for y in (case.layout_q, case.keys))
        n_q, n_k = int(case.layout_q.lengths[s]), int(case.keys.lengths[s])
        seen = dense_mask(case.mask, n_q, n_k)
        rows, keys = slice(begin_q, begin_q + n_q), slice(begin_k, begin_k + n_k)
        for h in range(case.num_heads):
            g = h // group
            scores = case.scale * q[rows, h] @ k[keys, g].T
            top = np.where(seen, scores, -np.inf).max(axis=1, initial=-1e300)
            weights = np.where(seen, np.exp(np.minimum(scores - top[:, None], 0)), 0)
            p = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
            out = p @ v[keys, g]
            dp = dout[rows, h] @ v[keys, g].T
            ds = case.scale * p * (dp - (dout[rows, h] * out).sum(axis=1, keepdims=True))
            results[0][rows, h] = out
            results[1][rows, h] = ds @ k[keys, g]
            results[2][keys, g] += ds.T @ q[rows, h]
            results[3][keys, g] += p.T @ dout[rows, h]
    return results


@given(case=CASES)
@both_ways
def test_results_are_those_of_the_textbook(run, case):
    arrays = case.arrays()
    got = run(case, arrays)
    out, dq, dk, dv = attention_by_hand(case, arrays)
    ds = largest_ds(case, arrays)
    assert_close("out", got.out, out, operands=[arrays.v], layout=case.layout_q)
    assert_close("dq", got.dq, dq, operands=[ds * scale_of(arrays.k)], layout=case.layout_q)
    assert_close("dk", got.dk, dk, operands=[ds * scale_of(arrays.q)], layout=case.keys)
    assert_close("dv", got.dv, dv, operands=[arrays.dout], layout=case.keys)
