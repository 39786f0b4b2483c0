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
from ringside.testing import Case

pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no GPU test: {REASON}")

SOON, TIMEOUT = 2.0, 1.5  # seconds
CASE = Case(rs.PackedLayout([0, 640, 1000]), cp_size=2, num_heads=2, head_dim=16)
START = """
import torch
from group_cuda import Shards
shards = Shards(case, group, "float32", device)
def call():
    return shards.forward("peer")
def right():
    out, lse = call()
    gradients = shards.backward(out, lse, "peer")
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


def ready(workers, timeout_s):
    workers.make_group([[0], [1]], timeout_s=timeout_s)
    places = [{"device": i % devices()} for i in range(2)]
    workers.all(START, places, case=CASE)
    assert workers.all("answer = right()") == [True, True]


@pytest.fixture
def pair():
    every = []

    def make(timeout_s=20.0):
        workers = started(2)
        every.append(workers)
        ready(workers, timeout_s)
        return workers

    yield make
    for workers in every:
        workers.__exit__()


def test_a_killed_rank_is_named_and_results_are_nan(pair):
    workers = pair()
    workers[0].tell("answer = spoiled()")
    time.sleep(0.5)
    workers[1].signal(signal.SIGKILL)
    with within(SOON):
        all_nan, ranks, text = workers[0].answer()
    assert all_nan and ranks == (1,) and "rank 1 ended" in text
    assert "in step" in text


def test_a_stopped_rank_is_named_after_the_timeout(pair):
    workers = pair(TIMEOUT)
    workers[1].signal(signal.SIGSTOP)
    with within(TIMEOUT + SOON):
        all_nan, ranks, text = workers[0].do("answer = spoiled()")
    assert all_nan and ranks == (1,) and "no sign of life" in text


def test_a_rank_that_does_not_come_is_named_after_the_timeout(pair):
    workers = pair(TIMEOUT)
    with within(TIMEOUT + SOON):
        all_nan, ranks, text = workers[0].do("answer = spoiled()")
    assert all_nan and ranks == (1,) and "nothing of this call" in text


def test_an_exception_reaches_who_waits(pair):
    workers = pair()
    workers[0].tell("answer = spoiled()")
    time.sleep(0.3)
    workers[1].tell("with group:\n    raise Spoken('out of luck')")
    with within(SOON):
        all_nan, ranks, text = workers[0].answer()
    assert all_nan and ranks == (1,) and "out of luck" in text
    assert workers[1].error().kind == "Spoken"


def test_other_calls_are_no_messages_of_this_one(pair):
    workers = pair(TIMEOUT)
    workers.all("out, lse = call()\ngroup.synchronize()")
    workers[0].tell("answer = spoiled()")
    workers[1].tell("shards.backward(out, lse, 'peer')\ngroup.synchronize()")
    with within(TIMEOUT + SOON):
        all_nan, _, text = workers[0].answer()
        error = workers[1].error()
    assert all_nan and "different calls" in text
    assert error.kind == "RankFailure" and "different calls" in error.text


def test_a_rank_that_leaves_first_has_sent_what_others_need(pair):
    workers = pair()
    workers[0].tell("out, lse = call()\ngroup.close()")
    time.sleep(0.3)
    assert workers[1].do("answer = right_once = not torch.isnan(call()[0]).any().item()") is True
    workers[0].answer()
    workers[1].tell("call()\ngroup.synchronize()")
    require_failure(workers[1].error(), [0], "left the group")


def test_after_a_failure_another_group_is_right(pair):
    workers = pair()
    workers[0].tell("answer = spoiled()")
    time.sleep(0.2)
    workers[1].tell("with group:\n    raise Spoken")
    workers[0].answer(), workers[1].error()
    workers[0].do("group.close()")
    ready(workers, 20.0)
