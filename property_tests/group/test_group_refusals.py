"""What processes do not agree on is refused by all of them, by rank, before anything is sent.

One set of processes serves all tests: a refusal leaves the group as it was, and each test ends with
a right call.
"""

import re
import socket

import numpy as np
import pytest
import ringside as rs
from group_processes import meeting, started, wait_for_listener, within
from ringside._group import wire

SETTING = """
layout = rs.PackedLayout([0, 20, 32])
def plan_of(**changes):
    return rs.plan(**{"layout_q": layout, "cp_size": 2, "num_heads": 2, **changes})
plan, rank = plan_of(), group.rank
x = np.random.default_rng(0).normal(size=(32, 2, 4))
def rows(array=x):
    return plan.shard(array, rank)
def right():
    want = plan.attention(x, x, x)[0]
    out, _ = plan.attention_rank(rows(), rows(), rows(), group=group)
    return (out == plan.shard(want, rank)).all()
"""


@pytest.fixture(scope="module")
def pair():
    with started(2) as workers:
        workers.make_group([[0], [1]], timeout_s=20)
        workers.all(SETTING)
        yield workers


def refusals(pair, call, *others):
    """What each process raises whose rank 0 makes the call, and rank 1 the other one."""
    pair[0].tell(call)
    pair[1].tell(*others)
    with within(5):
        errors = pair.errors()
    assert pair.all("answer = right()") == [True, True]
    return errors


def call(array="rows()", plan="plan", options=""):
    return f"{plan}.attention_rank({array}, {array}, {array}, group=group, {options})"


DIFFERENT = {
    "plans": (call(plan="plan_of(partition='striped')"), r"rank 1: plan \(striped over p2p, 2 r"),
    "masks": (call(plan="plan_of(mask=rs.Mask.full())"), r"rank 1: plan \(zigzag over p2p, 2 r"),
    "dtypes": (
        call(array="rows().astype(np.float32)"),
        r"rank 0: dtypes \(float64/.*\); rank 1: dtypes \(float32/float32/float32\)",
    ),
    "dims": (
        call(array="rows()[:, :, :3]"),
        r"rank 0: head_dims \(4/4\); rank 1: head_dims \(3/3\)",
    ),
    "softcaps": (call(options="softcap=2.0"), r"options \(\); rank 1: options \(softcap=2.0\)"),
    "seeds": (
        call(options="dropout_p=0.5, dropout_seed=9"),
        r"rank 1: options \(dropout_p=0.5, dropout_seed=9\)",
    ),
    "sinks": (call(options="sink=[0.0, 1.0]"), r"rank 1: options \(sink=\[0.0, 1.0\]\)"),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_calls_that_differ_are_refused_by_both_with_both_named(pair, what):
    other, pattern = DIFFERENT[what]
    softly = "options=rs.Options(softmax_scale=0.3125)"  # not agreed on yet, in any test
    fresh = other.replace("group=group, ", f"group=group, {softly}, ")
    for error in refusals(pair, call(options=softly), fresh):
        assert error.kind == "InvalidArgument"
        found = error.text.replace("softmax_scale=0.3125, ", "").replace("softmax_scale=0.3125", "")
        assert re.search(pattern, found), error.text
        assert "expected the same on every rank" in error.text


WRONG_SHARDS = {
    "rows": ("rows()[1:]", "q_r has 15 rows; rank 1 owns 16 of the plan's rows of q. Pass plan.s"),
    "heads": ("rows()[:, :1]", "q_r has shape (16, 1, 4); expected [16, 2, 4]: the plan's num_"),
    "dimensions": ("rows()[0]", "q_r has shape (2, 4); expected [rows, heads, dim] of rank 1"),
    "integers": ("rows().astype(int)", "q_r has dtype int64; expected float16, float32 or"),
    "lists": ("[rows(), rows()]", "q_r has shape (2, 16, 2, 4); expected [rows, heads, dim]"),
}


@pytest.mark.parametrize("what", WRONG_SHARDS)
def test_wrong_shards_of_a_new_plan_are_refused_by_both(pair, what):
    array, text = WRONG_SHARDS[what]
    window = 3 + list(WRONG_SHARDS).index(what)  # each a plan of its own
    fresh = f"plan_of(mask=rs.Mask.sliding_window({window}, 0))"
    errors = refusals(pair, call(plan=fresh), call(array, plan=fresh))
    assert errors[0].kind == "InvalidArgument" and errors[0].text.startswith("rank 1: "), errors[0]
    for error in errors:
        assert text in error.text, error


@pytest.mark.parametrize("plan", ["plan", "plan_of(mask=rs.Mask.sliding_window(9, 0))"])
def test_what_all_refuse_can_be_mended(pair, plan):
    both = call("rows()[1:]", plan=plan), call("rows()[:, :1]", plan=plan)
    for error, text in zip(refusals(pair, *both), ("has 15 rows", "(16, 1, 4)"), strict=True):
        assert error.kind == "InvalidArgument" and text in error.text


def test_a_plan_of_another_size_is_refused(pair):
    other = call(plan="plan_of(cp_size=3)")
    for error in refusals(pair, other, other):
        assert "the plan has 3 ranks and the group 2; expected as many. Make the pl" in error.text


def test_prepare_agrees_ahead_and_refuses_likewise(pair):
    rounds = "before = group._rounds\n"
    prepare = (
        "fresh = plan_of(comm='all_gather')\nfresh.prepare(group, head_dim={}, dtype='float64')"
    )
    pair[0].tell(prepare.format(4))
    pair[1].tell(prepare.format(5))
    for error in pair.errors():
        assert "rank 0: head_dims (4/4); rank 1: head_dims (5/5)" in error.text
    pair.all(prepare.format(4))
    pair.all(f"{rounds}{call(plan='fresh')}\nanswer = group._rounds - before")
    assert pair.all("answer = group._rounds - before") == [0, 0]
    pair.all(f"{rounds}{call(plan='fresh', options='softcap=1.0')}")
    assert pair.all("answer = group._rounds - before") == [1, 1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("backend='nccl'", 'Nearest supported: backend="reference" (CPU, sockets)'),
        ("backend='cuda'", 'Nearest supported: backend="reference" (CPU, sockets)'),
        ("bias=x", "Nearest supported: alibi_slopes"),
    ],
)
def test_what_there_is_not_names_what_is_near(pair, options, text):
    for error in refusals(pair, call(options=options), call(options=options)):
        assert error.kind == "Unsupported" and text in error.text, error


