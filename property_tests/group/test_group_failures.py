"""Who dies, leaves, raises, stops or goes another way makes all others raise RankFailure, soon.

Each test starts its processes: what a failure leaves behind is part of what is tested.
"""

import signal
import time

import pytest
from group_processes import require_failure, started, within

SOON = 2.0  # seconds, after a death
TIMEOUT = 1.0  # of groups in which a rank is silent
LATE = TIMEOUT + 2.0

CALL = """
layout = rs.PackedLayout([0, 40, 64])
plan = rs.plan(layout, cp_size=size, comm=comm, mask=rs.Mask.full())
x = np.random.default_rng(0).normal(size=(64, 1, 4))
shards = [mine(plan, group.ranks, x)] * 3
def call():
    return plan.attention_rank(*shards, group=group)
def right():
    want = plan.attention(x, x, x)[0]
    return all((a == plan.shard(want, r)).all() for a, r in zip([call()[0]], group.ranks))
"""
RIGHT = "answer = right()"


@pytest.fixture
def group():
    """group(size, comm=..., timeout_s=...): processes of a rank each, with a call to make."""
    every = []

    def make(size, comm="p2p", timeout_s=20.0):
        workers = started(size)
        every.append(workers)
        workers.make_group([[rank] for rank in range(size)], timeout_s=timeout_s)
        workers.all(CALL, size=size, comm=comm)
        assert workers.all(RIGHT) == [True] * size
        return workers

    yield make
    for workers in every:
        workers.__exit__()


@pytest.mark.parametrize("comm", ["p2p", "all_gather", "a2a"])
def test_a_killed_rank_is_named_by_all_that_wait(group, comm):
    workers = group(3, comm)
    for worker in workers[:2]:
        worker.tell("call()")
    time.sleep(0.3)
    workers[2].signal(signal.SIGKILL)
    with within(SOON):
        for worker in workers[:2]:
            error = worker.error()
            require_failure(error, [2], "rank 2 ended", "in step")
            assert error.call == 2 and error.step is not None


def test_a_rank_killed_in_its_exchange_is_named_by_who_comes_later(group):
    workers = group(3)
    workers[0].tell("call()")
    time.sleep(0.3)
    workers[0].signal(signal.SIGKILL)
    workers[0].process.wait()
    time.sleep(0.2)  # else rank 2, which has all of rank 0 from rank 1, may be done before it hears
    with within(SOON):
        for worker in workers[1:]:
            worker.tell("call()")
        for worker in workers[1:]:
            require_failure(worker.error(), [0], "rank 0 ended")


def test_two_threads_in_calls_of_one_group_are_refused_on_every_rank(group):
    """Nobody knows which of them comes first, here and elsewhere; with luck results were wrong."""
    workers = group(2)
    both = "other = threading.Thread(target=call, daemon=True)\nother.start()\ntime.sleep(0.3)\n"
    workers[0].tell(both + "call()")
    with within(SOON):
        error = workers[0].error()
        assert error.kind == "InvalidArgument", error
        assert "another thread is in a call of this group; expected one call at" in error.text
        time.sleep(0.2)  # else rank 1, which may have all of rank 0, may be done before it hears
        workers[1].tell("call()")
        told = "rank 0 raised InvalidArgument: another thread"
        require_failure(workers[1].error(), [0], told)


FORK = "forked = os.fork()\nif forked == 0:\n    {}\n"


def test_a_rank_killed_is_named_though_a_process_forked_from_it_goes_on(group):
    """As those do that load data: they would hold its sockets open."""
    workers = group(2)
    workers[1].do(FORK.format("time.sleep(6); os._exit(0)"))
    workers[0].tell("call()")
    time.sleep(0.3)
    workers[1].signal(signal.SIGKILL)
    with within(SOON):
        require_failure(workers[0].error(), [1], "rank 1 ended")


def test_a_forked_process_may_not_use_the_group_and_takes_nothing_along_when_it_ends(group):
    workers = group(2)
    tried = "try:\n        call()\n    except rs.InvalidArgument as error:\n        "
    tried += "os.write(told, str(error).encode())\n    os._exit(0)"
    fork = "heard, told = os.pipe()\n" + FORK.format(tried)
    said = workers[1].do(fork + "os.waitpid(forked, 0)\nanswer = os.read(heard, 999)")
    assert b"the group is of the process which this one was forked from; expected" in said
    for how in ("sys.exit(0)", "group.close(); os._exit(0)"):
        workers[1].do(FORK.format(how) + "os.waitpid(forked, 0)")
        assert workers.all(RIGHT) == [True] * 2


