"""What a function may not do is named, and so are results of a strange kind or shape."""

import re

import numpy as np
import pytest
import ringside as rs
from rank_by_rank import Ranks
from ringside.testing import Case, Demands, Disagreement, check_attention, check_context_parallel

CASE = Case(rs.PackedLayout([0, 3, 5], [0, 4, 7]), num_heads=2, cp_size=2)


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
