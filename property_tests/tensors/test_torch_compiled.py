"""varlen_attention under torch.compile: what it is without, or refused, with every option."""

import numpy as np
import pytest
import ringside as rs
import torch
from ringside.torch import varlen_attention

LAYOUT = rs.PackedLayout.from_lengths([5, 3, 9], pad_to_multiple_of=2)
PLAN = rs.plan(LAYOUT, cp_size=2, num_heads=4, num_kv_heads=2)
FOUR = [0.1, 0.2, -0.3, 0.4]


def tensors():
    torch.manual_seed(0)
    shapes = [(LAYOUT.num_rows, 4, 8), (LAYOUT.num_rows, 2, 8), (LAYOUT.num_rows, 2, 4)]
    return tuple(torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)


def compiled(whole, **more):
    torch._dynamo.reset()
    call = torch.compile(
        lambda q, k, v: varlen_attention(q, k, v, PLAN, **more),
        backend="aot_eager",
        fullgraph=whole,
    )
    return call(*tensors())


def assert_alike(whole, **more):
    found = []
    for call in (
        lambda: compiled(whole, **more),
        lambda: varlen_attention(*tensors(), PLAN, **more),
    ):
        found.append(call())
    assert torch.equal(*found)


each_way = pytest.mark.parametrize("whole", [False, True], ids=["in parts", "whole"])
SINKS = {
    "number": 0.1,
    "integer": 3,
    "list": FOUR,
    "tuple": (1, *FOUR[1:]),
    "array": np.array(FOUR),
    "number of numpy": np.float64(0.1),
    "tensor": torch.tensor(FOUR, dtype=torch.float64),
    "tensors": [torch.tensor(x) for x in FOUR],
    "numbers and tensors": [0.1, torch.tensor(0.2), 3, 0.4],
}


@each_way
@pytest.mark.parametrize("option", ["sink", "alibi_slopes"])
@pytest.mark.parametrize("spelled", ["keyword", "options"])
@pytest.mark.parametrize("kind", SINKS)
def test_sinks_and_slopes_of_every_kind_compile(whole, option, spelled, kind):
    given = {option: SINKS[kind]}
    assert_alike(whole, **(given if spelled == "keyword" else {"options": rs.Options(**given)}))


@each_way
@pytest.mark.parametrize("seed", [0, 2**63 - 1, 2**63, 2**64 - 1])
def test_every_seed_compiles(whole, seed):
    assert_alike(whole, dropout_p=0.4, dropout_seed=seed)


def test_numbers_that_change_are_traced_anew():
    """torch takes the second one for a symbol."""
    q, k, v = tensors()
    call = torch.compile(
        lambda **more: varlen_attention(q, k, v, PLAN, **more), backend="aot_eager", fullgraph=True
    )
    changing = {
        "dropout_seed": [1, 2, 2**63, 2**64 - 1, 3],
        "sink": [0.1, 0.2, 1, 2],
        "alibi_slopes": [FOUR, FOUR[::-1]],
        "softcap": [1, 2, 2.5],
    }
    for name, values in changing.items():
        torch._dynamo.reset()
        for value in values:
            more = {"dropout_p": 0.4, name: value}
            assert torch.equal(call(**more), varlen_attention(q, k, v, PLAN, **more)), more


def scalar():
    return torch.tensor(0.5, dtype=torch.float64, requires_grad=True)


REFUSED = [
    ({"sink": True}, TypeError, "sink has dtype bool", "sink is a bool"),
    ({"sink": [True] * 4}, TypeError, "sink has dtype bool", "sink is a list"),
    ({"sink": "x"}, TypeError, "sink has dtype", "sink is a str"),
    ({"sink": 10**400}, TypeError, "sink has dtype object", "sink is a int"),
    ({"sink": [scalar()] * 4}, rs.Unsupported, "one tensor", "sink requires a gradient"),
    ({"alibi_slopes": [scalar()] * 4}, rs.Unsupported, "Nearest", "slopes requires a gradient"),
    ({"softmax_scale": scalar()}, rs.Unsupported, "requires a gradient", "expected a number"),
    ({"softmax_scale": True}, TypeError, "softmax_scale is a bool", "softmax_scale is a bool"),
    ({"softcap": True}, TypeError, "softcap is a bool", "softcap is a bool"),
    ({"dropout_seed": True}, TypeError, "dropout_seed is a bool", "dropout_seed is a bool"),
    ({"dropout_seed": 1.5}, TypeError, "dropout_seed is a float", "dropout_seed is a float"),
    ({"dropout_seed": 2**64}, ValueError, "expected 0 to", "expected 0 to"),
    ({"dropout_seed": -1}, ValueError, "dropout_seed=-1", "dropout_seed=-1"),
    ({"deterministic": "no"}, TypeError, "deterministic is a str", "deterministic is a str"),
    ({"return_lse": "no"}, TypeError, "return_lse is a str", "return_lse is a str"),
]


@pytest.mark.parametrize(("more", "kind", "text", "of_whole"), REFUSED)
def test_what_is_refused_is_refused_when_compiled(more, kind, text, of_whole):
    """A whole graph with torch's error around the words."""
    for call in (
        lambda: varlen_attention(*tensors(), PLAN, **more),
        lambda: compiled(False, **more),
    ):
        with pytest.raises(kind, match=text):
            call()
    with pytest.raises(Exception, match=f"exception.*{of_whole}"):
        compiled(True, **more)


@pytest.mark.parametrize(
    "more",
    [
        {"softcap": np.float32(2.3)},
        {"softmax_scale": np.float64(0.1)},
        {"dropout_p": 0.4, "dropout_seed": np.uint64(2**64 - 1)},
        {"sink": [np.float32(0.1)] * 4},
        {"deterministic": np.True_},
    ],
)
def test_numbers_of_numpy_compile_in_parts(more):
    """A whole graph is told what to pass: torch takes these for tensors."""
    assert_alike(False, **more)
    with pytest.raises(Exception, match=r"expected .*Pass"):
        compiled(True, **more)
