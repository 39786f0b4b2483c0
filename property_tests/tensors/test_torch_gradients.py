"""torch's gradients through every call that takes tensors: right, or refused, never dropped."""

import numpy as np
import pytest
import ringside as rs
import torch
from ringside.torch import varlen_attention

LAYOUT = rs.PackedLayout.from_lengths([5, 7, 0, 3], pad_to_multiple_of=4)
ROWS = LAYOUT.num_rows
PLAN = rs.plan(LAYOUT, cp_size=2, num_heads=4, num_kv_heads=2)
PADDED = LAYOUT.cu_seqlens_padded


def rows(*shape, seed=0):
    torch.manual_seed(seed)
    return torch.randn(shape or (ROWS, 3), dtype=torch.float64, requires_grad=True)


def heads(seed=0):
    shapes = [(ROWS, 4, 8), (ROWS, 2, 8), (ROWS, 2, 4), (4,)]
    return tuple(rows(*shape, seed=seed + i) for i, shape in enumerate(shapes))


MOVES = {
    "shard": lambda x: PLAN.shard(x, 1),
    "shard by name": lambda x: PLAN.shard(x=x, rank=0, side="k"),
    "unshard": lambda x: PLAN.unshard([x[PLAN.row_indices(rank)] for rank in range(2)]),
    "pack": lambda x: LAYOUT.pack([x[:5], x[5:12], x[:0], x[13:16]], fill_value=7),
    "unpack": lambda x: torch.cat(LAYOUT.unpack(x)),
    "roll": lambda x: LAYOUT.roll(x, 2, fill_value=7),
    "roll of a plan": lambda x: PLAN.roll(x),
    "to ranks": lambda x: rs.thd.sequence_order_to_cp_rank_order(x, PADDED, 2),
    "from ranks": lambda x: rs.thd.cp_rank_order_to_sequence_order(x, PADDED, 2),
}


@pytest.mark.parametrize("name", MOVES)
def test_gradients_of_rows_move_back(name):
    """Against index_select of the rows that numbers show to move there; and again by autograd."""
    move, x = MOVES[name], rows()
    found = move(x)
    numbers = move(torch.arange(ROWS)[:, None])[:, 0]
    padding = ~torch.isin(found, x).all(dim=1)
    source = x.index_select(0, numbers[~padding])
    assert torch.equal(found[~padding], source)
    assert padding.any() or name not in ("pack", "roll")
    dout = torch.randn_like(found)
    dout[padding] = torch.nan
    (wanted,) = torch.autograd.grad(source, x, dout[~padding])
    (got,) = torch.autograd.grad(found, x, dout, create_graph=True)
    assert torch.equal(got, wanted)
    assert torch.autograd.gradgradcheck(lambda x: move(x).square(), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rows_of_tensors_that_require_a_gradient_are_the_same_to_the_bit(dtype):
    for name, move in MOVES.items():
        x = rows().to(dtype)
        got, wanted = move(x), move(x.detach())
        assert got.requires_grad and not wanted.requires_grad, name
        assert got.dtype == dtype and torch.equal(got, wanted)
        with torch.no_grad():
            assert not move(x).requires_grad


def test_a_projection_learns_through_shards():
    """As in the README: shards of a rank, attention over a group, a loss."""
    layout = rs.PackedLayout.from_lengths([5, 7])
    plan = rs.plan(layout, cp_size=1)
    torch.manual_seed(0)
    project = torch.nn.Linear(6, 24, dtype=torch.float64)
    x = torch.randn(12, 6, dtype=torch.float64)
    with rs.init() as group:
        q, k, v = (plan.shard(y[:, None], group.rank) for y in project(x).split(8, dim=1))
        plan.unshard([varlen_attention(q, k, v, plan, group=group)]).square().sum().backward()
    got = project.weight.grad.clone()
    project.zero_grad()
    q, k, v = (y[None] for y in project(x).split(8, dim=1))
    loss = sum(
        torch.nn.functional.scaled_dot_product_attention(
            q[:, rows], k[:, rows], v[:, rows], is_causal=True
        )
        .square()
        .sum()
        for rows in (slice(0, 5), slice(5, 12))
    )
    loss.backward()
    torch.testing.assert_close(got, project.weight.grad, rtol=1e-11, atol=1e-11)


def flash(q, k, v, **more):
    offsets = (PADDED, PADDED, 8, 8)
    used = {"seqused_q": LAYOUT.lengths, "seqused_k": LAYOUT.lengths}
    return rs.flash_attn_varlen_func(q, k, v, *offsets, causal=True, **used, **more)


CALLS = {
    "plan": lambda *x, **more: PLAN.attention(*x, **more)[0],
    "definition": lambda *x, **more: rs.attention(*x, LAYOUT, **more)[0],
    "flash": flash,
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("spelled", ["keyword", "options"])
def test_attention_has_the_gradients_of_varlen_attention(name, spelled):
    more = {"softcap": 2.0, "dropout_p": 0.3, "dropout_seed": 5}

    def said(sink):
        given = {**more, "sink": sink}
        return given if spelled == "keyword" else {"options": rs.Options(**given)}

    found = []
    for call in (CALLS[name], lambda *x, **more: varlen_attention(*x, PLAN, **more)):
        *x, sink = heads()
        out = call(*x, **said(sink))
        found.append([out.detach(), *torch.autograd.grad(out.square().sum(), (*x, sink))])
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-11)
    *x, sink = heads()
    with torch.no_grad():
        assert not CALLS[name](*x, **said(sink)).requires_grad


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_those_of_finite_differences(name):
    assert torch.autograd.gradcheck(lambda q, k, v, sink: CALLS[name](q, k, v, sink=sink), heads())


@pytest.mark.parametrize("qkv_format", ["bshd", "sbhd"])
def test_dense_batches_are_differentiable(qkv_format):
    layout = rs.PackedLayout.from_lengths([6, 6])
    plan = rs.plan(layout, cp_size=2)
    q, k, v = (rows(2, 6, 1, 4, seed=i) for i in range(3))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    wanted = sdpa(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True).transpose(1, 2)
    wanted = [wanted, *torch.autograd.grad(wanted.square().sum(), (q, k, v))]
    for call in (plan.attention, rs.attention):
        x = [y if qkv_format == "bshd" else y.transpose(0, 1) for y in (q, k, v)]
        out, lse, max_logit = call(*x, qkv_format=qkv_format, return_max_logit=True)
        assert not lse.requires_grad and not max_logit.requires_grad
        out = out if qkv_format == "bshd" else out.transpose(0, 1)
        got = [out, *torch.autograd.grad(out.square().sum(), (q, k, v))]
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_a_number_for_all_heads_gets_the_sum_of_their_gradients():
    *x, sink = heads()
    one = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    (got,) = torch.autograd.grad(PLAN.attention(*x, sink=one)[0].sum(), one)
    alike = torch.full_like(sink, 0.5).requires_grad_()
    (each,) = torch.autograd.grad(PLAN.attention(*x, sink=alike)[0].sum(), alike)
    torch.testing.assert_close(got, each.sum())


def test_what_follows_out_is_not_differentiable():
    *x, _ = heads()
    assert not PLAN.attention(*x)[1].requires_grad
    (zero,) = torch.autograd.grad(PLAN.attention(*x)[0].sum() * 0, x[0])
    assert not zero.any()


def test_no_gradient_of_slopes_is_dropped():
    *x, slopes = heads()
    options = rs.Options(alibi_slopes=slopes)
    plan = rs.plan(LAYOUT, cp_size=1, num_heads=4, num_kv_heads=2)
    for more in ({"alibi_slopes": slopes}, {"options": options}):
        for call in (*CALLS.values(), lambda *x, **more: varlen_attention(*x, PLAN, **more)):
            with pytest.raises(rs.Unsupported, match=r"alibi_slopes requires a gradient.*Nearest"):
                call(*x, **more)
            with torch.no_grad():
                call(*x, **more)
        with pytest.raises(rs.Unsupported, match="alibi_slopes"), rs.init() as group:
            varlen_attention(*x, plan, group=group, **more)


@pytest.mark.parametrize("name", [*MOVES, *CALLS])
def test_forward_derivatives_are_refused(name):
    """torch's forward mode asks of tensors that require no gradient, too."""
    forward_ad = torch.autograd.forward_ad
    given = [x.detach() for x in ([rows()] if name in MOVES else heads()[:3])]
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="jvp"):
        (MOVES | CALLS)[name](*(forward_ad.make_dual(x, torch.ones_like(x)) for x in given))


