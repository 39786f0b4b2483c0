"""flash_attn_varlen_func is FlashAttention's contract, spelled out by the definition."""

import numpy as np
import pytest
import ringside as rs
from hypothesis import given
from hypothesis import strategies as st

SMALL = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=3)
BOUNDS = st.sampled_from([-1, 0, 1, 3])


def contract(lengths, causal, window, chunk):
    """[rows_q, rows_k] of bool: query i sees key j iff i+sk-sq-left <= j <= i+sk-sq+right."""
    allowed = np.zeros(np.sum(lengths, axis=0, initial=0), bool)
    row_q = row_k = 0
    for sq, sk in lengths:
        for i in range(sq):
            p = i + sk - sq
            for j in range(sk):
                left = window[0] == -1 or j >= p - window[0]
                right = (window[1] == -1 or j <= p + window[1]) and (not causal or j <= p)
                same = chunk == 0 or p // chunk == j // chunk
                allowed[row_q + i, row_k + j] = left and right and same
        row_q, row_k = row_q + sq, row_k + sk
    return allowed


@given(SMALL, st.booleans(), st.tuples(BOUNDS, BOUNDS), st.sampled_from([0, 2, 3]), st.integers(0))
def test_masks_are_aligned_bottom_right(lengths, causal, window, chunk, seed):
    sums = np.concatenate([[[0, 0]], np.cumsum(lengths, axis=0)])
    rng = np.random.default_rng(seed % 2**32)
    q = rng.normal(size=(sums[-1, 0], 2, 4)).astype(np.float32)
    k, v = rng.normal(size=(2, sums[-1, 1], 1, 4)).astype(np.float32)
    longest = np.max(lengths, axis=0)
    out, lse = rs.flash_attn_varlen_func(
        q, k, v, sums[:, 0], sums[:, 1], *map(int, longest), causal=causal, window_size=window,
        attention_chunk=chunk, return_attn_probs=True,
    )  # fmt: skip
    assert out.dtype == np.float32 and lse.dtype == np.float32 and lse.shape == (2, len(q))
    allowed = contract(lengths, causal, window, chunk)
    scores = np.einsum("qhd,kd->hqk", q.astype(float), k[:, 0].astype(float)) / 2
    weights = np.exp(scores) * allowed
    total = weights.sum(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = np.einsum("hqk,kd->qhd", weights / total[..., None], v[:, 0].astype(float))
        np.testing.assert_allclose(lse, np.log(total), rtol=1e-6, atol=1e-6)  # rounded to float32
    seeing = allowed.any(axis=1)
    np.testing.assert_allclose(out[seeing], wanted[seeing], rtol=1e-6, atol=1e-6)
    assert not out[~seeing].any()


def test_seqused_leaves_the_rows_behind_it_untouched_and_unread():
    q = np.full((4, 1, 1), np.nan, np.float32)
    q[:2] = 0
    out = rs.flash_attn_varlen_func(q, q, q, [0, 4], [0, 4], 4, 4, seqused_q=[2], seqused_k=[2])
    assert (out == 0).all()


def test_a_max_seqlen_that_is_too_small_is_refused():
    q = np.zeros((4, 1, 1), np.float32)
    with pytest.raises(ValueError, match="max_seqlen_k=3 but a sequence has 4 rows"):
        rs.flash_attn_varlen_func(q, q, q, [0, 4], [0, 4], 4, 3)


def test_max_seqlen_covers_the_rows_that_are_used():
    q = np.random.default_rng(0).normal(size=(9, 1, 2))
    offsets, used = [0, 5, 9], {"seqused_q": [3, 2], "seqused_k": [2, 3]}
    got, wanted = (rs.flash_attn_varlen_func(q, q, q, *[offsets] * 2, n, n, **used) for n in (3, 5))
    np.testing.assert_array_equal(got, wanted)
    for most, text in (((2, 3), "max_seqlen_q=2"), ((3, 2), "max_seqlen_k=2")):
        with pytest.raises(ValueError, match=f"{text} but a sequence has 3 rows.*expected.*Pass 3"):
            rs.flash_attn_varlen_func(q, q, q, *[offsets] * 2, *most, **used)


GOOD = {"cu_seqlens_q": [0, 5, 9], "cu_seqlens_k": [0, 5, 9], "max_seqlen_q": 5, "max_seqlen_k": 5}


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"cu_seqlens_q": [1, 5, 9]}, r"^cu_seqlens_q\[0\]=1; it must start at 0"),
        ({"cu_seqlens_k": [0, 5, 4]}, r"^cu_seqlens_k\[2\]=4 is less than cu_seqlens_k\[1\]=5"),
        (
            {"cu_seqlens_k": [0, 9], "max_seqlen_k": 9},
            r"^cu_seqlens_q has 2 sequences and cu_seqlens_k 1; expected",
        ),
        ({"seqused_q": [3, 5]}, r"^seqused_q\[1\]=5 .*cu_seqlens_q\[1\]=5.* in seqused_q how many"),
        ({"seqused_k": [-1, 1]}, r"^seqused_k\[0\]=-1; a length cannot be negative"),
        ({"seqused_k": [1]}, r"^seqused_k has 1 entries and cu_seqlens_k has 3"),
        ({"attention_chunk": -1}, r"^attention_chunk=-1; expected 0 \(no chunks\).*Pass 0"),
    ],
)
def test_what_does_not_fit_is_named_as_the_caller_names_it(changed, text):
    q = np.zeros((9, 1, 2))
    with pytest.raises(rs.InvalidArgument, match=text):
        rs.flash_attn_varlen_func(q, q, q, **{**GOOD, **changed})


