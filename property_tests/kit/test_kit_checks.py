"""The checks take what agrees, refuse what does not, and say where, why and how to repeat it."""

import re

import numpy as np
import pytest
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside.testing import (
    Case,
    Demands,
    Disagreement,
    check_attention,
    check_context_parallel,
    strategies,
)

CASE = Case(rs.PackedLayout([0, 3, 5], [0, 4, 7]), num_heads=2, cp_size=2)
EVERYTHING = strategies.cases(options=strategies.options, dtypes=st.just("float64"))


class Ranks:
    """A context-parallel attention: ringside's own, rank by rank."""

    name = "Ranks"

    def __call__(self, qs, ks, vs, *, plan, **options):
        whole = plan.unshard(qs), plan.unshard(ks, side="k"), plan.unshard(vs, side="k")
        out, lse = plan.attention(*whole, **options)
        self.whole = (*whole, out, lse)
        ranks = range(plan.cp_size)
        return [(plan.shard(out, r), plan.shard(lse.T, r).T) for r in ranks]

    def backward(self, douts, qs, ks, vs, outs, lses, *, plan, **options):
        operands = [plan.unshard(douts), plan.unshard(qs), plan.unshard(ks, side="k")]
        operands += [plan.unshard(vs, side="k"), plan.unshard(outs)]
        lse = plan.unshard([x.T for x in lses]).T
        dq, dk, dv, *dsink = plan.attention_backward(*operands, lse, **options)
        share = [x / plan.cp_size for x in dsink]
        return [
            (plan.shard(dq, r), plan.shard(dk, r, side="k"), plan.shard(dv, r, side="k"), *share)
            for r in range(plan.cp_size)
        ]


def changed(**how):
    """ringside.attention with other keywords than it is asked for."""

    def wrong(q, k, v, **keywords):
        return rs.attention(q, k, v, **{**keywords, **how})

    return wrong


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"softmax_scale": float("nan")}, "softmax_scale=nan; expected a finite number"),
        ({"dropout_p": 1.5}, "dropout_p=1.5; expected a probability"),
        ({"mask": None}, "mask is None; expected a ringside.Mask"),
        ({"softcap": -1}, "softcap=-1; expected 0"),
        ({"sink": (1.0, 2.0, 3.0)}, "sink has shape (3,); expected one number"),
        ({"alibi_slopes": (1.0,) * 3}, "alibi_slopes has shape (3,); expected one number"),
        ({"dropout_seed": -1}, "dropout_seed=-1; expected 0"),
        ({"layout_k": rs.PackedLayout([0, 1])}, "layout_q holds 2 sequences and layout_k 1"),
        ({"cp_size": 0}, "cp_size=0; expected at least 1 rank"),
        ({"partition": "nope"}, 'partition="nope" is unknown'),
        ({"comm": "nope"}, 'comm="nope" is unknown'),
        ({"seed": -1}, "seed=-1; expected an integer, 0 or more"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_a_case_that_no_function_could_answer_is_refused(setting, expected):
    """Where it is made: else the function that is checked would be blamed."""
    with pytest.raises((ValueError, TypeError), match=re.escape(expected)):
        CASE.replace(**setting)


class Emptying(Ranks):
    """Takes the ranks' arrays out of the lists, one by one."""

    def __call__(self, *lists, **keywords):
        return super().__call__(*self.emptied(lists), **keywords)

    def backward(self, *lists, **keywords):
        return super().backward(*self.emptied(lists), **keywords)

    def emptied(self, lists):
        return [[x.pop(0) for _ in range(len(x))] for x in lists]


def test_the_lists_of_ranks_are_the_functions_own():
    fn = Emptying()
    assert check_context_parallel(fn, CASE, backward=fn.backward).largest_ratio < 1


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"merges": -2}, "merges=-2; expected an integer, 0 or more"),
        ({"merges": 1.5}, "merges=1.5; expected an integer, 0 or more"),
        ({"runs": 0}, "runs=0; expected an integer, 1 or more"),
        ({"runs": True}, "runs=True; expected an integer, 1 or more"),
        ({"padding": "none"}, 'padding=\'none\'; expected "zero" or "any"'),
        ({"partial": "half"}, "partial='half'; expected one of float64"),
        ({"accumulate": "fp32"}, "accumulate='fp32'; expected one of float64"),
    ],
)
def test_demands_that_would_ask_nothing_are_refused(asked, expected):
    with pytest.raises(ValueError, match=re.escape(expected)):
        Demands(**asked)


