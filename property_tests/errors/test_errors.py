"""Bad arrays, keywords and backends: got, expected, fix; and what is accepted in many forms."""

import numpy as np
import pytest
import ringside as rs
from bad_calls import LAYOUT, LSE, OUT, PLAN, K, Q, V, refused

CALLS = {
    "rs.attention": lambda q=Q, k=K, v=V, **kw: rs.attention(q, k, v, LAYOUT, **kw),
    "plan.attention": lambda q=Q, k=K, v=V, **kw: PLAN.attention(q, k, v, **kw),
}
BACKWARD = {
    "rs.attention_backward": lambda dout=OUT, q=Q, k=K, v=V, out=OUT, lse=LSE, **kw: (
        rs.attention_backward(dout, q, k, v, out, lse, LAYOUT, **kw)
    ),
    "plan.attention_backward": lambda dout=OUT, q=Q, k=K, v=V, out=OUT, lse=LSE, **kw: (
        PLAN.attention_backward(dout, q, k, v, out, lse, **kw)
    ),
}
BAD_INPUTS = {
    "q of its tokens alone": (
        {"q": Q[:5]},
        ValueError,
        (
            *("q has 5 rows but its layout ends at row 6", "must agree"),
            *("tokens without their padding", "layout.pack()", "PackedLayout(cu_seqlens)"),
        ),
    ),
    "k of too many rows": (
        {"k": np.ones((8, 2, 3))},
        ValueError,
        (
            *("k has 8 rows", "ends at row 6", "Where sequences are padded"),
            *(
                "cu_seqlens_q_padded",
                "the 2 rows behind the last sequence",
                "from_te(..., num_rows=8",
            ),
        ),
    ),
    "v of too few rows": (
        {"v": V[:1]},
        ValueError,
        ("v has 1 rows", "ends at row 6", "all rows of the pack, or the layout of the 1"),
    ),
    "q of heads before rows": (
        {"q": np.ones((4, 6, 3))},
        ValueError,
        ("q has 4 rows", "ends at row 6", "[heads, rows, dim]", "pass q.swapaxes(0, 1)"),
    ),
    "k of more heads than rows, before rows": (
        {"k": np.ones((8, 6, 3))},
        ValueError,
        ("k has 8 rows", "ends at row 6", "[heads, rows, dim]", "pass k.swapaxes(0, 1)"),
    ),
    "q of two dimensions": ({"q": Q[0]}, ValueError, ("q has shape (4, 3)", "[rows, heads, dim]")),
    "q of four dimensions": ({"q": Q[None]}, ValueError, ("q has shape (1, 6, 4, 3)", "three")),
    "q without heads": (
        {"q": Q[:, :0]},
        ValueError,
        ("q has shape (6, 0, 3)", "at least one head"),
    ),
    "q without dimension": (
        {"q": Q[..., :0]},
        ValueError,
        ("q has shape (6, 4, 0)", "at least one"),
    ),
    "k of another head dimension": (
        {"k": np.ones((6, 2, 4))},
        ValueError,
        ("k has shape (6, 2, 4)", "expected [6, 2, 3]"),
    ),
    "v of other heads": (
        {"v": np.ones((6, 1, 5))},
        ValueError,
        ("v has shape (6, 1, 5)", "expected [6, 2, 5]"),
    ),
    "integers": (
        {"q": Q.astype(np.int64)},
        TypeError,
        ("q has dtype int64", "float16, float32 or float64", "Convert q to one of them"),
    ),
    "booleans": ({"k": K.astype(bool)}, TypeError, ("k has dtype bool", "float32 or float64")),
    "complex numbers": ({"v": V * 1j}, TypeError, ("v has dtype complex128", "float32 or float64")),
    "text": ({"q": np.full((6, 4, 3), "a")}, TypeError, ("q has dtype <U1", "float")),
    "objects": ({"q": Q.astype(object)}, TypeError, ("q has dtype object", "float")),
    "nothing": ({"q": None}, ValueError, ("q has shape ()", "three dimensions")),
    "a negative softcap": (
        {"softcap": -1.0},
        ValueError,
        ("softcap=-1", "expected 0 (none) or the largest magnitude"),
    ),
    "NaN as softcap": ({"softcap": float("nan")}, ValueError, ("softcap=nan", "expected 0 (none)")),
    "text as softcap": ({"softcap": "5"}, TypeError, ("softcap is a str", "expected a number")),
    "sinks of other heads": (
        {"sink": [1.0, 2.0]},
        ValueError,
        ("sink has shape (2,)", "one for each of the 4 query heads"),
    ),
    "an infinite sink": (
        {"sink": -np.inf},
        ValueError,
        ("sink of head 0 is -inf", "finite", "leave sink out"),
    ),
    "slopes of other heads": (
        {"alibi_slopes": np.ones((4, 1))},
        ValueError,
        ("alibi_slopes has shape (4, 1)", "one for each of the 4 query heads"),
    ),
    "certain dropout": (
        {"dropout_p": 1.0},
        ValueError,
        ("dropout_p=1", "expected a probability, 0 <= p < 1"),
    ),
    "negative dropout": ({"dropout_p": -0.1}, ValueError, ("dropout_p=-0.1", "0 <= p < 1")),
    "a negative seed": ({"dropout_seed": -1}, ValueError, ("dropout_seed=-1", "0 to 2**64-1")),
    "a seed beyond 64 bits": (
        {"dropout_seed": 2**64},
        ValueError,
        ("dropout_seed=1844674", "0 to"),
    ),
    "an additive bias": (
        {"bias": np.zeros((6, 6))},
        rs.Unsupported,
        ("bias adds", "Nearest supported: alibi_slopes"),
    ),
    "an unknown format": (
        {"qkv_format": "hbsd"},
        ValueError,
        ('qkv_format="hbsd" is unknown', '"thd", "bshd" or "sbhd"'),
    ),
    "a dense format for packed rows": (
        {"qkv_format": "bshd"},
        ValueError,
        (" has shape (6, ", "expected", 'for "bshd"'),
    ),
    "NaN as scale": (
        {"softmax_scale": float("nan")},
        ValueError,
        ("softmax_scale=nan", "finite", "None for 1/sqrt(head_dim_qk)"),
    ),
    "infinity as scale": ({"softmax_scale": np.inf}, ValueError, ("softmax_scale=inf", "finite")),
    "minus infinity as scale": ({"softmax_scale": -np.inf}, ValueError, ("softmax_scale=-inf",)),
    "text as scale": (
        {"softmax_scale": "0.5"},
        TypeError,
        ("softmax_scale is a str", "expected a number"),
    ),
    "a list as scale": ({"softmax_scale": [1.0]}, TypeError, ("softmax_scale is a list", "number")),
    "a complex scale": ({"softmax_scale": 1j}, TypeError, ("softmax_scale is a complex", "number")),
}
BAD_SAVED = {
    "dout of other heads": (
        {"dout": OUT[:, :3]},
        ValueError,
        ("dout has shape (6, 3, 5)", "expected [6, 4, 5]", "shape of out"),
    ),
    "dout of too few rows": ({"dout": OUT[:5]}, ValueError, ("dout has 5 rows", "row 6")),
    "dout of integers": ({"dout": OUT.astype(int)}, TypeError, ("dout has dtype int64", "float")),
    "out of another dimension": (
        {"out": OUT[..., :2]},
        ValueError,
        ("out has shape (6, 4, 2)", "expected [6, 4, 5]"),
    ),
    "lse the wrong way round": (
        {"lse": LSE.T},
        ValueError,
        ("lse has shape (6, 4)", "[heads, rows] = [4, 6]", "as attention() returned it"),
    ),
    "lse of integers": ({"lse": LSE.astype(int)}, TypeError, ("lse has dtype int64", "float")),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize(("bad", "kind", "says"), BAD_INPUTS.values(), ids=BAD_INPUTS.keys())
def test_bad_arrays_are_refused_forward(call, bad, kind, says):
    refused(lambda: call(**bad), *says, kind=kind)


@pytest.mark.parametrize("call", BACKWARD.values(), ids=BACKWARD.keys())
@pytest.mark.parametrize(
    ("bad", "kind", "says"),
    [*BAD_INPUTS.values(), *BAD_SAVED.values()],
    ids=[*BAD_INPUTS.keys(), *BAD_SAVED.keys()],
)
def test_bad_arrays_are_refused_backward(call, bad, kind, says):
    refused(lambda: call(**bad), *says, kind=kind)


def test_what_is_advised_about_rows_is_taken():
    """No advice may make another layout of the same rows, or one that nobody can make."""
    rs.attention(*(LAYOUT.pack([x[:3], x[:2]]) for x in (Q, K, V)), LAYOUT)
    rs.attention(Q[:5], K[:5], V[:5], rs.PackedLayout(LAYOUT.cu_seqlens))
    rs.attention(np.ones((4, 6, 3)).swapaxes(0, 1), K, V, LAYOUT)
    longer = rs.PackedLayout.from_te(LAYOUT.cu_seqlens, LAYOUT.cu_seqlens_padded, num_rows=8)
    assert longer.lengths.tolist() == LAYOUT.lengths.tolist()
    rs.attention(np.ones((8, 4, 3)), np.ones((8, 2, 3)), np.ones((8, 2, 5)), longer)


def test_a_layout_that_is_missing_is_asked_for():
    refused(lambda: rs.attention(Q, K, V), "layout_q is missing", "where the sequences lie")


def test_heads_that_do_not_divide_are_refused_by_the_definition():
    refused(
        lambda: rs.attention(Q[:, :3], K, V, LAYOUT),
        "num_heads=3 and num_kv_heads=2",
        "multiple of kv heads",
    )


def test_heads_other_than_the_plan_s_are_refused():
    refused(
        lambda: PLAN.attention(Q[:, :2], K, V), "q has shape", "expected [6, 4, 3]", "num_heads"
    )
    refused(lambda: PLAN.attention(Q, K[:, :1], V), "k has shape", "[6, 2, 3]", "num_kv_heads")


def test_layouts_of_unlike_batch_are_refused_by_the_definition():
    refused(
        lambda: rs.attention(Q, K, V, LAYOUT, rs.PackedLayout([0, 6])),
        "layout_q holds 2 sequences and layout_k 1",
        "same number",
    )


UNKNOWN = {
    "plan": lambda: rs.plan(LAYOUT, cp_size=2, window=3),
    "Mask": lambda: rs.Mask(window=(1, 1)),
    "Mask.causal": lambda: rs.Mask.causal("top_left"),
    "PackedLayout": lambda: rs.PackedLayout([0, 1], seqused=[1]),
    "from_lengths": lambda: rs.PackedLayout.from_lengths([1], 8),
    "attention": lambda: rs.attention(Q, K, V, LAYOUT, causal=True),
    "attention_backward": lambda: rs.attention_backward(
        OUT, Q, K, V, OUT, LSE, LAYOUT, causal=True
    ),
    "plan.attention": lambda: PLAN.attention(Q, K, V, mask=rs.Mask.full()),
    "plan.attention_backward": lambda: PLAN.attention_backward(OUT, Q, K, V, OUT, LSE, causal=True),
    "cost": lambda: PLAN.cost(64),
    "shard": lambda: PLAN.shard(Q, 0, "q"),
    "Segment": lambda: rs.Segment(0, 0, 1, step=2),
    "roll": lambda: LAYOUT.roll(Q, by=1),
}


@pytest.mark.parametrize("call", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_unknown_keywords_and_surplus_arguments_are_errors(call):
    """prime-rl #3397: a sink swallowed by **kwargs trains another model than the one meant."""
    with pytest.raises(TypeError):
        call()


def test_a_backend_that_this_build_lacks_names_the_nearest_one():
    for call in (CALLS["plan.attention"], BACKWARD["plan.attention_backward"]):
        refused(
            lambda call=call: call(backend="nccl"),
            'backend="nccl" is not part of this build',
            'Nearest supported: backend="cuda"',
            'backend="reference"',
            kind=rs.Unsupported,
        )


def test_an_unknown_backend_lists_the_known_ones():
    for call in (CALLS["plan.attention"], BACKWARD["plan.attention_backward"]):
        refused(
            lambda call=call: call(backend="tpu"),
            'backend="tpu" is unknown',
            '"reference", "cuda", "nccl"',
        )


# --- what is accepted


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", np.longdouble])
def test_every_floating_type_is_accepted_and_computed_in_float64(dtype):
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=x.shape).astype(dtype) for x in (Q, K, V)]
    exact = [x.astype(np.float64) for x in inputs]
    for call in CALLS.values():
        for got, wanted in zip(call(*inputs), call(*exact), strict=True):
            assert got.dtype == np.float64
            np.testing.assert_array_equal(got, wanted)


