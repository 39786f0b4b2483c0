"""Keys and values that are kept on GPUs, the largest score over ranks, and exchange="auto"."""

import time

import numpy as np
import pytest
import ringside as rs
from cuda_cases import REASON
from group_cuda import on_gpu, on_host, rounded, virtual
from group_processes import started
from ringside.testing import Case

pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no GPU test: {REASON}")

HOSTED = {"a rank a process": [[0], [1]], "two ranks a process": [[0, 2], [1, 3]]}
DOCUMENTS = rs.PackedLayout([0, 90, 90, 93, 190], [0, 100, 104, 110, 210])
SHAPES = {
    "float32": {"head_dim": 16, "head_dim_v": 8},
    "bfloat16": {"head_dim": 128},
    "converted": {"head_dim": 20, "head_dim_v": 12, "sink": 0.5},
}


def devices():
    import torch

    return torch.cuda.device_count()


def places():
    return [{"device": i % devices()} for i in range(2)]


@pytest.fixture(scope="module")
def pair():
    with started(2) as workers:
        workers.all(
            "from group_cuda import *; import torch; torch.cuda.set_device(device)", places()
        )
        for name, hosted in HOSTED.items():
            workers.make_group(hosted, name.replace(" ", "_"), timeout_s=20)
        yield workers


EXCHANGES = pytest.mark.parametrize("exchange", ["peer", "nccl"])


def require(exchange):
    if exchange == "nccl" and devices() < 2:
        pytest.skip("NCCL refuses two processes on one GPU, and there is one")


@EXCHANGES
@pytest.mark.parametrize("name", HOSTED)
@pytest.mark.parametrize("comm", rs.COMMS)
def test_kept_keys_give_the_same_bits_layer_by_layer(pair, comm, name, exchange):
    require(exchange)
    size = sum(map(len, HOSTED[name]))
    for shape, more in SHAPES.items():
        more = {"num_heads": 8, "num_kv_heads": 4, **more}
        a2a = {"a2a_size": 2} if comm == "a2a+p2p" else {}
        case = Case(DOCUMENTS, cp_size=size, comm=comm, **a2a, **more)
        dtype = "bfloat16" if shape == "bfloat16" else "float32"
        call = f"answer = kept_passes(case, {name.replace(' ', '_')}, dtype, exchange, device)"
        for wrong, nbytes in pair.all(call, places(), case=case, dtype=dtype, exchange=exchange):
            assert wrong == [] and nbytes > 0, (shape, wrong)


CASE = Case(rs.PackedLayout([0, 90, 93, 190]), cp_size=2, num_heads=4, num_kv_heads=2, head_dim=16)
START = """
shards = Shards(case, a_rank_a_process, "float32", device)
group = a_rank_a_process
"""


@EXCHANGES
def test_both_are_captured_in_a_graph(pair, exchange):
    require(exchange)
    pair.all(START, places(), case=CASE)
    found = pair.all(
        """
def both():
    out, lse, logits, kept = shards.forward(exchange, keep_kv=True, return_max_logit=True)
    return (out, lse, *shards.backward(out, lse, exchange, kept_kv=kept), logits)
both()
group.synchronize()
before, graph = shards.q.clone(), torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = both()
for factor in (0.0, 1.0, 1.0):
    shards.q.copy_(before * factor)
    graph.replay()
group.synchronize()
torch.cuda.synchronize()
answer = [on_host(x) for x in captured]
""",
        exchange=exchange,
    )
    want, max_logit = virtual(CASE, "float32")
    for i, name in enumerate(("out", "lse", "dq", "dk", "dv")):
        if name != "lse":
            side = "k" if name in ("dk", "dv") else "q"
            parts = CASE.plan().unshard([x[i] for x in found], side=side)
            np.testing.assert_array_equal(parts, want[name], name)
    for x in found:
        np.testing.assert_array_equal(x[5], max_logit)