def test_a_tolerance_that_is_no_number_lets_nothing_pass(monkeypatch):
    def nothing(case, arrays, truth, precision):
        return type(truth)(*(np.full_like(x, np.nan) for x in truth))

    monkeypatch.setattr("ringside.testing.check.bounds", nothing)
    with pytest.raises(Disagreement, match="tolerance nan"):
        check_attention(lambda *qkv, **keywords: 5 * rs.attention(*qkv, **keywords)[0], CASE)


@settings(max_examples=60)
@given(EVERYTHING)
def test_the_definition_agrees_with_itself(case):
    report = check_attention(rs.attention, case, backward=rs.attention_backward)
    assert report.largest_ratio < 1e-6


@settings(max_examples=60)
@given(EVERYTHING)
def test_plans_agree_rank_by_rank_with_all_options(case):
    report = check_context_parallel(Ranks(), case)
    assert {"out", "lse", "dq", "dk", "dv"} <= report.ratios.keys()
    assert report.largest_ratio < 0.5


def test_a_dsink_that_alone_is_wrong_is_caught():
    case = CASE.replace(sink=1.0)

    def twice(*operands, **keywords):
        *others, dsink = rs.attention_backward(*operands, **keywords)
        return (*others, 2 * dsink)

    class Whole(Ranks):
        def backward(self, *operands, **keywords):
            gradients = super().backward(*operands, **keywords)
            return [(*others, dsink * case.cp_size) for *others, dsink in gradients]

    with pytest.raises(Disagreement) as failure:
        check_attention(rs.attention, case, backward=twice)
    assert failure.value.finding.tensor == "dsink"
    with pytest.raises(Disagreement) as failure:
        check_context_parallel(Whole(), case)
    assert failure.value.finding.tensor == "dsink"


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


def misbehaving():
    def writes(q, k, v, **keywords):
        result = rs.attention(q, k, v, **keywords)
        q[2] = 0
        return result

    def reads_outside(q, k, v, **keywords):
        more = np.lib.stride_tricks.as_strided(v, (len(v) + 1, *v.shape[1:]), v.strides)
        return rs.attention(q, k, v, **keywords)[0] + 0 * more[-1].sum()

    def writes_outside(q, k, v, **keywords):
        np.lib.stride_tricks.as_strided(v, (len(v) + 1, *v.shape[1:]), v.strides)[-1] = 1.0
        return rs.attention(q, k, v, **keywords)

    def fills_padding(q, k, v, **keywords):
        out, lse = rs.attention(q, k, v, **keywords)
        out[3] = 1.0
        return out, lse

    noise = iter(range(100))
    yield writes, r"wrote to its input q, row 2$"
    yield writes_outside, r"wrote to its input v, row 7 \(outside\)"
    yield reads_outside, "is NaN even where padding holds numbers: it read outside"
    yield fills_padding, "padding row 3 of document 0, head 0:"
    yield lambda q, k, v, **kw: rs.attention(q, k, v, **kw)[0][:-1], "out of shape"
    yield lambda q, k, v, **kw: np.zeros(3).item(5), "raised IndexError"
    yield (
        lambda q, k, v, **kw: rs.attention(q, k, v, **kw)[0] * (1 + 1e-16 + 1e-15 * next(noise)),
        "returned another out when it ran again",
    )


@pytest.mark.parametrize(("fn", "message"), list(misbehaving()))
def test_misbehaviour_is_named(fn, message):
    with pytest.raises(Disagreement) as failure:
        check_attention(fn, CASE, demands=Demands(runs=2))
    report = str(failure.value)
    assert "To repeat:\nfrom ringside import" in report
    assert re.search(message, report, re.MULTILINE), report


def test_padding_of_out_may_be_let_off():
    def fills_padding(q, k, v, **keywords):
        out, lse = rs.attention(q, k, v, **keywords)
        out[3], lse[:, 3] = np.nan, 7.0
        return out, lse

    check_attention(fills_padding, CASE, demands=Demands(padding="any"))


def test_refusals_pass_through():
    def refuses(q, k, v, **keywords):
        raise NotImplementedError("no windows")

    with pytest.raises(NotImplementedError, match="no windows"):
        check_attention(refuses, CASE)