@pytest.mark.parametrize("x", [None, "x", [5]])
@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("max_seqlen_q", "at least 5. Pass 5"),
        ("max_seqlen_k", "at least 5. Pass 5"),
        ("num_splits", "any: it changes no result. Leave it out"),
        ("sm_margin", "any: it changes no result. Leave it out"),
        ("attention_chunk", "0 for none. Pass 0"),
    ],
)
def test_what_int_refuses_is_not_told_to_be_one(name, fix, x):
    q = np.zeros((9, 1, 2))
    text = rf"^{name} is (None|a str|a list); expected an integer, {fix}$"
    with pytest.raises(TypeError, match=text):
        rs.flash_attn_varlen_func(q, q, q, **{**GOOD, name: x})


@pytest.mark.parametrize("zero", [np.float32(0), np.float64(0), np.int64(0), np.array(0.0)])
def test_a_number_of_numpy_is_dropout_p(zero):
    """It has a shape, as lengths have."""
    q = np.random.default_rng(0).normal(size=(9, 1, 2))
    got = rs.flash_attn_varlen_func(q, q, q, *GOOD.values(), zero, None, True)
    wanted = rs.flash_attn_varlen_func(q, q, q, **GOOD, causal=True)
    np.testing.assert_array_equal(got, wanted)


def positions_of(version):
    """All arguments behind the seventh by position, as each version orders them, and by name."""
    named = {"softmax_scale": 0.5, "causal": True, "window_size": (2, 0), "softcap": 3.0}
    if version == 2:
        by_position = [0.0, 0.5, True, (2, 0), 3.0, None, False, True, None]
        return by_position, {**named, "return_attn_probs": True}
    by_position = [None, [3, 2], 0.5, True, None, None, None, None, (2, 0), 2, 3.0, 1, None, False]
    named |= {"seqused_k": [3, 2], "attention_chunk": 2, "return_attn_probs": True}
    return [*by_position, 0, True], named


@pytest.mark.parametrize("version", [2, 3])
def test_positions_of_either_version_are_told_apart(version):
    q, k, v = np.random.default_rng(0).normal(size=(3, 6, 2, 4))
    alike = (q, k, v, [0, 4, 6], [0, 4, 6], 4, 4)
    by_position, named = positions_of(version)
    wanted = rs.flash_attn_varlen_func(*alike, **named)
    got = rs.flash_attn_varlen_func(*alike, *by_position)
    assert len(got) == (3 if version == 2 else 2)
    np.testing.assert_array_equal(got[0], wanted[0])
    np.testing.assert_array_equal(got[1], wanted[1])
    assert got[2:] in ((), (None,))
    plain = rs.flash_attn_varlen_func(*alike)
    assert not np.array_equal(plain, wanted[0])
    for count in range(1, len(by_position)):  # any number of them
        rs.flash_attn_varlen_func(*alike, *by_position[:count])


def test_positions_of_neither_are_refused():
    q = np.zeros((4, 1, 2))
    alike = (q, q, q, [0, 4], [0, 4], 4, 4)
    for more, named, text in (
        ((True,), {}, "eighth positional argument is a bool.?; expected a number, dropout_p"),
        ((np.True_,), {}, "eighth positional argument is a bool.?; expected a number, dropout_p"),
        ((0.0, None), {"softmax_scale": 1.0}, "got softmax_scale by position and by name"),
        ((0.0,) * 12, {}, "got 19 positional arguments; expected at most 16"),
    ):
        with pytest.raises(TypeError, match=text):
            rs.flash_attn_varlen_func(*alike, *more, **named)


@pytest.mark.parametrize("name", ["qv", "q_descale", "k_descale", "v_descale", "block_table"])
def test_what_is_not_served_is_named(name):
    q = np.zeros((4, 1, 2))
    with pytest.raises(rs.Unsupported, match=f"with {name}. Nearest supported: "):
        rs.flash_attn_varlen_func(q, q, q, [0, 4], [0, 4], 4, 4, **{name: q})
