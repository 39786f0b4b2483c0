"""Groups on GPUs that are played: set-up, refusals, failures and what calls return."""

import time

import pytest
from group_processes import require_failure, within
from played_libraries import expect_refused_in_both, make_libraries, play, use

SOON, TIMEOUT = 2.0, 1.0


@pytest.fixture
def pair(workers):
    """Two processes in a new group, each with a GPU."""

    def make(hosted=((0,), (1,)), timeout_s=20.0, identities=("a", "b")):
        return play(workers, hosted, timeout_s, identities)

    yield make
    workers.all("group.close() if 'group' in globals() else None")


def test_all_set_up_once_and_mark_their_calls_alike(pair):
    found = pair().all(
        """
out, lse = call()
again, _ = call()
links = Links.made[0]
answer = (out.min(), again.max(), len(Links.made), Program.made, links.heard, links.calls)
answer = (*answer, Program.hosting)
"""
    )
    (mark, *rest), other = found
    assert other[0] == mark == rest[0] and rest[1:3] == [1, 1] and rest[4] == 2
    assert rest[3] == ["peers", (1, "room 1000"), "forget"]
    assert found[1][4] == ["peers", (0, "room 1000"), "forget"]
    assert [x[6] for x in found] == [([[0], [1]], 0), ([[0], [1]], 1)]


def test_one_process_with_all_ranks_computes_them(pair):
    workers = pair()
    workers[0].do("group = rs.init(ranks_per_process=2)")
    found = workers[0].do(
        """
x = np.random.default_rng(0).normal(size=(64, 2, 4))
mine = [on_gpu(plan.shard(x, rank)) for rank in group.ranks]
out, lse, logits = plan.attention_rank(mine, mine, mine, group=group, return_max_logit=True)
want, want_lse, want_logits = plan.attention(x, x, x, return_max_logit=True)
group.synchronize()
same = np.array_equal(plan.unshard([np.asarray(part) for part in out]), want)
answer = same, np.allclose(logits, want_logits, rtol=1e-6), group.explain()
"""
    )
    assert found[:2] == (True, True) and "one process hosts all ranks" in found[2]


