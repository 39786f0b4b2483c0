"""What definition and plan share, each against something that shares nothing with either.

Both read the mask, the options per head, dropout's random numbers and the layouts through the same
code: a fault there is one that they agree about. Here NumPy says what is right, pair by pair.
"""

import numpy as np
import pytest
import ringside as rs
from assertions import TOLERANCE, assert_close, noted
from hypothesis import given
from hypothesis import strategies as st
from pairwise import Options, forward, pairwise
from philox import dropout_factors, philox4x32_10
from ringside.testing import Results, strategies
from test_not_finite import CASES, assert_agree

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((ONES,) * 4, (ONES,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_the_generator_here_gives_the_answers_that_random123_publishes(counter, key, words):
    assert " ".join(f"{word:08x}" for word in philox4x32_10(counter, key)) == words


@given(CASES)
def test_the_definition_with_any_options_is_the_sum_over_pairs(case):
    arrays = case.arrays()
    assert_agree(case, arrays, case.by_definition(arrays), pairwise(case, arrays))
    q, k, v, _ = arrays
    layouts = (case.layout_q, case.layout_k)
    got = rs.attention(q, k, v, *layouts, mask=case.mask, return_max_logit=True, **case.options)
    options = Options(**{**case.options, "softmax_scale": case.scale})
    assert_close("max_logit", got[2], forward(case, arrays, options)[2], operands=[3.0 * 64])


@given(
    p=st.sampled_from([0.1, 0.5, 0.9]),
    seed=st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([2**32, 2**63, 2**64 - 1])),
    cp_size=st.integers(1, 3),
    comm=st.sampled_from(["p2p", "all_gather", "a2a"]),
)
def test_which_weights_are_dropped_is_what_philox_says(p, seed, cp_size, comm):
    """Values one-hot in the key, equal scores: an output row lists what is left of each weight."""
    layout = rs.PackedLayout([0, 5, 5, 12, 21], [0, 6, 6, 13, 25])
    heads, tokens = 3, 9
    q = np.zeros((layout.num_rows, heads, 1))
    v = np.zeros((layout.num_rows, heads, tokens))
    for begin, n in zip(layout.cu_seqlens_padded[:-1], layout.lengths, strict=True):
        v[begin : begin + n] = np.eye(n, tokens)[:, None]
    plan = rs.plan(layout, mask=rs.Mask.full(), cp_size=cp_size, comm=comm, num_heads=heads)
    settings = {"dropout_p": p, "dropout_seed": seed}
    for out, _ in (
        rs.attention(q, q, v, layout, mask=rs.Mask.full(), **settings),
        plan.attention(q, q, v, **settings),
    ):
        for s, n in enumerate(layout.lengths.tolist()):
            rows = slice(layout.cu_seqlens_padded[s], layout.cu_seqlens_padded[s] + n)
            for head in range(heads):
                wanted = dropout_factors(p, seed, s, head, n, n) / max(n, 1)
                np.testing.assert_allclose(out[rows, head, :n], wanted, rtol=1e-14)


HEADS = st.sampled_from([(2, 1), (3, 3), (4, 2), (5, 1)])


@given(noted(strategies.cases(heads=HEADS)), st.data())
def test_every_head_has_its_own_sink_and_slope(case, data):
    """A head alone, with one number for its option, gives what it gives among the others."""
    n, distinct = case.num_heads, st.integers(-8, 8).map(lambda x: x / 4)
    sinks, slopes = (
        data.draw(st.lists(distinct, min_size=n, max_size=n, unique=True), label=name)
        for name in ("sinks", "slopes")
    )
    arrays = case.arrays()
    together = case.replace(sink=tuple(sinks), alibi_slopes=tuple(slopes)).by_plan(arrays)
    for head in range(n):
        group = head // (n // case.num_kv_heads)
        alone = case.replace(
            num_heads=1, num_kv_heads=1, sink=sinks[head], alibi_slopes=slopes[head]
        )
        q, k, v, dout = arrays
        own = (q[:, [head]], k[:, [group]], v[:, [group]], dout[:, [head]])
        wanted = pairwise(alone, type(arrays)(*own))
        got = Results(
            together.out[:, [head]],
            together.lse[[head]],
            together.dq[:, [head]],
            wanted.dk,
            wanted.dv,
            together.dsink[[head]],
        )  # dk and dv belong to a group
        assert_agree(alone, type(arrays)(*own), got, wanted)


def test_lse_is_heads_by_rows_and_every_head_keeps_its_row():
    """Scores that name their head and their row: a transposed or shifted lse cannot hide."""
    layout = rs.PackedLayout([0, 2, 5], [0, 3, 7])
    row, head = np.indices((7, 3))
    q, k = (10.0 * row + head)[:, :, None], np.ones((7, 1, 1))
    for cp_size in (1, 2):
        for lse in (
            rs.attention(q, k, k, layout, mask=rs.Mask.full(), softmax_scale=1.0)[1],
            rs.plan(
                layout, mask=rs.Mask.full(), cp_size=cp_size, num_heads=3, num_kv_heads=1
            ).attention(q, k, k, softmax_scale=1.0)[1],
        ):
            wanted = np.full((3, 7), -np.inf)
            for begin, n in ((0, 2), (3, 3)):
                rows = np.arange(begin, begin + n)
                wanted[:, rows] = 10.0 * rows + np.arange(3)[:, None] + np.log(n)
            assert_close("lse", lse, wanted, tolerance=TOLERANCE)
