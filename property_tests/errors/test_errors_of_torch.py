"""What is passed to varlen_attention in place of a plan or of a tensor, and what torch has more."""

import numpy as np
import pytest
import ringside as rs
import torch
from bad_calls import refused
from played_cuda import play
from ringside._arrays import cuda
from ringside.torch import varlen_attention

PLAN = rs.plan(rs.PackedLayout([0, 5, 12]), cp_size=1)
X = torch.zeros(12, 1, 8)
MADE = "Make one: ringside.plan(ringside.PackedLayout(cu_seqlens), cp_size=1, num_heads="


@pytest.mark.parametrize("plan", [torch.tensor([0, 5, 12]), [0, 5, 12]], ids=["tensor", "list"])
def test_offsets_in_place_of_a_plan_make_one(plan):
    kind = type(plan).__name__
    for more in ({}, {"group": "group"}):
        refused(
            lambda more=more: varlen_attention(X, X, X, plan, **more),
            f"plan is a {kind}; expected a Plan or a DevicePlan",
            MADE,
            kind=TypeError,
        )


def test_a_layout_in_place_of_a_plan_makes_one():
    refused(
        lambda: varlen_attention(X, X, X, PLAN.layout_q),
        "plan is a PackedLayout; expected a Plan or a DevicePlan",
        "Make one: ringside.plan(layout, cp_size=1",
        kind=TypeError,
    )


def test_torch_compile_says_the_same_of_a_plan():
    call = torch.compile(lambda x, plan: varlen_attention(x, x, x, plan), backend="aot_eager")
    with pytest.raises(TypeError, match="plan is a PackedLayout; expected a Plan"):
        call(X, PLAN.layout_q)


@pytest.mark.parametrize(
    ("name", "x", "kind", "pieces"),
    [
        ("q", X.numpy(), TypeError, ("q is a numpy.ndarray; expected a torch.Tensor", "as_tensor")),
        ("v", None, TypeError, ("v is a builtins.NoneType; expected a torch.Tensor", "Pass")),
        ("q", X.to("meta"), rs.Unsupported, ("q lies on device meta", "Nearest supported: cpu")),
        ("k", X.to("meta"), rs.Unsupported, ("k lies on device meta", "Nearest supported: cpu")),
        *(
            (name, X.to(dtype), TypeError, (f"{name} has dtype {dtype}; expected float16", "Pass"))
            for name in "qkv"
            for dtype in (torch.float8_e4m3fn, torch.int64, torch.complex64)
        ),
    ],
)
def test_arrays_of_other_kinds_are_named(name, x, kind, pieces):
    given = {"q": X, "k": X, "v": X, name: x}
    refused(lambda: varlen_attention(**given, plan=PLAN), *pieces, kind=kind)


def test_arrays_of_numpy_learn_which_calls_take_them():
    x = np.zeros((12, 1, 8))
    refused(
        lambda: varlen_attention(x, x, x, PLAN),
        "or call plan.attention or, over a group, plan.attention_rank",
        kind=TypeError,
    )


def test_tensors_on_the_cpu_are_not_for_lengths_on_a_gpu(monkeypatch):
    play(monkeypatch)
    plan = rs.DevicePlan(max_sequences=2, num_rows_q=12)
    refused(
        lambda: varlen_attention(X, X, X, plan),
        "q lies on the CPU beside a DevicePlan; expected the GPU of its lengths",
        "Pass q.cuda(), or a Plan",
        kind=TypeError,
    )


def test_without_cuda_what_was_asked_for_is_named(monkeypatch):
    monkeypatch.setattr(cuda, "problem", lambda: "there is no GPU")
    cuda.require_cuda.cache_clear()
    refused(
        lambda: rs.DevicePlan(max_sequences=2, num_rows_q=12),
        "a DevicePlan, whose lengths lie on a GPU, cannot run here: there is no GPU",
        "Nearest supported: ringside.plan(layout, ...)",
        kind=rs.Unsupported,
    )
    refused(
        lambda: PLAN.attention(X, X, X, backend="cuda"),
        'backend="cuda" cannot run here: there is no GPU',
        'Nearest supported: backend="reference"',
        kind=rs.Unsupported,
    )


@pytest.mark.parametrize("name", ["deterministic", "return_lse", "keep_kv"])
@pytest.mark.parametrize("x", ["no", None, 1, torch.tensor(True)])
def test_switches_are_true_or_false(name, x):
    pieces = (f"{name} is ", "; expected True or False")
    refused(lambda: varlen_attention(X, X, X, PLAN, **{name: x}), *pieces, kind=TypeError)
    with rs.init() as group:
        refused(
            lambda: varlen_attention(X, X, X, PLAN, group=group, **{name: x}),
            *pieces,
            kind=TypeError,
        )


def test_switches_of_numpy_are_taken():
    yes, no = np.True_, np.False_
    wanted = varlen_attention(X, X, X, PLAN)
    out, _ = varlen_attention(X, X, X, PLAN, deterministic=yes, return_lse=yes, keep_kv=no)
    assert torch.equal(out, wanted)