REFUSALS = {
    "rows": ("call(rows(31))", "q_r has 31 rows; rank"),
    "heads": ("call(k=rows(heads=1))", "k_r has heads and dimension (1, 4); expected (2, 4)"),
    "dimensions": ("call(k=rows(dim=8))", "k_r has heads and dimension (2, 8)"),
    "dtype": ("call(v=rows(dtype='float16'))", "v_r has dtype float16; expected float32"),
    "device": ("call(v=rows(place=1))", "v_r is not on the device of q_r"),
    "host": ("call(v=np.ones((32, 2, 4), 'float32'))", "v_r is not on the device of q_r"),
    "shape": ("call(on_gpu(np.ones((32, 4), 'float32')))", "expected [rows, heads, dim]"),
    "exchange": ("call(exchange='mpi')", "expected one of auto, nccl, peer"),
    "sink": ("call(sink=[0.0] * 3)", "sink has shape (3,); expected [num_heads] = [2]"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_does_not_fit_is_refused_in_both_and_the_group_lives(pair, name):
    expect_refused_in_both(pair(), *REFUSALS[name])


DIFFERENCES = {
    "dtypes": ("call(*[rows(dtype='float16')] * 3)", "dtypes (float16/float16/float16)"),
    "options": ("call(softcap=2.0)", "options (softcap=2.0)"),
    "exchange": ("call(exchange='peer')", "exchange (peer)"),
    "arrays": (
        "plan.attention_rank(*[np.ones((32, 2, 4), 'float32')] * 3, group=group)",
        "arrays (on the host)",
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_ranks_that_mean_other_calls_are_named(pair, name):
    snippet, text = DIFFERENCES[name]
    workers = pair()
    workers[0].tell(snippet)
    workers[1].tell("call()")
    for error in workers.errors():
        assert f"rank 0: {text}; rank 1: {name}" in error.text, error


@pytest.mark.parametrize(
    ("fault", "text", "links"), [("map", "no such memory", 1), ("meet", "nobody there", 2)]
)
def test_a_fault_of_one_set_up_is_told_to_all_and_can_be_tried_again(pair, fault, text, links):
    workers = pair()
    workers[0].do("Links.wrong = {fault}", fault=fault)
    workers.tell_all("call()")
    mine, theirs = workers.errors()
    assert mine.kind == "RuntimeError" and text in mine.text
    assert f"rank 0: {text}" in theirs.text
    workers[0].do("Links.wrong = set()")
    marks = workers.all("answer = call()[0].min(), len(Links.made)")
    assert marks[0] == marks[1] and marks[0][1] == links


def test_an_interrupt_amid_a_set_up_is_told_to_all(pair):
    """Between two parts that all do together, where the others wait for the next."""
    workers = pair()
    workers[0].do("Links.wrong = {'interrupt'}")
    workers.tell_all("call()")
    with within(SOON):
        assert workers[0].error().kind == "KeyboardInterrupt"
        require_failure(workers[1].error(), [0], "KeyboardInterrupt")
    workers[0].do("Links.wrong = set()")


def test_two_devices_of_one_process_are_refused(pair):
    workers = pair()
    workers.all("call()")
    workers.tell_all("call(*[rows(place=1)] * 3)")
    for error in workers.errors():
        assert "arrays on device 1; expected device 0" in error.text


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    return make_libraries(tmp_path_factory.mktemp("nccl"))


def test_nccl_gets_one_id_in_all(pair, libraries):
    workers = pair()
    use(workers, [libraries[0]] * 2)
    heard = workers.all("call(exchange='nccl')\nanswer = Links.made[0].heard")
    assert heard == [[(libraries[0], b"i" * 128), "forget"]] * 2
    assert all("NCCL" in text for text in workers.all("answer = group.explain()"))


def test_other_versions_of_nccl_and_one_gpu_for_two_are_refused(pair, libraries):
    workers = pair()
    use(workers, libraries)
    workers.tell_all("call(exchange='nccl')")
    for error in workers.errors():
        assert "rank 0: NCCL 2.28.9; rank 1: NCCL 2.27.7" in error.text
    workers.all("group.close()")
    workers = pair(identities=("a", "a"))
    use(workers, [libraries[0]] * 2)
    workers.tell_all("call(exchange='nccl')")
    for error in workers.errors():
        assert error.kind == "Unsupported" and "ranks 0, 1" in error.text


def test_a_call_that_stands_still_fails_after_the_timeout(pair):
    workers = pair(timeout_s=TIMEOUT)
    workers.all("call()")
    workers[0].do("Links.wrong = {'standing'}\ncall()")
    with within(TIMEOUT + SOON):
        workers[0].tell("group.synchronize()")
        error = workers[0].error()
    require_failure(error, [1], "nothing of this call", "in step 3")
    assert workers[0].do("answer = Links.made[0].is_aborted")
    workers[1].tell("time.sleep(0.3)\ncall()")
    assert workers[1].error().kind == "RankFailure"


HELD = "import ctypes; hold = ctypes.PyDLL(None).usleep"  # with the interpreter
STANDS = "Links.wrong = {'standing'}\ncall()\ntime.sleep(0.2)\n"
GIVEN_UP = "Links.made[0].is_aborted = True; hold(1_800_000)\ngroup.synchronize()"  # by the guard


def test_the_guard_comes_behind_the_watch(pair):
    workers = pair(timeout_s=TIMEOUT)
    workers.all("call()")
    assert workers[0].do("answer = Links.made[0].patience_s") > TIMEOUT


def test_what_was_given_up_while_the_interpreter_was_held_fails_the_group(pair):
    workers = pair()
    workers.all(f"{HELD}; call()")
    workers[0].tell(STANDS + GIVEN_UP)
    require_failure(workers[0].error(), [0], "interpreter", "group.synchronize()")
    workers[1].tell("time.sleep(0.3)\ncall()")
    require_failure(workers[1].error(), [0], "interpreter")


def test_who_ended_while_the_interpreter_was_held_is_named(pair):
    workers = pair()
    workers.all(f"{HELD}; call()")
    workers[0].tell(STANDS + GIVEN_UP)
    time.sleep(0.6)
    workers[1].do("group._control.peers[0].connection.shutdown(2)")
    require_failure(workers[0].error(), [1], "rank 1 ended")
    workers[1].tell("group.close()")
    require_failure(workers[1].error(), [0], "rank 0 ended")


def test_what_was_given_up_while_the_watch_looked_is_of_others(pair):
    """As it had to begin anew, behind a time in which it was kept from looking."""
    workers = pair()
    workers.all(f"{HELD}; call()")
    workers[0].tell(f"{STANDS}Links.made[0].is_aborted = True\ngroup.synchronize()")
    require_failure(workers[0].error(), [1], "nothing of this call")
    workers[1].tell("time.sleep(0.3)\ncall()")
    require_failure(workers[1].error(), [1], "nothing of this call")


def test_time_in_which_the_watch_could_not_look_does_not_count(pair):
    workers = pair(timeout_s=2.0)
    workers.all(f"{HELD}; call()")
    ends = "time.sleep(0.5)\nLinks.wrong = set()\ngroup.synchronize()"
    workers[0].do(f"{STANDS}hold(3_000_000)\n{ends}")


def test_messages_of_another_call_fail_the_group(pair):
    workers = pair()
    workers.all("call()")
    workers[0].do("Links.wrong = {'mismatch'}")
    workers.tell_all("time.sleep(0.6)\ncall()")
    for error in workers.errors():
        require_failure(error, [0, 1], "messages of another call")


def test_a_call_does_not_begin_behind_messages_of_another(pair):
    """Before the watch looks: over NCCL it would meet what has been aborted."""
    workers = pair()
    workers.all("call()")
    workers[0].tell(
        "next(iter(group._devices.values()))._asleep.set()\nLinks.wrong = {'mismatch'}\ncall()"
    )
    require_failure(workers[0].error(), [0, 1], "messages of another call")
    workers[1].tell("time.sleep(0.3)\ncall()")
    require_failure(workers[1].error(), [0, 1], "messages of another call")


def test_a_death_frees_the_streams(pair):
    workers = pair()
    workers.all("call()")
    workers[0].do("Links.wrong = {'standing'}\ncall()")
    workers[1].do("group._control.peers[0].connection.shutdown(2)")
    with within(SOON):
        workers[0].tell("group.synchronize()")
        assert workers[0].error().kind == "RankFailure"
    assert workers[0].do("answer = Links.made[0].is_aborted")
    workers[1].tell("group.close()")
    require_failure(workers[1].error(), [0], "rank 0 ended")
