"""The library computes without the interpreter lock; threads do not disturb each other."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import ringside as rs
from ringside.testing import Case

CASES = [
    Case(rs.PackedLayout([0, 200 + 10 * i]), cp_size=2 + i % 3, comm=comm, num_heads=3, seed=i)
    for i, comm in enumerate(["p2p", "all_gather", "a2a"] * 2)
]


def test_threads_that_run_together_get_what_each_gets_alone():
    alone = [case.by_plan() for case in CASES]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(Case.by_plan, CASES * 3))
    for wanted, got in zip(alone * 3, together, strict=True):
        for a, b in zip(wanted, got, strict=True):
            np.testing.assert_array_equal(a, b)


def test_threads_may_share_one_plan_and_its_inputs():
    case = CASES[0]
    plan, (q, k, v, _) = case.plan(), case.arrays()
    wanted = plan.attention(q, k, v)
    with ThreadPoolExecutor(4) as threads:
        for out, lse in threads.map(lambda _: plan.attention(q, k, v), range(8)):
            np.testing.assert_array_equal(out, wanted[0])
            np.testing.assert_array_equal(lse, wanted[1])


LONG = Case(rs.PackedLayout([0, 1500]), cp_size=2, num_heads=4, head_dim=32, head_dim_v=32)
WORK = {
    "attention": lambda q, k, v: rs.attention(q, k, v, LONG.layout_q),
    "plan.attention": lambda q, k, v: LONG.plan().attention(q, k, v),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK.keys())
def test_python_goes_on_while_the_library_computes(work):
    """Another thread takes many turns during a call, which it cannot if the lock is held."""
    q, k, v, _ = LONG.arrays()
    computing, done, turns = threading.Event(), threading.Event(), []

    def compute():
        computing.set()
        for _ in range(5):
            work(q, k, v)
        done.set()

    thread = threading.Thread(target=compute)
    thread.start()
    computing.wait()
    while not done.wait(timeout=1e-4):
        turns.append(None)
    thread.join()
    # Held, the lock changes hands only between the five calls.
    assert len(turns) > 20