@EXCHANGES
def test_the_host_waits_for_nothing(pair, exchange):
    """A second of work is ahead of them on the stream; both passes return before it is done."""
    require(exchange)
    pair.all(START, places(), case=CASE)
    found = pair.all(
        """
def both():
    out, lse, logits, kept = shards.forward(exchange, keep_kv=True, return_max_logit=True)
    shards.backward(out, lse, exchange, kept_kv=kept)
both()
group.synchronize()
torch.cuda.synchronize()
torch.cuda._sleep(2_000_000_000)
done = torch.cuda.Event()
begin = time.monotonic()
both()
took = time.monotonic() - begin
done.record()
was_done = done.query()
group.synchronize()
answer = took, was_done
""",
        exchange=exchange,
    )
    for took, was_done in found:
        assert took < 0.5 and not was_done, found


def test_a_rank_that_asks_for_no_scores_makes_another_call(pair):
    pair.make_group([[0], [1]], "other", timeout_s=5)
    pair.all(START.replace("a_rank_a_process", "other"), places(), case=CASE)
    pair.all("shards.forward('peer'); shards.forward('peer', return_max_logit=True)")
    pair.all("other.synchronize()")
    begin = time.monotonic()
    pair[0].tell(
        "shards.forward('peer', return_max_logit=True); time.sleep(1); other.synchronize()"
    )
    pair[1].tell("shards.forward('peer'); time.sleep(1); other.synchronize()")
    for error in pair.errors():
        assert error.kind == "RankFailure" and "call" in error.text, error
    assert time.monotonic() - begin < 4


def test_a_score_that_is_no_number_is_the_same_for_all(pair):
    pair.all(START, places(), case=CASE)
    pair[0].do("shards.q[3, 1] = float('nan')")
    found = pair.all("answer = on_host(shards.forward('peer', return_max_logit=True)[2])")
    plan, (q, k, v) = CASE.plan(), (on_gpu(x, "float32", 0) for x in rounded(CASE, "float32")[:3])
    q[int(plan.row_indices(0)[3]), 1] = float("nan")
    want = on_host(plan.attention(q, k, v, backend="cuda", return_max_logit=True)[2])
    for x in found:
        np.testing.assert_array_equal(x, want)


def test_auto_measures_what_fits_and_all_take_the_same(pair):
    pair.make_group([[0], [1]], "auto", timeout_s=20)
    found = pair.all(
        """
got = passes(case, auto, "float32", "auto", device)
text = auto.explain()
answer = got, text, [x.exchange for x in auto._devices.values() if x._programs]
""",
        places(),
        case=CASE,
    )
    want, max_logit = virtual(CASE, "float32")
    parts = [arrays["dk"][0] for (arrays, _), *_ in found]
    np.testing.assert_array_equal(CASE.plan().unshard(parts, side="k"), want["dk"])
    assert found[0][2] == found[1][2] and len(found[0][2]) == 1
    for (_, logits), text, (exchange,) in found:
        np.testing.assert_array_equal(logits, max_logit)
        said = text.partition('exchange="auto": ')[2]
        print(said)
        if devices() == 1:
            assert "peer (nccl is not there: " in said and "of one GPU" in said, said
        else:
            assert f"{exchange} (messages of both passes, slowest rank: peer " in said, said
            assert "; nccl " in said and said.count(" ms") == 2, said


def test_autograd_keeps_them(pair):
    pair.all(START, places(), case=CASE)
    found = pair.all(
        """
from ringside.torch import varlen_attention
answer = []
for keep in (False, True):
    q, k, v = (x.clone().requires_grad_() for x in (shards.q, shards.k, shards.v))
    out = varlen_attention(q, k, v, shards.plan, group=group, deterministic=True, keep_kv=keep)
    out.backward(shards.dout)
    answer.append([on_host(x) for x in (out, q.grad, k.grad, v.grad)])
"""
    )
    for without, with_it in found:
        for x, y in zip(without, with_it, strict=True):
            np.testing.assert_array_equal(x, y)
