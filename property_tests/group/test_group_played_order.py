"""Calls on GPUs, which are only enqueued: results that are read behind synchronize() are of the
same calls on every rank, and who closes without it hears of what has failed.
"""

import signal
import time

import pytest
from group_processes import require_failure, within
from played_libraries import play

SOON, TIMEOUT = 2.0, 2.0  # a process whose beats are 1.5 s late is silent
LAST = "call(return_max_logit=True, keep_kv=True)"  # alike on both: a beat tells of it alone
IN_ORDER = f"call(); call(return_max_logit=True); {LAST}"
IN_ANOTHER = f"call(return_max_logit=True); call(); {LAST}"
HOLD = "import ctypes; ctypes.PyDLL(None).usleep(3_000_000)"  # with the interpreter
DIFFERENT = "same calls in the same order"


@pytest.fixture
def pair(workers):
    """Two processes in a new group, which have made each call that is to come."""
    play(workers, ((0,), (1,)))
    workers.all(f"{IN_ORDER}; group.synchronize()")
    yield workers
    workers.all("try: group.close()\nexcept rs.RankFailure: pass")


def make_in_two_orders(pair):
    """The calls of both: a failure, which the next beat may tell of, is kept for later."""
    for worker, calls in zip(pair, (IN_ORDER, IN_ANOTHER), strict=True):
        worker.tell(
            f"failure = None\ntry: {calls}\nexcept rs.RankFailure as error: failure = error"
        )
    for worker in pair:
        worker.answer()


@pytest.mark.parametrize("ends", ["group.synchronize()", "group.close()"])
def test_calls_in_another_order_are_noticed_at_the_end(pair, ends):
    make_in_two_orders(pair)
    pair.tell_all(f"if failure: raise failure\n{ends}")
    with within(SOON):
        for error in pair.errors():
            require_failure(error, [0, 1], DIFFERENT)


@pytest.mark.parametrize("ends", ["group.synchronize()", "group.close()"])
def test_calls_in_one_order_are_right(pair, ends):
    pair.all(f"{IN_ORDER}; {ends}")


def test_calls_in_another_order_are_noticed_by_a_later_call(pair):
    make_in_two_orders(pair)
    pair.tell_all(f"time.sleep(0.6)\nif failure: raise failure\n{LAST}")
    with within(SOON):
        for error in pair.errors():
            require_failure(error, [0, 1], DIFFERENT)


def test_who_comes_later_than_others_leave_is_told_of_their_calls(pair):
    pair[0].do(f"{LAST}; group.close()")
    pair[1].tell("call()")
    with within(SOON):
        require_failure(pair[1].error(), [0, 1], DIFFERENT)


def test_a_call_that_another_rank_refuses_is_told_by_close(pair):
    pair[0].do("call()")
    pair[1].tell("call(keep_kv=3)")
    assert "keep_kv" in pair[1].error().text
    pair[0].tell("time.sleep(0.2); group.close()")
    with within(SOON):
        require_failure(pair[0].error(), [1], "rank 1 made no call", "keep_kv")
    pair[1].do("group.close()")  # it raised the reason itself
    closed = "try: call()\nexcept ValueError as error: answer = str(error)"
    assert "closed" in pair[0].do(closed)


def test_close_does_not_tell_again(pair):
    make_in_two_orders(pair)
    pair.tell_all("if failure: raise failure\ngroup.synchronize()")
    pair.errors()
    pair.all("group.close()")


def test_close_says_nothing_of_who_ends_behind_the_last_call(pair):
    pair[1].do("group._control.peers[0].connection.shutdown(2)")
    pair[0].do("time.sleep(0.2); group.close()")


def test_an_error_that_leaves_the_group_is_not_hidden_by_close(pair):
    pair[0].do("call()")
    pair[0].tell("with group: raise KeyError('mine')")
    assert pair[0].error().kind == "KeyError"


def test_who_has_come_as_far_is_not_waited_for(pair):
    pair[0].do("call(); group.synchronize()")
    pair[0].tell(HOLD)
    pair[1].tell("time.sleep(0.2); call(); group.synchronize()")
    with within(SOON):
        pair[1].answer()
    pair[0].answer()


def test_what_is_said_is_gone_before_anything_else_is_done(pair):
    """A value that nobody else has to wait for, as all others have told theirs."""
    pair[1].tell("group._tell_all(1)")
    pair[0].tell(f"time.sleep(0.3); group._tell_all(2); {HOLD}")
    with within(SOON):
        pair[1].answer()
    pair[0].answer()


def test_who_was_stopped_hears_what_was_said_meanwhile(workers):
    play(workers, ((0,), (1,)), timeout_s=TIMEOUT)
    workers[0].tell("group._tell_all(1)")
    time.sleep(0.3)
    workers[0].signal(signal.SIGSTOP)
    time.sleep(0.2)  # until all of its threads have stopped
    workers[1].do("group._tell_all(2)")
    time.sleep(TIMEOUT + 0.5)
    workers[0].signal(signal.SIGCONT)
    workers[0].answer()
    workers.all("group.close()")


def test_who_does_not_answer_is_named(workers):
    play(workers, ((0,), (1,)), timeout_s=TIMEOUT)
    workers.all("call()")
    workers[0].do("call()")
    workers[1].signal(signal.SIGSTOP)
    time.sleep(0.2)  # until all of its threads have stopped
    workers[0].tell("group.synchronize()")
    with within(TIMEOUT + SOON):
        require_failure(workers[0].error(), [1], "rank 1 gave no sign of life")
    workers[1].signal(signal.SIGCONT)
    workers.all("try: group.close()\nexcept rs.RankFailure: pass")