def test_a_rank_killed_after_a_call_fails_the_next(group):
    workers = group(2)
    workers[0].signal(signal.SIGKILL)
    workers[0].process.wait()
    with within(SOON):
        workers[1].tell("call()")
        require_failure(workers[1].error(), [0], "rank 0 ended")
    workers[1].tell("call()")
    require_failure(workers[1].error(), [0], "rank 0 ended")  # for good


@pytest.mark.parametrize("how", ["os._exit(3)", "os.abort()", "sys.stdin.close(); os._exit(0)"])
def test_a_process_that_exits_is_named(group, how):
    workers = group(2)
    workers[0].tell("call()")
    workers[1].tell(how)
    with within(SOON):
        require_failure(workers[0].error(), [1], "rank 1 ended")


def test_a_rank_that_computes_hears_of_a_death(group):
    """It is ended in the middle of tiles that would take minutes."""
    workers = group(2)
    workers.all(
        "long = rs.plan(rs.PackedLayout([0, 60_000]), cp_size=2, num_heads=16, comm='all_gather')\n"
        "y = np.ones((30_000, 16, 8))\n"
    )
    workers.tell_all("long.attention_rank(y, y, y, group=group)")
    time.sleep(1.5)
    workers[0].signal(signal.SIGKILL)
    with within(SOON):
        require_failure(workers[1].error(), [0], "rank 0 ended")


@pytest.mark.parametrize("stopped", [0, 1, 2])
def test_a_stopped_rank_is_named_after_the_timeout_also_by_who_waits_for_others(group, stopped):
    workers = group(3, timeout_s=TIMEOUT + 1)  # longer than a beat may be late
    workers[stopped].signal(signal.SIGSTOP)
    others = [worker for i, worker in enumerate(workers) if i != stopped]
    with within(LATE + 1):
        for worker in others:
            worker.tell("call()")
        for worker in others:
            require_failure(worker.error(), [stopped], "no sign of life")
    workers[stopped].signal(signal.SIGCONT)
    workers[stopped].tell("call()")
    require_failure(workers[stopped].error(), [stopped])


def test_a_rank_that_makes_no_call_is_named_after_the_timeout(group):
    workers = group(3, timeout_s=TIMEOUT)
    with within(LATE):
        for worker in workers[:2]:
            worker.tell("call()")
        for worker in workers[:2]:
            require_failure(worker.error(), [2], "nothing of this call", "1 s")


def test_what_leaves_the_context_is_told_to_the_others(group):
    workers = group(3)
    for worker in workers[:2]:
        worker.tell("call()")
    workers[2].tell("with group:\n    raise Spoken('the disk is full')")
    with within(SOON):
        assert workers[2].error().kind == "Spoken"
        for worker in workers[:2]:
            require_failure(worker.error(), [2], "rank 2 raised Spoken: the disk is full")


@pytest.mark.parametrize("code", ["0", "3"])
def test_to_exit_within_the_context_is_to_leave_unless_it_tells_of_a_failure(group, code):
    workers = group(2)
    workers[1].tell(f"with group:\n    sys.exit({code})")
    workers[1].process.wait(10)
    workers[0].tell("call()")
    with within(SOON):
        error = workers[0].error()
    told = "rank 1 raised SystemExit: 3" if code == "3" else "rank 1 left the group before call 2"
    require_failure(error, [1], told)


def test_who_leaves_early_is_named(group):
    workers = group(2)
    workers[1].do("group.close()")
    with within(SOON):
        workers[0].tell("call()")
        require_failure(workers[0].error(), [1], "rank 1 left the group before call 2")


def test_who_leaves_while_others_wait_is_named(group):
    workers = group(2)
    workers[0].tell("call()")
    time.sleep(0.2)
    workers[1].tell("sys.exit()")  # the interpreter ends, which closes the group
    with within(SOON):
        require_failure(workers[0].error(), [1], "rank 1 left the group before call 2")


def test_who_leaves_after_the_last_call_disturbs_nobody(group):
    workers = group(3)
    for _ in range(3):
        answers = workers.all("answer = right()")
        assert answers == [True] * 3
    workers.tell_all("answer = right(); group.close()", each=[{}, {}, {}])
    assert [worker.answer() for worker in workers] == [True] * 3