def test_arrays_on_a_gpu_are_refused(pair):
    pair.all("class OnGpu:\n    __cuda_array_interface__ = {'version': 3}")
    for error in refusals(pair, call("OnGpu()"), call("OnGpu()")):
        assert error.kind == "Unsupported" and "q_r is on a GPU" in error.text
        assert "Nearest supported: arrays on the host" in error.text


def test_an_unknown_backend_and_an_unknown_keyword_are_refused(pair):
    for error in refusals(pair, call(options="backend='mpi'"), call(options="backend='mpi'")):
        assert 'expected one of "reference", "cuda", "nccl"' in error.text
    for error in refusals(pair, call(options="soft_cap=1"), call(options="soft_cap=1")):
        assert error.kind == "TypeError" and "Pass softcap" in error.text


# --- while a group meets


@pytest.fixture
def strangers():
    """Two processes that are in no group yet."""
    with started(2) as workers:
        yield workers


def test_another_key_is_refused_and_does_no_harm(strangers):
    place = {**meeting(), "size": 2, "timeout_s": 20}
    join = "group = rs.init(rank, **place); answer = str(group)"
    strangers[0].tell(join, rank=0, place=place)
    strangers[1].tell(join, rank=1, place={**place, "key": "another"})
    error = strangers[1].error()
    assert error.kind == "InvalidArgument" and "holds another key than rank 1" in error.text
    assert strangers[1].do(join, rank=1, place=place) == "Group(rank=1, size=2)"
    assert strangers[0].answer() == "Group(rank=0, size=2)"


def test_the_key_itself_never_travels(strangers):
    place = {**meeting(), "size": 2, "timeout_s": 1}
    with socket.create_server(("127.0.0.1", int(place["address"].split(":")[1]))) as spy:
        strangers[1].tell("rs.init(1, **place)", place=place)
        connection, _ = spy.accept()
        with connection:
            connection.sendall(b"ringside group 1" + bytes(32))
            heard = connection.recv(4096)
            assert len(heard) == 64 and place["key"].encode() not in heard
            connection.sendall(bytes(32))
    assert "holds another key" in strangers[1].error().text


