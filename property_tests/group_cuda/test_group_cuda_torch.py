"""Ranks under autograd, in captured graphs, and over torch's own process group."""

import dataclasses

import numpy as np
import pytest
import ringside as rs
from cuda_cases import REASON
from group_cuda import ARRAYS, virtual
from group_processes import free_port, started
from ringside.testing import Case

pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no GPU test: {REASON}")

CASE = Case(rs.PackedLayout([0, 90, 93, 190]), cp_size=2, num_heads=4, num_kv_heads=2, head_dim=16)
START = """
import torch
torch.cuda.set_device(device)
from group_cuda import Shards, on_host
shards = Shards(case, group, "float32", device)
"""


def devices():
    import torch

    return torch.cuda.device_count()


def places():
    return [{"device": i % devices()} for i in range(2)]


@pytest.fixture(scope="module")
def pair():
    with started(2) as workers:
        workers.make_group([[0], [1]], timeout_s=20)
        workers.all(START, places(), case=CASE)
        yield workers


def whole(parts, name):
    return CASE.plan().unshard(parts, side="k" if name in ("dk", "dv") else "q")


def test_autograd_gives_the_gradients_of_the_rows(pair):
    found = pair.all(
        """
from ringside.torch import varlen_attention
q, k, v = (x.clone().requires_grad_() for x in (shards.q, shards.k, shards.v))
sink = torch.zeros(4, device=q.device, requires_grad=True)
out = varlen_attention(q, k, v, shards.plan, group=group, deterministic=True, sink=sink)
out.backward(shards.dout)
answer = [on_host(x) for x in (out, q.grad, k.grad, v.grad, sink.grad)]
"""
    )
    want, _ = virtual(dataclasses.replace(CASE, sink=0.0), "float32")
    for i, name in enumerate(("out", "dq", "dk", "dv")):
        np.testing.assert_array_equal(whole([x[i] for x in found], name), want[name], name)
    np.testing.assert_allclose(sum(x[4] for x in found), want["dsink"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("exchange", ["peer", "nccl"])
def test_a_captured_graph_replays_with_other_values(pair, exchange):
    if exchange == "nccl" and devices() < 2:
        pytest.skip("NCCL refuses two processes on one GPU, and there is one")
    found = pair.all(
        """
def both():
    out, lse = shards.forward(exchange)
    return (out, lse, *shards.backward(out, lse, exchange))
both()
group.synchronize()
kept = shards.q.clone()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = both()
answer = []
for factor in (0.0, 1.0, 1.0):
    shards.q.copy_(kept * factor)
    graph.replay()
group.synchronize()
torch.cuda.synchronize()
answer = [on_host(x) for x in captured]
""",
        exchange=exchange,
    )
    want, _ = virtual(CASE, "float32")
    for i, name in enumerate(ARRAYS[:5]):
        if name != "lse":
            np.testing.assert_array_equal(whole([x[i] for x in found], name), want[name], name)


def test_a_group_over_that_of_torch(pair):
    found = pair.all(
        """
import torch.distributed as dist
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=place, world_size=2)
with rs.init_from(timeout_s=20) as mine:
    other = Shards(case, mine, "float32", device)
    out = on_host(other.forward("auto")[0])
    mine.synchronize()
    answer = out, mine.rank, mine.explain()
dist.destroy_process_group()
""",
        [{"place": i, **x} for i, x in enumerate(places())],
        port=free_port(),
        case=CASE,
    )
    want, _ = virtual(CASE, "float32")
    np.testing.assert_array_equal(whole([x[0] for x in found], "out"), want["out"])
    assert [rank for _, rank, _ in found] == [0, 1]
    assert all("copy engines" in text for _, _, text in found)


def test_arrays_of_cupy(pair):
    pytest.importorskip("cupy")
    found = pair.all(
        """
import cupy
with cupy.cuda.Device(device):
    q, k, v, dout = (cupy.from_dlpack(x) for x in (shards.q, shards.k, shards.v, shards.dout))
    out, lse = shards.plan.attention_rank(q, k, v, group=group)
    kinds = {type(x).__module__.split(".")[0] for x in (out, lse)}
    gradients = shards.plan.attention_backward_rank(dout, q, k, v, out, lse, group=group)
    group.synchronize()
    cupy.cuda.Device(device).synchronize()
    answer = [cupy.asnumpy(x) for x in (out, *gradients)], kinds
"""
    )
    want, _ = virtual(CASE, "float32")
    for i, name in enumerate(("out", "dq", "dk", "dv")):
        np.testing.assert_array_equal(whole([x[i] for x, _ in found], name), want[name], name)
    assert all(kinds == {"cupy"} for _, kinds in found)


def test_prepare_leaves_nothing_to_agree_on(pair):
    found = pair.all(
        """
fresh = rs.plan(rs.PackedLayout([0, 64]), cp_size=2, comm="all_gather")
fresh.prepare(group, head_dim=16, dtype="float32", device=device)
rounds = group._rounds
x = torch.randn(32, 1, 16, device=f"cuda:{device}")
out, lse = fresh.attention_rank(x, x, x, group=group)
fresh.attention_backward_rank(x, x, x, x, out, lse, group=group)
group.synchronize()
answer = group._rounds - rounds, bool(torch.isfinite(out).all())
"""
    )
    assert found == [(0, True)] * 2


def test_arrays_that_do_not_fit_are_refused_in_all(pair):
    wrong = "fresh = rs.plan(rs.PackedLayout([0, {}]), cp_size=2)\n"
    wrong += "x = torch.randn({}, 1, 16, device=f'cuda:{{device}}')\n"
    wrong += "fresh.attention_rank(x, x, {}, group=group)"
    for rows, last, text in (
        (31, "x", "q_r has 31 rows"),
        (32, "x.cpu()", "v_r is not on the device of q_r"),
        (32, "x[..., :8].expand(32, 2, 8)", "v_r has heads and dimension (2, 8)"),
        (32, "x.half()", "v_r has dtype float16"),
    ):
        pair.tell_all(wrong.format(64, rows, last))
        for error in pair.errors():
            assert text in error.text, error
