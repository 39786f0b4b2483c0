"""Options that are constants to every call: a gradient by one is refused, never dropped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import ringside as rs
import torch
from ringside.torch import varlen_attention

LAYOUT = rs.PackedLayout.from_lengths([5, 7])
HEADS = {"num_heads": 4, "num_kv_heads": 2}
PLAN = rs.plan(LAYOUT, cp_size=2, **HEADS)
ALONE = rs.plan(LAYOUT, cp_size=1, **HEADS)
SHAPES = [(12, 4, 8), (12, 2, 8), (12, 2, 4)]
NUMBERS = ("softmax_scale", "softcap", "dropout_p")
FLASH = ([0, 5, 12], [0, 5, 12], 7, 7)


def arrays():
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64) for shape in SHAPES]


def one(x=0.5):
    return torch.tensor(x, dtype=torch.float64, requires_grad=True)


def saved():
    with torch.no_grad():
        out, lse = PLAN.attention(*arrays())
    return torch.ones_like(out), out, lse


def of_rank(call):
    def made(*x, **more):
        with rs.init() as group:
            return call(*x, group=group, **more)

    return made


def backward(call):
    def made(*x, **more):
        dout, out, lse = saved()
        return call(dout, *x, out, lse, **more)

    return made


def piece(*x, **more):
    return rs.MicroSequenceBuffer(LAYOUT, [0, 12], **HEADS).forward(0, *x, **more)


CALLS = {
    "attention": lambda *x, **more: rs.attention(*x, LAYOUT, **more),
    "attention_backward": backward(lambda *x, **kw: rs.attention_backward(*x, LAYOUT, **kw)),
    "flash": lambda *x, **more: rs.flash_attn_varlen_func(*x, *FLASH, **more),
    "plan": PLAN.attention,
    "plan's backward": backward(PLAN.attention_backward),
    "rank": of_rank(ALONE.attention_rank),
    "rank's backward": of_rank(backward(ALONE.attention_backward_rank)),
    "piece": piece,
    "varlen": lambda *x, **more: varlen_attention(*x, PLAN, **more),
    "varlen of a rank": of_rank(lambda *x, **more: varlen_attention(*x, ALONE, **more)),
}
of_calls = pytest.mark.parametrize("name", CALLS)


@of_calls
@pytest.mark.parametrize("option", NUMBERS)
def test_numbers_that_require_a_gradient_are_refused(name, option):
    nearest = rf"Nearest supported: .*constant, float\({option}.detach\(\)\)$"
    text = rf"^{option} requires a gradient, which no backward pass computes\. {nearest}"
    with pytest.raises(rs.Unsupported, match=text):
        CALLS[name](*arrays(), **{option: one()})
    assert torch.isfinite(CALLS[name](*arrays(), **{option: float(one().detach())})[0]).all()


def test_a_scale_may_be_learnt_through_q():
    """As the refusal of the scale says."""
    q, k, v = arrays()
    scale = one()
    got = rs.attention(q * scale, k, v, LAYOUT, softmax_scale=1.0)[0]
    torch.testing.assert_close(got, rs.attention(q, k, v, LAYOUT, softmax_scale=0.5)[0])
    assert torch.autograd.grad(got.square().sum(), scale)[0] != 0


@of_calls
@pytest.mark.parametrize("several", [list, tuple, torch.nn.ParameterList])
@pytest.mark.parametrize("option", ["sink", "alibi_slopes"])
def test_lists_of_tensors_that_require_a_gradient_are_refused(name, option, several):
    given = several([one() for _ in range(4)])
    nearest = "one tensor \\[num_heads\\]" if option == "sink" else "a sink that requires one"
    text = rf"^{option} requires a gradient, which no .*\. Nearest supported: {nearest}.*constant"
    with pytest.raises(rs.Unsupported, match=text):
        CALLS[name](*arrays(), **{option: given})
    with pytest.raises(rs.Unsupported, match=text):
        rs.Options(**{option: given})
    with torch.no_grad():
        got = CALLS[name](*arrays(), **{option: given})[0]
        other = CALLS[name](*arrays(), options=rs.Options(**{option: given}))[0]
        wanted = CALLS[name](*arrays(), **{option: [0.5] * 4})[0]
    assert torch.equal(got, wanted) and torch.equal(other, wanted)


@of_calls
def test_slopes_that_require_a_gradient_name_what_may(name):
    """Also where the call has no gradient at all: the one that has refuses slopes, too."""
    slopes = torch.ones(4, requires_grad=True)
    text = r"^alibi_slopes requires a gradient, .*\. Nearest supported: a sink that requires one"
    for more in ({"alibi_slopes": slopes}, {"options": rs.Options(alibi_slopes=slopes)}):
        with pytest.raises(rs.Unsupported, match=text):
            CALLS[name](*arrays(), **more)


def test_a_sink_in_options_is_named_as_one_beside_them():
    """Options have no detach()."""
    sink = torch.ones(4, requires_grad=True)
    with pytest.raises(rs.Unsupported, match=r"^sink requires a gradient.*sink\.detach\(\)"):
        CALLS["rank"](*arrays(), options=rs.Options(sink=sink))


def test_calls_ahead_of_others_take_what_these_take():
    for sink in (torch.ones(4, requires_grad=True), torch.ones(4).bfloat16()):
        of_rank(ALONE.prepare)(head_dim=8, sink=sink)


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
@pytest.mark.parametrize("name", ["attention", "flash", "plan", "rank", "piece"])
@pytest.mark.parametrize("option", [*NUMBERS, "sink", "alibi_slopes"])
def test_options_that_jax_traces_are_refused(name, kind, option):
    x = [kind(y.numpy(), np.float32) for y in arrays()]
    ways = [lambda s: {option: s}, lambda s: {"options": rs.Options(**{option: s})}]
    if option not in NUMBERS:
        ways += [
            lambda s: {option: [s] * 4},
            lambda s: {"options": rs.Options(**{option: [s] * 4})},
        ]
    for way in ways:
        with pytest.raises(rs.Unsupported, match=r"inside jax.jit or jax.grad.*Nearest supported"):
            jax.grad(lambda s, way=way: CALLS[name](*x, **way(s))[0].sum())(0.5)


def test_a_story_has_no_gradient():
    q, k = (x.requires_grad_() for x in arrays()[:2])
    text = r"^q requires a gradient, which Plan.story would not pass on\. Nearest supported: "
    with pytest.raises(rs.Unsupported, match=text + r".*q\.detach\(\)"):
        PLAN.story(11, q, k)
    wanted = PLAN.story(11, q.detach().numpy(), k.detach().numpy())
    with torch.no_grad():
        assert PLAN.story(11, q, k) == wanted
    narrow = [x.detach().bfloat16() for x in (q, k)]
    assert PLAN.story(11, *narrow) == PLAN.story(11, *(x.float().numpy() for x in narrow))
