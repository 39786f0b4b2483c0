"""Who dies, stops, raises or goes another way, while others wait for it on their GPUs.

Streams that wait are freed, what had not ended is NaN, and every process that is left raises
RankFailure, soon; then it can be in another group.
"""

import signal
import time

import pytest
import ringside as rs
from cuda_cases import REASON
from group_processes import require_failure, started, within
from ringside._ranks.device import GUARD_S
from ringside.testing import Case

pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no GPU test: {REASON}")

SOON, TIMEOUT = 2.0, 1.5  # seconds
LAYOUT = rs.PackedLayout([0, 640, 1000])
START = """
import torch
torch.cuda.set_device(device)
from group_cuda import Shards
shards = Shards(case, group, "float32", device)
def call():
    return shards.forward(exchange)
def right():
    out, lse = call()
    gradients = shards.backward(out, lse, exchange)
    group.synchronize()
    return not any(bool(torch.isnan(x).any()) for x in (out, *gradients))
def spoiled():
    out, lse = call()
    try:
        group.synchronize()
    except rs.RankFailure as failure:
        return bool(torch.isnan(out).all() and torch.isnan(lse).all()), failure.ranks, str(failure)
"""


def devices():
    import torch

    return torch.cuda.device_count()


def processes(exchange):
    """Two over peer memory; over NCCL as many as there are GPUs, up to four."""
    if exchange == "nccl" and devices() < 2:
        pytest.skip("NCCL refuses two processes on one GPU, and there is one")
    return min(4, devices()) if exchange == "nccl" else 2


def ready(workers, timeout_s, exchange):
    workers.make_group([[rank] for rank in range(len(workers))], timeout_s=timeout_s)
    places = [{"device": i % devices()} for i in range(len(workers))]
    case = Case(LAYOUT, cp_size=len(workers), num_heads=2, head_dim=16)
    workers.all(START, places, case=case, exchange=exchange)
    assert workers.all("answer = right()") == [True] * len(workers)


@pytest.fixture(params=["peer", "nccl"])
def start(request):
    """Makes processes of a group, which exchange so; as many as are given, or as there can be."""
    every = []

    def make(timeout_s=20.0, count=None):
        workers = started(count or processes(request.param))
        every.append(workers)
        ready(workers, timeout_s, request.param)
        return workers

    make.exchange = request.param
    if request.param == "nccl":
        processes("nccl")
    yield make
    for workers in every:
        workers.__exit__()


def require_spoiled(workers, *pieces):
    """All but the last know that it failed, why, and that their results are none."""
    for worker in workers[:-1]:
        all_nan, ranks, text = worker.answer()
        assert all_nan, text
        assert ranks == (len(workers) - 1,), text
        for piece in pieces:
            assert piece in text, text


def tell_all_but_the_last(workers, snippet):
    for worker in workers[:-1]:
        worker.tell(snippet)


def test_a_killed_rank_is_named_and_results_are_nan(start):
    workers = start()
    tell_all_but_the_last(workers, "answer = spoiled()")
    time.sleep(0.5)
    workers[-1].signal(signal.SIGKILL)
    with within(SOON):
        require_spoiled(workers, f"rank {len(workers) - 1} ended", "in step")


def test_a_stopped_rank_is_named_after_the_timeout(start):
    workers = start(TIMEOUT)
    workers[-1].signal(signal.SIGSTOP)
    with within(TIMEOUT + SOON):
        tell_all_but_the_last(workers, "answer = spoiled()")
        require_spoiled(workers, "no sign of life")


def test_a_rank_that_does_not_come_is_named_after_the_timeout(start):
    workers = start(TIMEOUT)
    with within(TIMEOUT + SOON):
        tell_all_but_the_last(workers, "answer = spoiled()")
        require_spoiled(workers, "nothing of this call")


def test_an_exception_reaches_who_waits(start):
    workers = start()
    tell_all_but_the_last(workers, "answer = spoiled()")
    time.sleep(0.3)
    workers[-1].tell("with group:\n    raise Spoken('out of luck')")
    with within(SOON):
        require_spoiled(workers, "out of luck")
    assert workers[-1].error().kind == "Spoken"


