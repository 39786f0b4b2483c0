"""The tolerance of 16-bit kernels (rounding.py): honest arithmetic passes, small losses do not."""

import numpy as np
import pytest
import ringside as rs
from assertions import assert_within, error_of, noted
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import Plain
from ringside.testing import Arrays, Case, Results, strategies
from ringside.testing.dtypes import round_to
from rounding import limits
from unfused import unfused

DTYPES = ("float16", "bfloat16")
LONG = Case(
    rs.PackedLayout([0, 129, 130, 190], [0, 136, 140, 200]), num_heads=2, head_dim=32, head_dim_v=16
)  # fmt: skip


def rounded(case, dtype):
    return Arrays(*(round_to(x, dtype) for x in case.arrays()))


def run(fn, case, arrays, mask=None):
    """What an implementation with the signature of ringside.attention returns."""
    q, k, v, dout = (np.nan_to_num(x) for x in arrays)
    layouts = {"layout_q": case.layout_q, "layout_k": case.keys, "mask": mask or case.mask}
    out, lse = fn(q, k, v, **layouts, softmax_scale=case.softmax_scale)
    saved = (q, k, v, out, lse)
    return Results(
        out, lse, *fn.backward(dout, *saved, **layouts, softmax_scale=case.softmax_scale)
    )


def largest_ratio(case, arrays, dtype, got):
    """Error over tolerance, of the worst number of each result."""
    want = case.plan().attention(*arrays[:3], softmax_scale=case.softmax_scale)
    gradients = case.plan().attention_backward(
        arrays.dout, *arrays[:3], got.out, got.lse, softmax_scale=case.softmax_scale
    )
    want = Results(*want, *gradients)
    plain = unfused(case, arrays, dtype, got)
    limit = limits(case, arrays, want, dtype, plain, rs.Options(softmax_scale=case.softmax_scale))
    ratios = {}
    for name in ("out", "lse", "dq", "dk", "dv"):
        off = error_of(getattr(got, name), getattr(want, name))
        allowed = getattr(limit, name)
        with np.errstate(divide="ignore"):  # by no tolerance
            ratio = np.divide(off, allowed, out=np.zeros_like(off), where=off > 0)
        ratios[name] = float(ratio.max(initial=0.0))
    return ratios


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=40)
@given(
    noted(
        strategies.cases(
            head_dims=st.sampled_from([1, 3, 8, 24]), cp_sizes=st.just(1), comms=st.just("p2p"),
            partitions=st.just("contiguous"),
        )
    ),
    st.integers(1, 4),
)  # fmt: skip
def test_honest_arithmetic_in_blocks_passes(dtype, case, blocks):
    arrays = rounded(case, dtype)
    got = run(Plain(dtype, blocks=blocks), case, arrays)
    assert max(largest_ratio(case, arrays, dtype, got).values()) < 0.9


class LastKeyUnseen(Plain):
    """Rows of more than a hundred keys lose one."""

    def scores(self, q, k, mask, scale):
        s = super().scores(q, k, mask, scale)
        s[100:, 0] = -np.inf
        return s


class SlightlyScaled(Plain):
    """Gradients of k come out too large by eight roundoffs of bfloat16."""

    def backward(self, *arrays, **keywords):
        dq, dk, dv = super().backward(*arrays, **keywords)
        return dq, self.w(dk * (1 + 8 * 2.0**-8)), dv


FAULTS = {
    "sums in 16 bits": (lambda dtype: Plain(dtype, sums=dtype), {"out", "dq", "dk", "dv"}),
    "one key of a hundred": (lambda dtype: LastKeyUnseen(dtype), {"out", "lse"}),
    "partial results merged in 16 bits": (
        lambda dtype: Plain(dtype, blocks=12, merge=dtype),
        {"lse"},
    ),
    "a factor near 1": (lambda dtype: SlightlyScaled(dtype), {"dk"}),
    "out off by a few roundoffs": (lambda dtype: Plain(dtype, planted=0.02), {"out"}),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", FAULTS)
def test_small_losses_are_caught(fault, dtype):
    make, where = FAULTS[fault]
    arrays = rounded(LONG, dtype)
    healthy = largest_ratio(LONG, arrays, dtype, run(Plain(dtype), LONG, arrays))
    assert max(healthy.values()) < 0.9
    ratios = largest_ratio(LONG, arrays, dtype, run(make(dtype), LONG, arrays))
    for name in where:
        assert ratios[name] > 1, ratios


def test_there_is_no_tolerance_where_no_token_lies():
    arrays = rounded(LONG, "bfloat16")
    got = run(Plain("bfloat16"), LONG, arrays)
    got.dk[130] = 1e-30  # behind the first document
    assert largest_ratio(LONG, arrays, "bfloat16", got)["dk"] == np.inf


def with_options(case):
    """Cases, each with keywords of ringside.attention."""
    return st.tuples(st.just(case), strategies.options(case.num_heads))


@given(noted(strategies.cases(head_dims=st.sampled_from([3, 8]))).flatmap(with_options))
def test_plain_arithmetic_knows_every_option(drawn):
    """Where it rounds to float32 alone, it is what the CPU does."""
    case, keywords = drawn
    options = rs.Options(softmax_scale=case.softmax_scale, **keywords)
    arrays = rounded(case, "float32")
    plan, of_plan = case.plan(), vars(options)
    out, lse = plan.attention(*arrays[:3], **of_plan)
    saved = (*arrays[:3], out, lse)
    want = Results(out, lse, *plan.attention_backward(arrays.dout, *saved, **of_plan))
    got = unfused(case, arrays, "float32", want, options)
    limit = limits(case, arrays, want, "float32", None, options)
    for name in ("out", "lse", "dq", "dk", "dv"):
        layout = case.keys if name in ("dk", "dv") else case.layout_q
        assert_within(name, getattr(got, name), getattr(want, name), getattr(limit, name), layout)
