"""Reports say where a result is wrong, why, and how to repeat it."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_by_rank import Ranks
from ringside.testing import (
    Case,
    Disagreement,
    check_attention,
    check_context_parallel,
    strategies,
)

CASE = Case(rs.PackedLayout([0, 3, 5], [0, 4, 7]), num_heads=2, cp_size=2)


def changed(**how):
    """ringside.attention with other keywords than it is asked for."""

    def wrong(q, k, v, **keywords):
        return rs.attention(q, k, v, **{**keywords, **how})

    return wrong


@pytest.mark.parametrize("name", rs.PARTITIONS)
def test_a_report_names_rank_and_step(name):
    case = Case(rs.PackedLayout([0, 12]), cp_size=3, partition=name)

    class Late(Ranks):
        def __call__(self, qs, ks, vs, *, plan, **options):
            mask = rs.Mask.sliding_window(-1, 1)  # sees one key too many
            wrong = rs.plan(plan.layout_q, mask=mask, cp_size=3, partition=name)
            return super().__call__(qs, ks, vs, plan=wrong, **options)

    with pytest.raises(Disagreement) as failure:
        check_context_parallel(Late(), case)
    finding, plan = failure.value.finding, case.plan()
    assert (finding.tensor, finding.document, finding.position) == ("out", 0, 0)
    assert finding.reads[0].startswith("read key 1 (weight 0.")
    assert 0 in plan.row_indices(finding.rank)
    held = plan.steps(finding.rank)[finding.step].kv
    assert any(1 in range(s.pos, s.pos + s.len * s.stride, s.stride) for s in held)


def begins(lines, beginnings):
    return len(lines) == len(beginnings) and all(map(str.startswith, lines, beginnings))


def test_a_report_says_which_keys_a_row_read():
    with pytest.raises(Disagreement) as failure:
        check_attention(changed(mask=rs.Mask.full()), CASE)
    reads = failure.value.finding.reads
    assert begins(reads, ["read key 1 (weight 0.", "read key 2 (weight 0."])
    assert reads[0].endswith(", should be 0)")
    with pytest.raises(Disagreement) as failure:
        check_attention(changed(mask=rs.Mask.sliding_window(0, 0)), CASE)
    assert failure.value.finding.position == 1
    assert begins(failure.value.finding.reads, ["did not read key 0 (weight 0, should be 0."])


def as_one_document(layout):
    """An implementation to which the pack is a single document without padding."""

    def unpacked(q, k, v, *, layout_q, layout_k, mask, softmax_scale):
        return rs.attention(q, k, v, layout, mask=mask)[0]

    return unpacked


def test_a_report_names_padding_that_was_read():
    with pytest.raises(Disagreement) as failure:
        check_attention(as_one_document(rs.PackedLayout([0, 7])), CASE.replace(mask=rs.Mask.full()))
    assert (failure.value.finding.document, failure.value.finding.position) == (0, 0)
    assert np.isnan(failure.value.finding.got)
    assert "read padding at position 3 of document 0 (we" in " ".join(failure.value.finding.reads)


def test_a_report_names_other_documents_that_were_read():
    case = CASE.replace(layout_q=rs.PackedLayout([0, 3, 7]))
    with pytest.raises(Disagreement, match=r"row 0 of document 1, head 0") as failure:
        check_attention(as_one_document(rs.PackedLayout([0, 7])), case)
    expected = [f"read key {i} of document 0 (weight 0." for i in range(3)]
    assert begins(failure.value.finding.reads, expected)


@settings(max_examples=15)
@given(
    strategies.cases(
        layouts_q=st.just(rs.PackedLayout.from_lengths([30, 41])),
        layouts_k=lambda _: st.none(),
        masks=st.just(rs.Mask.causal()),
        softmax_scales=st.none(),
    ),
    st.integers(0, 29),
)
def test_tracing_finds_the_one_key_among_many(case, key):
    """However narrow head_dim_v is."""

    def forgetful(q, k, v, *, layout_q, layout_k, mask, softmax_scale):
        out, _ = rs.attention(q, k, v, layout_q, layout_k, mask=mask)
        weights = np.exp(case.scale * k[:30, 0] @ q[29, 0])
        weights[key] = 0
        out[29, 0] = weights @ v[:30, 0] / weights.sum()
        return out

    with pytest.raises(Disagreement) as failure:
        check_attention(forgetful, case)
    assert begins(failure.value.finding.reads, [f"did not read key {key} (weight 0, should be "])


def test_a_wrong_gradient_is_traced_to_the_queries():
    def leaky(dout, q, k, v, out, lse, *, layout_q, layout_k, mask, softmax_scale):
        full = rs.attention(q, k, v, layout_q, mask=rs.Mask.full())
        wrong = rs.attention_backward(dout, q, k, v, *full, layout_q, mask=rs.Mask.full())
        right = rs.attention_backward(dout, q, k, v, out, lse, layout_q, mask=mask)
        return right[0], right[1], wrong[2]

    with pytest.raises(Disagreement, match="dv is wrong at row 0 of document 0") as failure:
        check_attention(rs.attention, CASE, backward=leaky)
    assert "query 1 (weight" in " ".join(failure.value.finding.reads)


def test_the_script_of_a_report_repeats_it():
    from ringside.testing.faults import W4

    case = Case(rs.PackedLayout([0, 1], [0, 4]), cp_size=2)
    with pytest.raises(Disagreement) as failure:
        check_context_parallel(W4, case)
    with pytest.raises(Disagreement) as again:
        exec(failure.value.script, {})
    assert str(again.value) == str(failure.value)