def test_a_rank_killed_while_graphs_are_replayed_is_named(start):
    workers = start()
    workers.all(
        """
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out, lse = call()
    captured = shards.backward(out, lse, exchange)
graph.replay()
group.synchronize()
def replay_until_failure():
    try:
        while True:
            graph.replay()
            torch.cuda.synchronize()
            group.synchronize()
    except rs.RankFailure as failure:
        return bool(torch.isnan(captured[0]).all()), failure.ranks, str(failure)
"""
    )
    workers.tell_all("answer = replay_until_failure()")
    time.sleep(0.5)
    workers[-1].signal(signal.SIGKILL)
    with within(SOON):
        require_spoiled(workers, f"rank {len(workers) - 1} ended")


HELD = """
import ctypes
def wait_with_the_interpreter():  # as torch may while it ends a graph
    ctypes.PyDLL("libcudart.so." + torch.version.cuda.split(".")[0]).cudaDeviceSynchronize()
"""


def test_others_get_through_while_one_waits_with_the_interpreter(start):
    workers = start(TIMEOUT, 2)
    workers.all(HELD)
    end = "group.synchronize(); call(); wait_with_the_interpreter(); answer = right()"
    workers[0].tell(f"call(); {end}")
    workers[1].tell(f"call(); time.sleep(0.5); {end}")
    with within(TIMEOUT):
        assert [worker.answer() for worker in workers] == [True, True]


def test_who_waits_in_vain_with_the_interpreter_is_freed(start):
    workers = start(TIMEOUT, 2)
    workers.all(HELD)
    held = """
out, lse = call()
wait_with_the_interpreter()
try:
    group.synchronize()
except rs.RankFailure as failure:
    answer = bool(torch.isnan(out).all()), failure.ranks, str(failure)
"""
    with within(TIMEOUT + GUARD_S + SOON):
        is_nan, ranks, text = workers[0].do(held)
    assert is_nan and ranks == (0,) and "interpreter" in text, (is_nan, text)
    workers[1].tell("call()\ngroup.synchronize()")
    require_failure(workers[1].error(), [0], "interpreter")


def test_other_calls_are_no_messages_of_this_one(start):
    workers = start(TIMEOUT, 2)
    workers.all("out, lse = call()\ngroup.synchronize()")
    workers[0].tell("answer = spoiled()")
    workers[1].tell("shards.backward(out, lse, exchange)\ngroup.synchronize()")
    with within(TIMEOUT + SOON):
        all_nan, _, text = workers[0].answer()
        error = workers[1].error()
    assert all_nan and "different calls" in text
    assert error.kind == "RankFailure" and "different calls" in error.text


LAYERS = """
from ringside.torch import varlen_attention
ins = [[x.clone().requires_grad_() for x in (shards.q, shards.k, shards.v)] for _ in range(2)]
outs = [varlen_attention(*x, shards.plan, group=group) for x in ins]
group.synchronize()
"""


@pytest.mark.parametrize("ends", ["group.synchronize()", "group.close()"])
def test_backward_passes_that_one_rank_swaps_are_noticed_in_the_end(start, ends):
    """Their messages are alike, and so is the last call, of which a beat tells."""
    workers = start(count=2)
    workers.all(LAYERS)
    for worker, order in zip(workers, ("outs", "outs[::-1]"), strict=True):
        worker.tell(f"for out in {order}: out.sum().backward()\ncall()\n{ends}")
    with within(SOON):
        for error in workers.errors():
            require_failure(error, [0, 1], "same calls in the same order")


def test_a_rank_that_leaves_first_has_sent_what_others_need(start):
    workers = start(count=2)
    workers[0].tell("out, lse = call()\ngroup.close()")
    time.sleep(0.3)
    assert workers[1].do("answer = right_once = not torch.isnan(call()[0]).any().item()") is True
    workers[0].answer()
    workers[1].tell("call()\ngroup.synchronize()")
    require_failure(workers[1].error(), [0], "left the group")


def test_after_a_failure_another_group_is_right(start):
    workers = start()
    tell_all_but_the_last(workers, "answer = spoiled()")
    time.sleep(0.2)
    workers[-1].tell("with group:\n    raise Spoken")
    require_spoiled(workers)
    assert workers[-1].error().kind == "Spoken"
    for worker in workers[:-1]:
        worker.do("group.close()")
    ready(workers, 20.0, start.exchange)