def test_the_script_of_a_report_repeats_it():
    from ringside.testing.faults import W4

    case = Case(rs.PackedLayout([0, 1], [0, 4]), cp_size=2)
    with pytest.raises(Disagreement) as failure:
        check_context_parallel(W4, case)
    with pytest.raises(Disagreement) as again:
        exec(failure.value.script, {})
    assert str(again.value) == str(failure.value)


@settings(max_examples=50)
@given(strategies.cases(options=strategies.options, dtypes=strategies.dtypes()))
def test_a_case_is_its_repr(case):
    names = {name: getattr(rs, name) for name in ("Mask", "PackedLayout", "Segment")}
    assert eval(repr(case), {"Case": Case, **names}) == case


@given(strategies.plans(cp_sizes=st.just(2)))
@settings(max_examples=20)
def test_drawn_plans_are_plans(plan):
    assert plan.cp_size == 2
    plan.verify()


def strange_results():
    def as_type(change):
        return lambda q, k, v, **kw: change(rs.attention(q, k, v, **kw)[0])

    def with_lse(change):
        def fn(q, k, v, **kw):
            out, lse = rs.attention(q, k, v, **kw)
            return out, change(lse)

        return fn

    class Refuses:
        def __array__(self, *_, **__):
            raise RuntimeError("Can't call numpy() on Tensor that requires grad")

    numbers = "expected floating-point numbers of shape (7, 2, 4)"
    yield as_type(lambda x: x + 0j), f"out as ndarray of dtype complex128; {numbers}"
    yield as_type(lambda x: x.astype(object)), f"out as ndarray of dtype object; {numbers}"
    yield as_type(lambda x: x.astype(np.int64)), f"out as ndarray of dtype int64; {numbers}"
    yield as_type(lambda x: x != 0), f"out as ndarray of dtype bool; {numbers}"
    yield as_type(lambda x: x.astype(str)), "out as ndarray of dtype <U32"
    yield as_type(np.ma.masked_invalid), f"out as a masked array; {numbers}, none of them masked"
    yield as_type(lambda x: None), f"out as NoneType of dtype object; {numbers}"
    yield as_type(lambda x: Refuses()), "out as Refuses: Can't call numpy()"
    yield as_type(lambda x: x[None]), "out of shape (1, 7, 2, 4); expected (7, 2, 4)"
    yield as_type(lambda x: (x,)), "a tuple of 1; expected out, or (out, lse)"
    yield as_type(lambda x: (x, x, x)), "a tuple of 3; expected out, or (out, lse)"
    yield with_lse(lambda x: x.T), "lse of shape (7, 2); expected (2, 7)"
    yield with_lse(lambda x: x + 0j), "lse as ndarray of dtype complex128"


@pytest.mark.parametrize(("fn", "message"), list(strange_results()))
def test_results_of_a_strange_kind_or_shape_disagree(fn, message):
    with pytest.raises(Disagreement) as failure:
        check_attention(fn, CASE)
    assert f"returned {message}" in str(failure.value)


def test_gradients_of_a_strange_kind_disagree():
    def wrong_backward(*arguments, **keywords):
        dq, dk, dv = rs.attention_backward(*arguments, **keywords)
        return dq, dk + 0j, dv

    with pytest.raises(Disagreement, match="returned dk as ndarray of dtype complex128; expected"):
        check_attention(rs.attention, CASE, backward=wrong_backward)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda pairs: [(pairs[0][0] + 0j, pairs[0][1]), pairs[1]], "out of rank 0 as ndarray of"),
        (lambda pairs: [pairs[0], pairs[1][0]], "lse for some ranks; expected it for all"),
        (lambda pairs: [pairs[0], (*pairs[1], 0)], "a tuple of 3 for rank 1; expected out"),
        (lambda pairs: pairs[:1], "no list of 2 results"),
    ],
)
def test_strange_results_of_ranks_disagree(change, message):
    class Strange(Ranks):
        def __call__(self, *arguments, **keywords):
            return change(super().__call__(*arguments, **keywords))

        backward = None

    with pytest.raises(Disagreement) as failure:
        check_context_parallel(Strange(), CASE)
    assert f"returned {message}" in str(failure.value)


def test_bfloat16_results_are_numbers():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    case = CASE.replace(dtype="bfloat16")

    def rounded(q, k, v, **keywords):
        out, lse = rs.attention(*(x.astype(np.float64) for x in (q, k, v)), **keywords)
        return out.astype(ml_dtypes.bfloat16), lse

    check_attention(rounded, case)
