"""Processes that come late, never, too early, twice, or die while a group meets."""

import signal
import socket
import time

import pytest
import ringside as rs
from group_meets import Meets, place
from group_processes import free_port, meeting, require_failure, started, wait_for_listener, within
from ringside._group import host, wire
from ringside._group.door import Door

SOON = 2.0  # seconds, after a death
TIMEOUT = 1.0  # of groups in which a rank is missing
LATE = TIMEOUT + 2.0


def test_a_rank_that_starts_late_is_waited_for():
    with started(2) as workers:
        place = {**meeting(), "size": 2}
        snippet = "group = rs.init(rank, **place); answer = str(group)"
        workers[1].tell(snippet, rank=1, place=place)
        time.sleep(1.0)
        workers[0].tell(snippet, rank=0, place=place)
        assert workers[1].answer() == "Group(rank=1, size=2)"
        assert workers[0].answer() == "Group(rank=0, size=2)"


def test_groups_follow_each_other_at_one_address():
    """Who is done with one comes for the next while others still get connected."""
    with started(3) as workers:
        workers.all(
            "for _ in range(20):\n    rs.init(rank, **place).close()",
            each=[{"rank": rank} for rank in range(3)],
            place={**meeting(), "size": 3, "timeout_s": 20},
        )


@pytest.mark.parametrize("absent", [0, 1])
def test_a_rank_that_never_starts_is_named(absent):
    with started(2) as workers:
        place = {**meeting(), "size": 3, "timeout_s": TIMEOUT}
        here = [rank for rank in range(3) if rank != absent]
        workers.all("pass")  # they run
        with within(LATE):
            workers.tell_all(
                "rs.init(rank, **place)", each=[{"rank": rank} for rank in here], place=place
            )
            for error in workers.errors():
                require_failure(error, [absent])


def test_a_process_that_died_while_the_group_met_may_come_again():
    with started(3) as workers:
        place = {**meeting(), "size": 3, "timeout_s": 20}
        snippet = "group = rs.init(rank, **place); answer = str(group)"
        workers[0].tell(snippet, rank=0, place=place)
        wait_for_listener(place["address"])
        workers[1].tell(snippet, rank=1, place=place)
        time.sleep(0.5)  # for it to join
        workers[1].signal(signal.SIGKILL)
        workers.extend(started(1))
        workers[3].tell(snippet, rank=1, place=place)
        time.sleep(0.3)
        workers[2].tell(snippet, rank=2, place=place)
        assert [workers[i].answer() for i in (0, 3, 2)] == [
            f"Group(rank={rank}, size=3)" for rank in range(3)
        ]


def test_a_process_that_dies_while_the_group_meets_is_named():
    with started(3) as workers:
        place = {**meeting(), "size": 4}
        workers.tell_all(
            "rs.init(rank, **place)", each=[{"rank": rank} for rank in range(3)], place=place
        )
        wait_for_listener(place["address"])
        time.sleep(0.5)  # for the others to join
        workers[0].signal(signal.SIGKILL)
        with within(SOON):
            for worker in workers[1:]:
                require_failure(worker.error(), [0], "rank 0 ended while the group met")


def test_another_version_is_refused_by_both():
    with started(1) as workers:
        where = {**meeting(), "size": 2, "timeout_s": 20}
        workers.all("from ringside._group import rendezvous\nrendezvous.__version__ = '0.0'")
        first = Meets(place(0, **where))
        workers[0].tell("rs.init(1, **where)", where=where)
        told = f"ringside 0.0 of rank 1 and {rs.__version__} of rank 0; expected one version"
        assert told in workers[0].error().text
        assert isinstance(first.outcome(), rs.InvalidArgument) and told in str(first.outcome())


def test_who_still_connects_for_a_group_that_failed_does_the_next_no_harm():
    where = meeting()
    first = Meets(place(0, 2, **where))
    wait_for_listener(where["address"])
    address, port = where["address"].split(":")
    late = Door(where["key"].encode(), 20.0).call((address, int(port)))
    wire.send(late, {"process": 1, "rank": 1, "peer": 0})
    second = Meets(place(1, 2, **where))
    assert first.outcome() == second.outcome() == [(0,), (1,)]
    late.close(), first.close(), second.close()


@pytest.mark.parametrize("runs_on", [False, True])
def test_whom_all_wait_for_is_named_and_not_who_waits_for_it(runs_on):
    """Rank 0 was stopped when it had met rank 2, and before it met rank 1, which is silent so."""
    key = b"of this test"
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as second,
    ):
        where = "127.0.0.1", first.getsockname()[1]
        last = Meets(place(2, 3, address=host.with_port(*where), key=key.decode(), timeout_s=1.0))
        joined, _ = Door(key, 20.0).admit(first, [2])
        listening = [None, second.getsockname(), first.getsockname()]
        wire.send(joined, {"processes": [[0], [1], [2]], "listening": listening, "mine": 2})
        link, _ = Door(key, 20.0).admit(first, [2])
        first.settimeout(20)
        asking = first.accept()[0] if runs_on else None
        if asking is not None:
            asking.sendall(wire.GREETING)
            asking.close()
        error = last.outcome()
    missed = 1 if runs_on else 0
    assert isinstance(error, rs.RankFailure) and error.ranks == (missed,), error
    assert f"rank {missed} did not answer rank 2 at 127.0.0.1:" in str(error)
    joined.close(), link.close()