def test_a_call_that_the_one_who_left_had_made_is_finished(group):
    """Though a third one has come to the next call, and tells of it."""
    workers = group(3)
    make = "def made(run): return group._call({'plan': 'of this test'}, 'form', lambda *_: run())"
    workers.all(make)
    workers[1].tell("answer = made(lambda: [time.sleep(0.7), 'result'][1])")
    workers[0].tell("made(lambda: 0); time.sleep(0.2); call()")
    workers[2].tell("made(lambda: 0); group.close()")
    left = "rank 2 left the group before call 3"
    require_failure(workers[0].error(), [2], left)
    workers[0].do("group.close()")
    assert workers[1].answer() == "result"
    workers[1].tell("call()")
    with within(SOON):
        require_failure(workers[1].error(), [2], left)


OTHER = """
other = rs.plan(layout, cp_size=size, comm=comm, mask=rs.Mask.causal())
def other_call():
    return other.attention_rank(*shards, group=group)
def backward():
    out = np.zeros_like(shards[0])
    return plan.attention_backward_rank(out, *shards, out, out[:, :, 0].T.copy(), group=group)
"""


@pytest.mark.parametrize("path", ["other_call()", "backward()"])
@pytest.mark.parametrize("is_agreed", [True, False])
def test_another_order_of_calls_is_seen_at_once(group, path, is_agreed):
    workers = group(2)
    workers.all(OTHER, size=2, comm="p2p")
    if is_agreed:
        workers.all(path)
    workers[0].tell("call()")
    workers[1].tell(path)
    with within(SOON):
        for error in workers.errors():
            require_failure(error, error.ranks, "same calls in the same order")
            assert set(error.ranks) <= {0, 1}


def test_results_of_a_call_that_another_gave_up_are_not_returned(group):
    """Rank 0 has all it needs, and rank 1 fails before rank 0 returns it."""
    workers = group(2)
    what = {"plan": "of this test"}
    workers[0].tell(
        "answer = group._call(what, 'form', lambda links, gather: [time.sleep(0.7), 'result'][1])",
        what=what,
    )
    workers[1].tell(
        "def fails(links, gather): raise Spoken('no memory')\ngroup._call(what, 'form', fails)",
        what=what,
    )
    with within(SOON):
        assert workers[1].error().kind == "Spoken"
        require_failure(workers[0].error(), [1], "rank 1 raised Spoken: no memory")


def test_ctrl_c_ends_the_wait_of_one_and_the_others_hear_of_it(group):
    workers = group(3)
    for worker in workers[:2]:
        worker.tell("call()")
    time.sleep(0.3)
    workers[0].signal(signal.SIGINT)
    with within(SOON):
        assert workers[0].error().kind == "KeyboardInterrupt"
        require_failure(workers[1].error(), [0], "rank 0 raised KeyboardInterrupt")


def test_ctrl_c_before_all_agree_ends_the_others_too(group):
    workers = group(3)
    workers.all(OTHER, size=3, comm="p2p")
    for worker in workers[:2]:
        worker.tell("other_call()")
    time.sleep(0.3)
    workers[0].signal(signal.SIGINT)
    with within(SOON):
        assert workers[0].error().kind == "KeyboardInterrupt"
        require_failure(workers[1].error(), [0], "rank 0 raised KeyboardInterrupt")


def test_groups_that_were_closed_hold_no_descriptors(group):
    """Nor those that failed; without waiting for the collector of cycles."""
    workers = group(2)
    workers.all("import gc\ngc.disable()\nbefore = len(os.listdir('/dev/fd'))")
    for why in ("", "raise Spoken('why')") * 3:
        workers.make_group([[0], [1]], "another")
        workers.tell_all(f"try:\n    with another:\n        pass\n        {why}\nexcept Spoken: 0")
        assert all(worker.answer() is None for worker in workers)
        workers.all("del another")
    assert workers.all("answer = len(os.listdir('/dev/fd')) - before") == [0, 0]


def test_the_survivors_make_a_smaller_group_and_its_results_are_right(group):
    workers = group(3)
    for worker in workers[1:]:
        worker.tell("call()")
    workers[0].signal(signal.SIGKILL)
    for worker in workers[1:]:
        require_failure(worker.error(), [0])
    survivors = type(workers)(workers[1:])
    survivors.all("group.close()")
    survivors.make_group([[0], [1]])
    survivors.all(CALL, size=2, comm="p2p")
    assert survivors.all(RIGHT) == [True, True]