def test_who_does_not_prove_the_key_is_not_heard(strangers):
    """It says what rank 1 would say, and takes no notice of what it is told."""
    place = {**meeting(), "size": 2, "timeout_s": 20}
    join = "group = rs.init(rank, **place); answer = str(group)"
    strangers[0].tell(join, rank=0, place=place)
    wait_for_listener(place["address"])
    host, port = place["address"].split(":")
    with socket.create_connection((host, int(port))) as liar:
        liar.sendall(bytes(64))
        hello = {"ranks": [1], "size": 2, "version": rs.__version__, "host": host, "port": 9}
        liar.sendall(wire.encoded(hello))
        assert strangers[1].do(join, rank=1, place=place) == "Group(rank=1, size=2)"
    assert strangers[0].answer() == "Group(rank=0, size=2)"


def test_strangers_on_the_port_do_no_harm(strangers):
    place = {**meeting(), "size": 2, "timeout_s": 20}
    join = "group = rs.init(rank, **place); answer = str(group)"
    strangers[0].tell(join, rank=0, place=place)
    wait_for_listener(place["address"])
    host, port = place["address"].split(":")
    with (
        socket.create_connection((host, int(port))) as loud,
        socket.create_connection((host, int(port))),  # says nothing at all
    ):
        loud.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(1000))
        strangers[1].tell(join, rank=1, place=place)
        assert strangers[1].answer() == "Group(rank=1, size=2)"
    assert strangers[0].answer() == "Group(rank=0, size=2)"


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ((0, 2), (1, 3), "size=3 of rank 1 and size=2 of rank 0; expected one size"),
        (([0, 1], 3), ([1, 2], 3), "two processes host rank 1; expected each rank in one"),
    ],
)
def test_groups_that_do_not_fit_together_are_refused_by_both(strangers, first, second, text):
    snippet = "rs.init(*where, **place)"
    strangers.tell_all(snippet, each=[{"where": first}, {"where": second}], place=meeting())
    for error in strangers.errors():
        assert error.kind == "InvalidArgument" and text in error.text, error


# --- one process


def test_a_closed_group_is_refused():
    plan, x = rs.plan(rs.PackedLayout([0, 4]), cp_size=1), np.ones((4, 1, 2))
    with rs.init() as group:
        plan.attention_rank(x, x, x, group=group)
    with pytest.raises(rs.InvalidArgument, match="the group is closed; expected an open one"):
        plan.attention_rank(x, x, x, group=group)
    group.close()
    assert repr(group) == "Group(rank=0, size=1, closed)"


def test_a_group_that_failed_is_refused_with_its_reason():
    plan, x = rs.plan(rs.PackedLayout([0, 4]), cp_size=1), np.ones((4, 1, 2))
    group = rs.init()
    group._fail_by(ValueError("no data"))
    for _ in range(2):
        with pytest.raises(rs.RankFailure, match="rank 0 raised ValueError: no data") as error:
            plan.attention_rank(x, x, x, group=group)
        assert (error.value.ranks, error.value.call, error.value.step) == ((0,), 0, None)
    assert "failed" in repr(group)
    group.close()


def test_lists_are_of_as_many_arrays_as_ranks():
    plan, x = rs.plan(rs.PackedLayout([0, 4]), cp_size=2), np.ones((2, 1, 2))
    with rs.init(ranks_per_process=2) as group:
        with pytest.raises(rs.InvalidArgument, match="q_r is a list of 1; expected a list of 2"):
            plan.attention_rank([x], [x], [x], group=group)
        with pytest.raises(ValueError, match="this process hosts ranks 0, 1; expected one rank"):
            group.rank  # noqa: B018
        with pytest.raises(rs.InvalidArgument, match=r"q_r has dtypes .*; expected one"):
            both = [x, x.astype(np.float32)]
            plan.attention_rank(both, both, both, group=group)
        stacked = np.stack([x, x])
        assert len(plan.attention_rank(stacked, stacked, stacked, group=group)[0]) == 2
