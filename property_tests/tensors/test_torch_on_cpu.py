"""ringside.torch on the CPU: gradients, and one opaque operator under torch.compile."""

import gc

import pytest
import ringside as rs
import torch
from ringside import _torch_operator as operator
from ringside.torch import varlen_attention

LAYOUT = rs.PackedLayout.from_lengths([5, 3, 9], pad_to_multiple_of=2)
HEADS = {"num_heads": 4, "num_kv_heads": 2}


def tensors(dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    shapes = [(LAYOUT.num_rows, 4, 8), (LAYOUT.num_rows, 2, 8), (LAYOUT.num_rows, 2, 4), (4,)]
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)


def plan_of(mask=None, **more):
    return rs.plan(LAYOUT, mask=mask or rs.Mask.causal(), **{"cp_size": 2, **HEADS, **more})


@pytest.mark.parametrize(
    "options", [{}, {"softcap": 2.0, "alibi_slopes": 0.25}, {"dropout_p": 0.4, "dropout_seed": 3}]
)
def test_gradients_are_those_of_finite_differences(options):
    plan = plan_of()

    def call(q, k, v, sink):
        return varlen_attention(q, k, v, plan, sink=sink, **options)

    assert torch.autograd.gradcheck(call, tensors())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_any_dtype_is_near_float64(dtype):
    narrow = tensors(dtype)
    wide = [x.detach().double().requires_grad_() for x in narrow]
    dout = torch.randn(LAYOUT.num_rows, 4, 4, dtype=dtype)
    grads = []
    for x in (narrow, wide):
        out, lse = varlen_attention(*x[:3], plan_of(), sink=x[3], return_lse=True)
        assert out.dtype == x[0].dtype and not lse.requires_grad
        grads.append([out, *torch.autograd.grad(out, x, dout.to(x[0].dtype))])
    unit = torch.finfo(dtype).eps
    for got, wanted in zip(*grads, strict=True):
        assert got.dtype == dtype
        bound = 4 * unit * (1 + wanted.abs().max())  # out and lse enter the gradients rounded
        assert (got.double() - wanted).abs().max() <= bound


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_what_nobody_differentiates_is_the_same(dtype):
    *x, sink = tensors(dtype)
    kept = varlen_attention(*x, plan_of(), sink=sink, return_lse=True)
    constant = [y.detach() for y in (*x, sink)]
    alone = varlen_attention(*constant[:3], plan_of(), sink=constant[3], return_lse=True)
    with torch.no_grad():
        asked_for_none = varlen_attention(*x, plan_of(), sink=sink, return_lse=True)
    for one in range(4):  # which is watched though the others are not
        mixed = [y if i == one else constant[i] for i, y in enumerate((*x, sink))]
        made_by = varlen_attention(*mixed[:3], plan_of(), sink=mixed[3]).grad_fn
        assert type(made_by).__name__ == "_VarlenAttentionBackward"  # not the plan's own
    assert kept[0].requires_grad
    for got in (alone, asked_for_none):
        assert not got[0].requires_grad and not got[1].requires_grad
        assert torch.equal(got[0], kept[0]) and torch.equal(got[1], kept[1])


def test_transforms_of_torch_are_refused_not_ignored():
    *x, _ = (y.detach() for y in tensors())
    plan, forward_ad = plan_of(), torch.autograd.forward_ad
    with forward_ad.dual_level(), torch.no_grad(), pytest.raises(NotImplementedError, match="jvp"):
        varlen_attention(*(forward_ad.make_dual(y, torch.ones_like(y)) for y in x), plan)
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda q: varlen_attention(q, *x[1:], plan).sum())(x[0])
    with pytest.raises(RuntimeError, match="setup_context"), torch.no_grad():
        torch.func.vmap(lambda q: varlen_attention(q, *x[1:], plan))(torch.stack([x[0], x[0]]))