def test_whom_those_that_do_not_come_wait_for_is_named_and_not_they():
    """Rank 0 was stopped when it had met rank 1, and before it met rank 2."""
    key, nowhere = b"of this test", ("127.0.0.1", free_port())
    with socket.create_server(("127.0.0.1", 0)) as first:
        where = host.with_port("127.0.0.1", first.getsockname()[1])
        second = Meets(place(1, 3, address=where, key=key.decode(), timeout_s=TIMEOUT))
        joined, _ = Door(key, 20.0).admit(first, [1])
        wire.send(
            joined, {"processes": [[0], [1], [2]], "listening": [None, nowhere, nowhere], "mine": 1}
        )
        link, _ = Door(key, 20.0).admit(first, [1])
        error = second.outcome()
    assert isinstance(error, rs.RankFailure) and error.ranks == (0,), error
    assert "rank 0 said nothing within 1 s while all met" in str(error)
    joined.close(), link.close()


def test_a_first_rank_that_stops_while_others_come_is_named_soon_after_the_timeout():
    key = b"of this test"
    begin = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as first:
        where = host.with_port("127.0.0.1", first.getsockname()[1])
        second = Meets(place(1, 2, address=where, key=key.decode(), timeout_s=TIMEOUT))
        joined, _ = Door(key, 20.0).admit(first, [1])
        error = second.outcome()
    assert isinstance(error, rs.RankFailure) and error.ranks == (0,), error
    assert "rank 0 said nothing within 1 s while the group met" in str(error)
    assert time.monotonic() - begin < 9.0  # to wait for one that runs would take 11
    joined.close()


def test_a_first_rank_that_began_later_may_say_later_who_is_missing():
    where = meeting()
    second = Meets(place(1, 3, **where, timeout_s=TIMEOUT))
    first = Meets(place(0, 3, **where, timeout_s=TIMEOUT + 1.0))
    for process in (first, second):
        error = process.outcome()
        assert isinstance(error, rs.RankFailure) and error.ranks == (2,), error
        assert "rank 2 did not come within 2 s" in str(error)


# --- groups of some processes of a job

LAUNCHERS = {
    "ringside run": lambda number, where: {
        **{"RINGSIDE_RANK": number, "RINGSIDE_SIZE": 4},
        **{"RINGSIDE_RENDEZVOUS": where["address"], "RINGSIDE_KEY": where["key"]},
    },
    "torchrun": lambda number, where: {
        **{"RANK": number, "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 4},
        **{"MASTER_ADDR": "localhost", "MASTER_PORT": where["address"].split(":")[1]},
    },
}


@pytest.fixture(params=LAUNCHERS)
def pairs(request):
    """pairs(more, order): processes 0 to 3 of a job, which come in an order that would mix them.

    `more` are arguments by pair.
    """
    where, all_of_them = meeting(), []

    def make(more, order=(3, 0, 1, 2)):
        four = {}
        for number in order:
            variables = LAUNCHERS[request.param](number, where)
            four[number] = Meets(place(number % 2, 2, variables, **more(number // 2)))
            all_of_them.append(four[number])
            time.sleep(0.2)
        return [four[number] for number in range(4)]

    yield make
    for process in all_of_them:
        process.close()


@pytest.mark.parametrize("order", [(3, 0, 1, 2), (0, 2, 1, 3)])
def test_two_groups_of_a_job_meet_at_once_by_name(pairs, order):
    a, b, c, d = pairs(lambda pair: {"name": f"pair {pair}"}, order)
    assert [x.outcome() for x in (a, b, c, d)] == [[(0,), (1,)]] * 4
    assert a.met_with(b) and c.met_with(d)


def test_two_groups_of_a_job_without_names_are_refused_and_not_mixed(pairs):
    for process in pairs(lambda pair: {}):
        error = process.outcome()
        assert isinstance(error, rs.InvalidArgument), error
        assert "a group of 2 processes of a job of 4; expected a name, as others" in str(error)
        assert 'Pass name="..." to ringside.init, alike in the processes of each' in str(error)


def test_a_group_that_never_comes_is_missed_though_another_meets_at_its_place():
    """As long as the other one meets, it lets in who is of another name, and sends them away."""
    where = meeting()
    first = Meets(place(0, 2, **where, name="a", timeout_s=2.5))
    wait_for_listener(where["address"])
    with within(LATE):
        error = Meets(place(1, 2, **where, name="b", timeout_s=TIMEOUT)).outcome()
    assert isinstance(error, rs.RankFailure) and error.ranks == (0,), error
    told = "rank 0 was not there within 1 s; another group of the same key met at its place"
    assert told in str(error)
    assert isinstance(first.outcome(), rs.RankFailure)
