"""Calls that are not the same on every rank, though alike in all that is agreed on, never mix rows.

One set of processes serves all tests, as torch takes long to import; each test makes its group.
"""

import re
import time

import numpy as np
import pytest
from group_processes import require_failure, started, within

SOON = 2.0  # seconds
SETTING = """
plan = rs.plan(rs.PackedLayout([0, 40, 64]), cp_size=2, mask=rs.Mask.full())
x = np.random.default_rng(0).normal(size=(64, 1, 8))
shards = [plan.shard(x, group.rank)] * 3
def tensors():
    return [torch.tensor(x, requires_grad=True) for x in shards]
def call(**more):
    return plan.attention_rank(*shards, group=group, **more)
def backward(dout=shards[0], **more):
    rest = shards[0], shards[0][:, :, 0].T.copy()
    return plan.attention_backward_rank(dout, *shards, *rest, group=group, **more)
def torch_call(plan=plan, **more):
    return varlen_attention(*tensors(), plan, group=group, **more)
torch_call().sum().backward()
backward()
"""


@pytest.fixture(scope="module")
def workers():
    pytest.importorskip("torch")
    with started(2) as both:
        both.all("import torch\ntorch.set_num_threads(1)\nfrom ringside.torch import *")
        yield both


@pytest.fixture
def pair(workers):
    """Both with a group that has made calls."""
    workers.make_group([[0], [1]], timeout_s=20)
    workers.all(SETTING)
    yield workers
    workers.all("group.close()")


WRONG = {
    "rows": ("call()", "plan.attention_rank(shards[0][1:], *shards[1:], group=group)", "rows; ran"),
    "an option": ("call()", "call(soft=1)", "soft"),
    "an argument": ("call()", "plan.attention_rank(shards[0], group=group)", "v_r"),
    "a flag": ("call()", "call(keep_kv=3)", "keep_kv"),
    "a gradient": ("call()", "plan.attention_rank(*tensors(), group=group)", "requires a gradient"),
    "of backward": ("backward()", "backward(shards[0][1:])", "dout_r"),
    "keys kept": ("backward()", "backward(kept_kv=3)", "kept_kv is a int"),
    "a plan": ("torch_call()", "torch_call('plan')", "plan is a str; expected"),
    "for torch": ("torch_call()", "torch_call(keep_kv=3)", "keep_kv"),
    "not agreed on": ("call(softcap=2.0)", "call(softcap='2')", "softcap"),
}


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("what", WRONG)
def test_what_one_rank_refuses_the_others_do_not_compute_with_its_next_rows(pair, what, waits):
    """Who refuses goes on, and its next call is of other rows, but alike."""
    right, wrong, text = WRONG[what]
    if waits:
        pair[0].tell(right)
        time.sleep(0.2)
    pair[1].tell(wrong)
    with within(SOON):
        error = pair[1].error()
        assert text in error.text, error
        pair[1].tell(right)
        if not waits:
            pair[0].tell(right)
        for told in pair.errors():
            require_failure(told, [1], "rank 1 made no call", f"It raised {error.kind}: ", text)


@pytest.mark.parametrize("what", WRONG)
def test_what_all_refuse_leaves_the_group_as_it_was(pair, what):
    _, wrong, text = WRONG[what]
    pair.tell_all(wrong)
    for error in pair.errors():
        assert text in error.text, error
    same = "answer = np.array_equal(call()[0], plan.shard(plan.attention(x, x, x)[0], group.rank))"
    assert pair.all(same) == [True, True]


def test_a_backward_pass_that_one_rank_refuses_is_none_of_its_next(pair):
    pair.all(
        "ins = tensors(); both = [x * 1 for x in ins]\n"
        "out = varlen_attention(*both, plan, group=group)"
    )
    pair[1].do("both[0].data; both[1].mul_(2)")
    pair.tell_all("out.sum().backward()")
    with within(SOON):
        assert "modified by an inplace operation" in pair[1].error().text
        require_failure(pair[0].error(), [1], "rank 1 made no call", "inplace")