def test_one_operator_compiles_and_differs_by_plan():
    causal, full = plan_of(), plan_of(rs.Mask.full())

    def loss(q, k, v, sink, plan):
        out = varlen_attention(2 * q, k, v, plan, sink=sink, softcap=3.0, deterministic=True)
        return out.square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    wanted = {}
    for plan in (causal, full, causal):
        given = tensors()
        wanted[plan._number] = torch.autograd.grad(loss(*given, plan), given)
        got = torch.autograd.grad(compiled(*given, plan), given)
        assert all(map(torch.equal, got, wanted[plan._number]))
    assert not torch.equal(wanted[causal._number][0], wanted[full._number][0])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"options": rs.Options(softcap=2.0, sink=0.5)},
        {"options": rs.Options(sink=0.5), "softcap": 2.0},
    ],
)
def test_options_of_either_spelling_compile(options):
    plan, (q, k, v, _) = plan_of(), tensors()
    compiled = torch.compile(
        lambda q, k, v: varlen_attention(q, k, v, plan, return_lse=True, **options),
        fullgraph=True,
        backend="aot_eager",
    )
    eager = varlen_attention(q, k, v, plan, return_lse=True, **options)
    for got, wanted in zip(compiled(q, k, v), eager, strict=True):
        assert torch.equal(got, wanted)


def test_the_operator_is_what_torch_asks_of_one():
    q, k, v, sink = tensors()
    plan = plan_of()
    rest = (plan._number, 0, None, 0.0, 0.0, 0, False)
    torch.library.opcheck(operator.varlen_attention, (q, k, v, sink, None, *rest))
    torch.library.opcheck(
        operator.varlen_attention, (q.float(), k.float(), v.float(), None, None, *rest)
    )


def test_a_plan_that_is_gone_or_changed_is_refused():
    q, k, v, _ = tensors()
    plan = plan_of()
    number = plan._number
    rest = (None, 0.0, 0.0, 0, False)
    with pytest.raises(RuntimeError, match="lengths were set anew"):
        operator.varlen_attention(q, k, v, None, None, number, 1, *rest)
    del plan
    gc.collect()
    with pytest.raises(RuntimeError, match="plan that is gone"):
        operator.varlen_attention(q, k, v, None, None, number, 0, *rest)


def test_a_gradient_that_nobody_asked_for_is_none():
    q, k, v, _ = tensors()
    out, lse = varlen_attention(q, k, v, plan_of(), return_lse=True)
    zero = torch.autograd.grad(out, q, torch.zeros_like(out))[0]
    assert zero.shape == q.shape and not zero.any() and lse.dtype == torch.float64


def test_the_rank_of_a_process_differentiates_on_a_cpu():
    plan = plan_of(cp_size=1)
    dout = torch.randn(LAYOUT.num_rows, 4, 4, dtype=torch.float64)
    found = []
    with rs.init() as group:
        for more in ({}, {"group": group}):
            q, k, v, sink = tensors()
            out, lse = varlen_attention(q, k, v, plan, sink=sink, return_lse=True, **more)
            grads = torch.autograd.grad(out, (q, k, v, sink), plan.shard(dout, 0))
            found.append([out.detach(), lse, *grads])
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("more", "kind", "text"),
    [
        ({"soft_cap": 2.0}, TypeError, "unexpected keyword argument 'soft_cap'.*Pass softcap"),
        ({"bias": 1.0}, rs.Unsupported, "Nearest supported: alibi_slopes"),
        ({"options": rs.Options(softcap=2.0), "softcap": 3.0}, TypeError, "options that set"),
    ],
)
def test_nothing_is_dropped_while_torch_traces(more, kind, text):
    plan, (q, k, v, _) = plan_of(), tensors()

    def call(q, k, v):
        return varlen_attention(q, k, v, plan, **more)

    with pytest.raises(kind, match=text):
        torch.compile(call, backend="aot_eager")(q, k, v)
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"varlen_attention|bias|exception"):
        torch.compile(call, backend="aot_eager", fullgraph=True)(q, k, v)
