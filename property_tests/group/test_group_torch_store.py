"""Processes of torchrun over several hosts meet at its store: threads here, and torch's own store.

A real torchrun, over hosts that network namespaces stand for, is in test_group_torchrun.py.
"""

import socket
import time

import pytest
import ringside as rs
from group_meets import Meets, place
from group_processes import free_port, within
from ringside._group import host, torch_store
from ringside._group.notice import Notice, decoded
from ringside._group.rendezvous import Meeting

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)

SOON = 2.0  # seconds


@pytest.fixture(scope="module")
def served():
    """The agent's store."""
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.fixture
def job(served, request, monkeypatch):
    """job(rank, size, key=..., ...): the place of a process of torchrun on a host of its own."""
    monkeypatch.setattr(host, "addresses", lambda: ["127.0.0.1"])  # this machine's, for all
    monkeypatch.setattr(host, "ways", lambda main: ["127.0.0.1"])
    run = request.node.name

    def make(rank, size=2, key=None, name="", port=None, timeout_s=20.0, where="127.0.0.1"):
        variables = {
            **{"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1},
            **{"MASTER_ADDR": where, "MASTER_PORT": port or served.port},
            **{"TORCHELASTIC_RUN_ID": run, "TORCHELASTIC_USE_AGENT_STORE": "True"},
            **({} if key is None else {"RINGSIDE_KEY": key}),
        }
        return place(variables=variables, name=name, timeout_s=timeout_s)

    return make


def posted(served, place):
    """What stands in the store."""
    return served.get(place.board.name) if served.check([place.board.name]) else None


def wait_for_notice(served, place):
    until = time.monotonic() + 20
    while decoded(posted(served, place) or "") is None:
        assert time.monotonic() < until, "nothing was posted"
        time.sleep(0.02)
    return decoded(posted(served, place))


def test_processes_meet_where_the_first_says_and_nothing_stays(served, job):
    for _ in range(2):  # again, under the same name
        processes = [Meets(job(rank, 3)) for rank in (2, 0, 1)]
        assert [x.outcome() for x in processes] == [[(0,), (1,), (2,)]] * 3
        assert posted(served, job(0)) == b"none"


def test_a_key_that_all_were_given_does_not_travel(served, job):
    first = Meets(job(0, key="a secret"))
    notice = wait_for_notice(served, job(0))
    assert notice == Notice(("127.0.0.1",), notice.port, None)
    assert b"a secret" not in posted(served, job(0))
    second = Meets(job(1, key="a secret"))
    assert first.outcome() == second.outcome() == [(0,), (1,)]


def test_a_key_that_nobody_was_given_is_another_one_each_time(served, job):
    keys = set()
    for _ in range(2):
        first = Meets(job(0))
        keys.add(wait_for_notice(served, job(0)).key)
        assert Meets(job(1)).outcome() == first.outcome() == [(0,), (1,)]
    assert len(keys) == 2 and all(len(key) == 64 for key in keys)


@pytest.mark.parametrize(
    ("of_first", "of_second", "text"),
    [
        ("one", "another", "holds another key than rank 1; expected one key. Pass the same key"),
        ("one", None, "rank 0 was given a key and rank 1 none; expected both or none. Pass the"),
        (None, "one", "rank 1 was given a key and rank 0 none; expected both or none. Pass the"),
    ],
)
def test_keys_that_differ_are_refused_at_once(job, of_first, of_second, text):
    first = Meets(job(0, key=of_first, timeout_s=1.5))
    with within(SOON):
        error = Meets(job(1, key=of_second)).outcome()
    assert isinstance(error, rs.InvalidArgument) and text in str(error), error
    error = first.outcome()
    assert isinstance(error, rs.RankFailure) and error.ranks == (1,), error
    came = "; 1 came with another key" if of_first and of_second else ""
    assert f"rank 1 did not come within 1.5 s{came} (noticed" in str(error)


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_notice_of_processes_that_were_killed_is_tried_until_there_is_another(job, is_answered):
    """A restart finds it. Nobody listens where it says, or by now another group does."""
    port = free_port()
    others = {"address": f"127.0.0.1:{port}", "key": "its own", "timeout_s": 2.0}
    other = Meets(place(0, 2, **others)) if is_answered else None
    board = job(0).board
    board.open()
    board.post(Notice(("127.0.0.1",), port, b"of those that were killed"), 5.0)
    second = Meets(job(1))
    time.sleep(0.5)
    first = Meets(job(0))
    assert first.outcome() == second.outcome() == [(0,), (1,)]
    if other is not None:
        assert "rank 1 did not come" in str(other.outcome())


def test_ranks_that_do_not_come_are_named(job):
    missing = {0: [2], 1: [2]}
    processes = {rank: Meets(job(rank, 3, timeout_s=1.0)) for rank in missing}
    for rank, ranks in missing.items():
        error = processes[rank].outcome()
        assert isinstance(error, rs.RankFailure) and list(error.ranks) == ranks, error
        assert "rank 2 did not come within 1 s" in str(error)


def test_a_first_rank_that_does_not_come_is_named_with_the_store(served, job):
    error = Meets(job(1, timeout_s=1.0)).outcome()
    assert isinstance(error, rs.RankFailure) and error.ranks == (0,), error
    place = f"torchrun's store at 127.0.0.1:{served.port} does not say where: the process of rank 0"
    assert f"rank 0 was not there within 1 s ({place}" in str(error)


def test_groups_of_some_processes_meet_by_name_and_only_so(job):
    """Two at once, whose ranks come in the order that would mix them."""
    met = {}
    for who in (("b", 1), ("a", 0), ("a", 1), ("b", 0)):
        met[who] = Meets(job(who[1], name=who[0]))
        time.sleep(0.2)
    assert [x.outcome() for x in met.values()] == [[(0,), (1,)]] * 4
    for group in "ab":
        assert met[group, 0].met_with(met[group, 1])


def test_a_store_that_is_not_there_is_named_in_time(job):
    port = free_port()
    with within(1.0 + SOON):
        first, second = (Meets(job(rank, port=port, timeout_s=1.0)) for rank in (0, 1))
        where = f"torchrun's store at 127.0.0.1:{port}: [Errno 111] Connection refused"
        error = first.outcome()
        assert isinstance(error, rs.InvalidArgument), error
        assert f"{where}, tried for 1 s; expected to be let in there" in str(error)
        assert "Set RINGSIDE_RENDEZVOUS=host:port" in str(error)
        error = second.outcome()
        assert isinstance(error, rs.RankFailure) and error.ranks == (0,), error
        assert f"rank 0 was not there within 1 s ({where})" in str(error)


def test_a_store_that_is_late_is_waited_for(job):
    port = free_port()
    both = [Meets(job(rank, port=port)) for rank in (0, 1)]
    time.sleep(0.5)
    late = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    assert [process.outcome() for process in both] == [[(0,), (1,)]] * 2
    assert late.port == port


def test_who_listens_in_its_place_and_says_nothing_is_waited_for_no_longer(job):
    """As torch itself would be, which has no timeout for this."""
    with socket.create_server(("127.0.0.1", 0)) as silent, within(1.0 + SOON):
        each = [Meets(job(rank, port=silent.getsockname()[1], timeout_s=1.0)) for rank in (0, 1)]
        for process, kind in zip(each, (rs.InvalidArgument, rs.RankFailure), strict=True):
            error = process.outcome()
            assert isinstance(error, kind) and ": timed out" in str(error), error


def test_a_master_that_is_no_name_here_is_told_so(job):
    error = Meets(job(1, where="no-such-host.invalid", timeout_s=0.5)).outcome()
    assert "no-such-host.invalid" in str(error) and "which is no name on this host" in str(error)


def test_without_torch_the_way_around_is_told(job, monkeypatch):
    def absent(name):
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(torch_store.importlib, "import_module", absent)
    with pytest.raises(rs.InvalidArgument, match="set RINGSIDE_RENDEZVOUS and RINGSIDE_KEY for ea"):
        Meeting(job(0))


def test_what_is_no_notice_is_none():
    for text in ("", "none", "{}", '{"ways": 1, "port": 2, "key": null}', '{"ways": ["a"]}', "[1]"):
        assert decoded(text) is None
    notice = Notice(("a", "fd00::1"), 9, b"k")
    assert decoded(notice.encoded()) == decoded(notice.encoded().encode()) == notice