LAYERS = """
ins = [[torch.tensor(s * x, requires_grad=True) for x in shards] for s in (1.0, 2.0)]
outs = [varlen_attention(*x, plan, group=group, keep_kv=keeps) for x in ins]
"""


@pytest.mark.parametrize("keeps", [False, True])
def test_backward_passes_in_another_order_are_not_of_one_layer(pair, keeps):
    """Their calls are alike but for the forward call that each belongs to."""
    pair.all(LAYERS, keeps=keeps)
    pair[0].tell("for out in outs: out.sum().backward()")
    pair[1].tell("for out in outs[::-1]: out.sum().backward()")
    with within(SOON):
        for error in pair.errors():
            require_failure(error, error.ranks, "same calls in the same order")


def test_backward_passes_in_one_order_of_their_own(pair):
    """Rows are alike, so that gradients are, too, also in the second pass over one graph."""
    pair.all(LAYERS, keeps=False)
    found = pair.all(
        "for i in (1, 0, 0): outs[i].sum().backward(retain_graph=True)\n"
        "answer = ins[0][2].grad.sum().item(), ins[1][2].grad.sum().item()"
    )
    sums = np.sum(found, axis=0)  # of dv: a row's weights sum to one
    assert sums == pytest.approx([2 * 64 * 8, 64 * 8])


@pytest.mark.parametrize("form", ["tensors", "a JAX array"])
def test_bfloat16_on_one_rank_is_another_dtype(pair, form):
    """It becomes float32 before it is read."""
    made = {"tensors": "torch.tensor(x).to(torch.{})", "a JAX array": "jnp.asarray(x, jnp.{})"}[
        form
    ]
    if "jnp" in made:
        pytest.importorskip("jax")
        pair.all("import jax.numpy as jnp")
    found = "plan.attention_rank(*rows, group=group)[0].dtype"
    given = f"rows = [{made} for x in shards]; answer = str({found})"
    pair[0].tell(given.format("bfloat16"))
    pair[1].tell(given.format("float32"))
    for error in pair.errors():
        assert "rank 0: dtypes (bfloat16/bfloat16/bfloat16); rank 1: dtypes (float32" in error.text
    pair.all("plan.prepare(group, head_dim=8, dtype='bfloat16'); before = group._rounds")
    assert all("bfloat16" in answer for answer in pair.all(given.format("bfloat16")))
    assert pair.all("answer = group._rounds - before") == [0, 0]


def test_bfloat16_beside_float32_in_one_process_is_refused(workers):
    workers[0].do("alone = rs.init(ranks_per_process=2)")
    workers[0].do("plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)\nx = torch.ones(4, 1, 8)")
    call = "plan.attention_rank(*[[{}, x]] * 3, group=alone)"
    workers[0].tell(call.format("x.bfloat16()"))
    assert "q_r has dtypes ['bfloat16', 'float32']; expected one" in workers[0].error().text
    workers[0].do(call.format("x"))
    workers[0].do("plan.attention_rank(*[torch.ones(2, 4, 1, 8).bfloat16()] * 3, group=alone)")
    workers[0].do("alone = rs.init(); plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=1)")
    workers[0].do("plan.attention_rank(*[list(torch.ones(8, 1, 8))] * 3, group=alone)")


FLOATS = "plan.attention_rank(*[x.astype('float32') for x in shards], group=group)"
LATER = {
    "options": ("call(softcap=2.0)", "call(softcap=3.0)", "rank 1: options \\(softcap=3.0\\)"),
    "dtypes": ("call()", FLOATS, "rank 1: dtypes \\(float32/float32/float32\\)"),
    "of backward": ("backward(softcap=2.0)", "backward(softcap=3.0)", "options \\(softcap=3.0\\)"),
}


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("what", LATER)
def test_what_differs_in_a_later_call_is_named(pair, what, waits):
    """All but one rank take it for agreed on, and begin: too late to refuse it and go on."""
    known, other, text = LATER[what]
    pair.all(known)
    pair[0].tell(known)
    time.sleep(0.2 if waits else 0)
    pair[1].tell(other)
    with within(SOON):
        for error in pair.errors():
            require_failure(error, [0, 1], "make different calls")
            assert re.search(text, error.text), error
