"""Processes that come late, never, too early, twice, or die while a group meets."""

import signal
import time

import pytest
from group_processes import meeting, require_failure, started, wait_for_listener, within

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