def test_halves_serve_a_function_of_the_users_own():
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            out, lse = PLAN.attention(q, k, v)
            ctx.save_for_backward(q, k, v, out, lse)
            return out

        @staticmethod
        def backward(ctx, dout):
            return PLAN.attention_backward(dout, *ctx.saved_tensors)

    *x, _ = heads()
    got = torch.autograd.grad(Own.apply(*x).square().sum(), x)
    wanted = torch.autograd.grad(PLAN.attention(*x)[0].square().sum(), x)
    assert all(map(torch.equal, got, wanted))
    with pytest.raises(rs.Unsupported, match="requires a gradient"):  # once more through backward
        torch.autograd.grad(Own.apply(*x).square().sum(), x, create_graph=True)


def test_numbers_are_the_same_with_and_without_gradients():
    *x, sink = heads()
    for call in CALLS.values():
        with torch.no_grad():
            wanted = call(*x, sink=sink)
        assert torch.equal(call(*x, sink=sink), wanted)
        plain = call(*(y.detach().numpy() for y in x), sink=sink.detach().numpy())
        np.testing.assert_array_equal(wanted, plain)


def of_group(q, k, v, sink, again):
    plan = rs.plan(LAYOUT, cp_size=1, num_heads=4, num_kv_heads=2)
    with rs.init() as group:
        out = varlen_attention(q, k, v, plan, sink=sink, group=group)
        return torch.autograd.grad(out.square().sum(), q, create_graph=again)[0]


def gradient_of(call):
    def gradient(q, k, v, sink, again):
        return torch.autograd.grad(call(q, k, v, sink).square().sum(), q, create_graph=again)[0]

    return gradient


def operator(q, k, v, sink):
    rest = (PLAN._number, 0, None, 0.0, 0.0, 0, False)
    return torch.ops.ringside.varlen_attention(q, k, v, sink, None, *rest)[0]


TWICE = {
    "varlen_attention": gradient_of(lambda q, k, v, s: varlen_attention(q, k, v, PLAN, sink=s)),
    "varlen_attention of a rank": of_group,
    "the operator": gradient_of(operator),
    "the plan": gradient_of(lambda q, k, v, s: PLAN.attention(q, k, v, sink=s)[0]),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_gradient_of_gradients_is_refused(name):
    """Nothing computes it, and without it a penalty of gradients would have none of its own."""
    q, k, v, sink = heads()
    gradient = TWICE[name](q, k, v, sink, True)
    kinds, text = (rs.Unsupported, RuntimeError), r"gradient of a gradient|no autograd formula"
    with pytest.raises(kinds, match=text):
        torch.autograd.grad(q.square().sum() + gradient.sum(), q)
    gradient = TWICE[name](q, k, v, sink, True)
    with pytest.raises(kinds, match=text):
        gradient.sum().backward()
    assert torch.equal(gradient, TWICE[name](q, k, v, sink, False))
