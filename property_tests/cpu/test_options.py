"""softcap, sinks, ALiBi, dropout and the largest logit do not depend on who computes what."""

import numpy as np
import pytest
import ringside as rs
from assertions import assert_close, noted, scale_of
from hypothesis import given
from hypothesis import strategies as st
from independent import dense_mask, split
from ringside.testing import strategies

CASES = noted(strategies.cases())
NUMBERS = st.sampled_from([0.0, 0.5, -1.0, 3.0])


@st.composite
def options(draw, num_heads):
    """Any combination; per head, or one number for all."""
    per_head = st.one_of(NUMBERS, st.lists(NUMBERS, min_size=num_heads, max_size=num_heads))
    return {
        "softcap": draw(st.sampled_from([0.0, 1.5, 20.0])),
        "sink": draw(st.one_of(st.none(), per_head)),
        "alibi_slopes": draw(st.one_of(st.none(), per_head)),
        "dropout_p": draw(st.sampled_from([0.0, 0.25])),
        "dropout_seed": draw(st.integers(0, 2**64 - 1)),
    }


def operands_of(case, arrays):
    ds = case.scale * case.head_dim_v * scale_of(arrays.dout) * scale_of(arrays.v)
    return [16 * ds * scale_of(arrays.q, arrays.k), 3.0 * 64]  # 1 / (1 - p), and ALiBi's distances


@given(CASES, st.data())
def test_any_plan_with_any_options_agrees_with_the_definition(case, data):
    arrays = case.arrays()
    q, k, v, dout = arrays
    given_options = data.draw(options(case.num_heads))
    settings = {"softmax_scale": case.softmax_scale, **given_options}
    layouts, plan = (case.layout_q, case.layout_k), case.plan()
    wanted = rs.attention(q, k, v, *layouts, mask=case.mask, return_max_logit=True, **settings)
    got = plan.attention(q, k, v, return_max_logit=True, **settings)
    backward = rs.attention_backward(
        dout, q, k, v, *wanted[:2], *layouts, mask=case.mask, **settings
    )
    ours = plan.attention_backward(dout, q, k, v, *got[:2], **settings)
    assert len(ours) == len(backward) == (3 if given_options["sink"] is None else 4)
    names = ("out", "lse", "max_logit", "dq", "dk", "dv", "dsink")
    for name, a, b in zip(names, (*got, *ours), (*wanted, *backward), strict=False):
        assert_close(name, a, b, operands=operands_of(case, arrays))


@given(CASES, st.sampled_from([0.0, 2.0, -30.0]))
def test_a_sink_is_one_more_key_without_a_value(case, sink):
    """FlashAttention's learnable sink: it joins the sum once, whatever the number of steps."""
    q, k, v, _ = case.arrays()
    settings = {"softmax_scale": case.softmax_scale}
    out, lse = case.plan().attention(q, k, v, **settings)
    with_sink, lse_with_sink = case.plan().attention(q, k, v, sink=sink, **settings)
    valid = np.concatenate([np.zeros(0, bool), *(np.arange(p) < n for n, p in lengths_of(case))])
    wanted_lse = np.where(valid, np.logaddexp(lse, sink), -np.inf)
    assert_close("lse", lse_with_sink, wanted_lse, operands=[scale_of(lse)])
    with np.errstate(invalid="ignore"):
        kept = np.where(lse == -np.inf, 0.0, np.exp(lse - wanted_lse))
    assert_close("out", with_sink, out * kept.T[:, :, None], operands=[v, scale_of(lse)])


def lengths_of(case):
    return zip(case.layout_q.lengths, case.layout_q.padded_lengths, strict=True)


@given(CASES)
def test_the_largest_logit_is_the_largest_visible_score(case):
    q, k, v, _ = case.arrays()
    _, _, got = case.plan().attention(
        q, k, v, softmax_scale=case.softmax_scale, return_max_logit=True
    )
    group = case.num_heads // case.num_kv_heads
    wanted = np.full(case.num_heads, -np.inf)
    for rows, keys in zip(split(q, case.layout_q), split(k, case.keys), strict=True):
        scores = case.scale * np.einsum("qhd,khd->hqk", rows, keys.repeat(group, axis=1))
        seen = dense_mask(case.mask, len(rows), len(keys))
        largest = np.where(seen, scores, -np.inf).max(axis=(1, 2), initial=-np.inf)
        wanted = np.maximum(wanted, largest)
    score = case.scale * case.head_dim * scale_of(q) * scale_of(k)
    assert_close("max_logit", got, wanted, operands=[score])


@pytest.mark.parametrize("comm", ["p2p", "all_gather", "a2a"])
def test_dropout_drops_the_same_weights_on_any_number_of_ranks(comm):
    """Values one-hot in the key: an output row lists the weights of the keys it met."""
    layout, tokens = rs.PackedLayout([0, 12]), 12
    q = k = np.zeros((tokens, 2, 1))
    v = np.eye(tokens)[:, None, :].repeat(2, axis=1)
    dropped = []
    for cp_size in (1, 2, 3, 5):
        plan = rs.plan(layout, mask=rs.Mask.full(), cp_size=cp_size, comm=comm, num_heads=2)
        out, _ = plan.attention(q, k, v, dropout_p=0.5, dropout_seed=3)
        dropped.append(out == 0)
    assert 0.3 < dropped[0].mean() < 0.7
    for other in dropped[1:]:
        np.testing.assert_array_equal(other, dropped[0])
