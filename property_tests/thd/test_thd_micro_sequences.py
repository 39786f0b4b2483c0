"""Canonical key offsets: a window of a packed stream attends as the whole stream does there."""

import doctest

import numpy as np
import pytest
import ringside as rs
from hypothesis import assume, example, given
from hypothesis import strategies as st
from ringside import thd
from ringside.thd import _chunks as _thd_chunks
from ringside.thd import _steps as _thd_steps
from thd_cases import cumulative

document_lengths = st.lists(st.integers(0, 9), max_size=6)


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[int], int, int]:
    lengths = draw(document_lengths)
    ends = st.integers(0, sum(lengths))
    return (lengths, *sorted((draw(ends), draw(ends))))


@given(windows())
@example(([5, 6, 9], 8, 14))
def test_a_window_attends_as_the_whole_stream_does_there(case):
    lengths, begin, end = case
    q, k, v = np.random.default_rng(0).normal(size=(3, sum(lengths), 1, 2))
    want = rs.attention(q, k, v, rs.PackedLayout(cumulative(lengths)))[0]
    micro = thd.canonical_cu_seqlens_k(lengths, begin, end)
    keys = slice(micro.first_document_begin, end)
    out, _ = rs.attention(
        q[begin:end],
        k[keys],
        v[keys],
        rs.PackedLayout(micro.cu_seqlens_q),
        rs.PackedLayout(micro.cu_seqlens_k),
        mask=rs.Mask.causal(align="bottom_right"),
    )
    # The same sums of some ten terms of size 1 in float64, vectorised from another address.
    np.testing.assert_allclose(out, want[begin:end], rtol=0, atol=1e-13)


@given(windows())
def test_offsets_are_canonical_and_documents_are_not_empty(case):
    lengths, begin, end = case
    micro = thd.canonical_cu_seqlens_k(lengths, begin, end)
    thd.check_canonical_cu_seqlens_k(micro.cu_seqlens_k)
    assert micro.cu_seqlens_q[-1] == end - begin
    assert micro.cu_seqlens_k[-1] == (end - micro.first_document_begin if end > begin else 0)
    queries, keys = np.diff(micro.cu_seqlens_q), np.diff(micro.cu_seqlens_k)
    assert np.all(queries > 0)
    assert np.all(keys[1:] == queries[1:])
    if end > begin:
        assert keys[0] - queries[0] == begin - micro.first_document_begin >= 0
        assert micro.first_document_begin in cumulative(lengths)


@given(windows())
def test_the_older_offsets_are_these_shifted_but_for_the_first(case):
    """Fast-LLM before pull request 514: cu_seqlens_q + begin, the document's start first."""
    lengths, begin, end = case
    assume(begin < end)
    micro = thd.canonical_cu_seqlens_k(lengths, begin, end)
    old = micro.cu_seqlens_q + begin
    old[0] = micro.first_document_begin
    assert (old - old[0]).tolist() == micro.cu_seqlens_k.tolist()


def test_the_worked_example():
    micro = thd.canonical_cu_seqlens_k([5, 6, 9], 8, 14)
    assert micro.cu_seqlens_q.tolist() == [0, 3, 6]
    assert micro.cu_seqlens_k.tolist() == [0, 6, 9]
    assert micro.first_document_begin == 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: thd.check_canonical_cu_seqlens_k([5, 11, 14]),
            r"cu_seqlens_k\[0\]=5; .*Pass cu_seqlens_k - 5 with k\[5:\] and v\[5:\]",
        ),
        (
            lambda: thd.check_canonical_cu_seqlens_k([0, 11, 4]),
            r"cu_seqlens_k\[2\]=4 is less than cu_seqlens_k\[1\]=11",
        ),
        (
            lambda: thd.canonical_cu_seqlens_k([5, 6], 3, 12),
            r"the window \[3, 12\) does not lie in the stream; expected 0 <= begin <= end <= 11",
        ),
        (lambda: thd.canonical_cu_seqlens_k([5, -6], 0, 0), r"lengths\[1\]=-6; .*np\.diff"),
        (
            lambda: thd.canonical_cu_seqlens_k([2**31 - 1, 1], 0, 0),
            r"lengths add up to 2147483648 tokens; offsets are int32",
        ),
    ],
)
def test_bad_calls_are_told_what_to_fix(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("module", [thd, _thd_steps, _thd_chunks])
def test_the_examples_in_the_documentation_hold(module):
    assert doctest.testmod(module).failed == 0


def test_every_public_name_is_documented():
    for name in thd.__all__:
        text = getattr(thd, name).__doc__
        assert text, name
        assert ">>>" in text or isinstance(getattr(thd, name), type), f"{name} shows no example"
