"""What reports say of wrong gradients: which rows backward saw, and which ones a sum adds."""

import re

import numpy as np
import pytest
import ringside as rs
from hypothesis import given, settings
from hypothesis import strategies as st
from ringside.testing import Case, Disagreement, check_attention


def failure_of(fn, case, **how):
    with pytest.raises(Disagreement) as failure:
        check_attention(fn, case, **how)
    return failure.value


WINDOW = Case(
    rs.PackedLayout([0, 6, 14], [0, 8, 16]),
    mask=rs.Mask.sliding_window(2, 0),
    num_heads=4,
    num_kv_heads=2,
)


def without_window(*results):
    """A backward pass that ignores the window where it computes these."""

    def backward(*arrays, mask, **keywords):
        right = rs.attention_backward(*arrays, mask=mask, **keywords)
        wrong = rs.attention_backward(*arrays, mask=rs.Mask.causal(), **keywords)
        return [wrong[i] if i in results else right[i] for i in range(3)]

    return backward


def test_a_window_that_backward_ignores_is_seen_in_dq():
    """Although the forward pass, which is right, reads no such key."""
    finding = failure_of(rs.attention, WINDOW, backward=without_window(0, 1, 2)).finding
    assert (finding.tensor, finding.position) == ("dq", 3)
    assert len(finding.reads) == 1
    assert re.fullmatch(r"read key 0 \(weight 0\.\d+, should be 0\)", finding.reads[0])


@pytest.mark.parametrize(
    ("wrong", "tensor", "read"), [(0, "dq", "key 0"), (1, "dk", "query 3 ")], ids=["dq", "dk"]
)
def test_what_dv_does_not_show_of_dq_and_dk_is_seen_in_their_sums(wrong, tensor, read):
    finding = failure_of(rs.attention, WINDOW, backward=without_window(wrong)).finding
    assert finding.tensor == tensor
    assert finding.reads[0].startswith(f"read {read}"), finding.reads
    assert finding.reads[0].endswith(f"should be 0) in the sum of {tensor} alone"), finding.reads


@pytest.mark.parametrize("tensor", ["dq", "dk"])
def test_what_is_wrong_with_each_row_of_a_sum_is_no_row(tensor):
    """The rows are right where q and k meet in a column, and their share is."""
    which = ("dq", "dk").index(tensor)

    def backward(*arrays, **keywords):
        found = list(rs.attention_backward(*arrays, **keywords))
        is_probe = not arrays[1 + which][:, :, 1:].any()
        found[which] = found[which] if is_probe else 2 * found[which]
        return found

    reads = failure_of(rs.attention, WINDOW, backward=backward).finding.reads
    assert len(reads) == 1 and "its own arithmetic is off" in reads[0]


@settings(max_examples=30)
@given(st.integers(0, 59), st.booleans())
def test_one_query_among_many_is_found_in_dv(row, dropped):
    """The right answer for one row of dv agrees with the definition's."""
    case = Case(
        rs.PackedLayout([0, 60]), mask=rs.Mask.full(), num_heads=4, num_kv_heads=2, head_dim_v=3,
        dropout_p=0.25 if dropped else 0.0, softcap=5.0, sink=1.0, alibi_slopes=0.25,
    )  # fmt: skip

    def forgetful(dout, *rest, **keywords):
        dout = dout.copy()
        dq, dk, _, dsink = rs.attention_backward(dout, *rest, **keywords)
        dout[row] = 0
        return dq, dk, rs.attention_backward(dout, *rest, **keywords)[2], dsink

    finding = failure_of(rs.attention, case, backward=forgetful).finding
    assert finding.tensor == "dv"
    assert len(finding.reads) == 1 and f"query {row} (weight" in finding.reads[0]


def leaving_out(which, row):
    """A backward pass whose dq does not add a key, or dk a query.

    More columns, 0 in one of q and k and 1 for that row in the other, return its shares.
    """

    def backward(dout, q, k, v, out, lse, *, softmax_scale, **keywords):
        heads, dim = q.shape[1:]
        keywords["softmax_scale"] = softmax_scale or dim**-0.5
        own = np.arange(heads) * k.shape[1] // heads  # kv heads
        wide_q, wide_k = (np.pad(x, [(0, 0), (0, 0), (0, heads)]) for x in (q, k))
        if which == "dq":
            wide_k[row, :, dim] = 1
        else:
            wide_q[row, np.arange(heads), dim + np.arange(heads)] = 1
        found = rs.attention_backward(dout, wide_q, wide_k, v, out, lse, **keywords)
        (dq, of_q), (dk, of_k) = (np.split(x, [dim], axis=2) for x in found[:2])
        if which == "dq":
            dq -= of_q[:, :, :1] * k[row, own]
        for head in range(heads if which == "dk" else 0):
            dk[:, own[head]] -= of_k[:, own[head], head, None] * q[row, head]
        return dq, dk, *found[2:]

    return backward


@settings(max_examples=20)
@given(st.sampled_from(["dq", "dk"]), st.integers(0, 59), st.booleans())
def test_one_row_among_many_is_missed_in_the_sums_of_gradients(which, row, dropped):
    """The right answer for one row of dq or dk agrees with the definition's."""
    case = Case(
        rs.PackedLayout([0, 60]), mask=rs.Mask.full(), num_heads=4, num_kv_heads=2, head_dim=3,
        dropout_p=0.25 if dropped else 0.0, softcap=5.0, sink=1.0, alibi_slopes=0.25,
    )  # fmt: skip
    finding = failure_of(rs.attention, case, backward=leaving_out(which, row)).finding
    assert finding.tensor == which
    what = "key" if which == "dq" else "query"
    pattern = rf"did not read {what} {row} \(weight .*, should be .*\) in the sum of {which} alone"
    assert len(finding.reads) == 1 and re.fullmatch(pattern, finding.reads[0]), finding.reads