def test_arrays_that_are_not_contiguous_give_the_same_answer():
    rng = np.random.default_rng(0)
    q, k, v, dout = (rng.normal(size=x.shape) for x in (Q, K, V, OUT))
    strided = [np.repeat(x, 2, axis=2)[:, :, ::2] for x in (q, k, v)]
    fortran = [np.asfortranarray(x) for x in (q, k, v)]
    backwards = [x[::-1].copy()[::-1] for x in (q, k, v)]
    for call, back in zip(CALLS.values(), BACKWARD.values(), strict=True):
        out, lse = call(q, k, v)
        gradients = back(dout, q, k, v, out, lse)
        for x in (strided, fortran, backwards):
            assert not all(a.flags.c_contiguous for a in x)
            for a, b in zip(call(*x), (out, lse), strict=True):
                np.testing.assert_array_equal(a, b)
            again = back(np.asfortranarray(dout), *x, np.asfortranarray(out), lse[:, ::-1][:, ::-1])
            for a, b in zip(again, gradients, strict=True):
                np.testing.assert_array_equal(a, b)


def test_inputs_are_never_written_to():
    q, k, v, dout = (np.random.default_rng(0).normal(size=x.shape) for x in (Q, K, V, OUT))
    for x in (q, k, v, dout):
        x.flags.writeable = False
    for call, back in zip(CALLS.values(), BACKWARD.values(), strict=True):
        out, lse = call(q, k, v)
        out.flags.writeable = lse.flags.writeable = False
        back(dout, q, k, v, out, lse)


def test_lists_are_arrays_too():
    for call in CALLS.values():
        for a, b in zip(call(Q.tolist(), K.tolist(), V.tolist()), call(), strict=True):
            np.testing.assert_array_equal(a, b)
