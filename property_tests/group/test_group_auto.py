"""exchange="auto" on GPUs that are played: both exchanges are tried, all take the faster one."""

import pytest
from group_processes import started
from played_libraries import START, make_libraries, use


@pytest.fixture(scope="module")
def workers():
    with started(2) as both:
        yield both


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    return make_libraries(tmp_path_factory.mktemp("nccl"))


@pytest.fixture
def pair(workers, libraries):
    """Two processes in a new group, each with a GPU and NCCL."""

    def make(identities=("a", "b"), paths=None):
        workers.make_group([[0], [1]], timeout_s=20)
        workers.all(START, [{"identity": x} for x in identities], size=2)
        workers.all("Links.took = {'peer': 1.0, 'nccl': 2.0}")
        use(workers, paths or [libraries[0]] * 2)
        return workers

    yield make
    workers.all("group.close() if 'group' in globals() else None")


CHOSEN = """
call()
answer = (Program.rehearsed, [x.exchange for x in Links.made if x.calls], group.explain())
answer = (*answer, Program.made, [x.heard[-2:] for x in Links.made if not x.calls])
"""


@pytest.mark.parametrize(("peer", "nccl"), [(1500.0, 4000.0), (4000.0, 1500.0), (9.0, 9.0)])
def test_the_faster_one_is_taken_and_the_other_gives_its_memory_back(pair, peer, nccl):
    workers = pair()
    workers.all("Links.took = took", took={"peer": peer, "nccl": nccl})
    better = "peer" if peer <= nccl else "nccl"
    for rehearsed, used, explained, made, left in workers.all(CHOSEN):
        assert rehearsed == ["peer", "nccl"] and used == [better] and made == 1
        assert left == [["unmap", "free"]]
        assert f"peer {peer / 1000:.3f} ms; nccl {nccl / 1000:.3f} ms" in explained, explained
        assert f"of messages: {better} (messages of both passes" in explained, explained


def test_the_slowest_process_decides_for_all(pair):
    workers = pair()
    for worker, took in zip(workers, [(10.0, 30.0), (40.0, 20.0)], strict=True):
        worker.do("Links.took = took", took=dict(zip(("peer", "nccl"), took, strict=True)))
    found = workers.all(CHOSEN)
    assert [used for _, used, *_ in found] == [["nccl"]] * 2
    assert all("peer 0.040 ms; nccl 0.030 ms" in text for _, _, text, *_ in found)


OTHERS = {
    "the same": ("plan", 0),
    "messages alike": ("rs.plan(rs.PackedLayout([0, 44, 60]), cp_size=size, num_heads=2)", 0),
    "longer messages": ("rs.plan(rs.PackedLayout([0, 400]), cp_size=size, num_heads=2)", 2),
    "another transport": (
        "rs.plan(rs.PackedLayout([0, 40, 64]), cp_size=size, comm='all_gather', num_heads=2)",
        2,
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_plans_alike_are_measured_once(pair, other):
    made, more = OTHERS[other]
    workers = pair()
    workers.all("call()")
    workers.all("Links.took = {'peer': 3.0, 'nccl': 2.0}")
    found = workers.all(
        f"""
plan = {made}
n = len(plan.row_indices(group.rank))
call(*[rows(n)] * 3)
call(*[rows(n)] * 3)
answer = Program.rehearsed[2:], [x.calls for x in Links.made if x.calls]
"""
    )
    assert [len(rehearsed) for rehearsed, _ in found] == [more] * 2
    assert [calls for _, calls in found] == [[1, 2] if more else [3]] * 2


def test_where_one_does_not_fit_nothing_is_measured_and_why_is_told(pair, libraries):
    for identities, paths, why in (
        (("a", "a"), [libraries[0]] * 2, "in processes of one GPU"),
        (("a", "b"), libraries, "rank 0: NCCL 2.28.9; rank 1: NCCL 2.27.7"),
        (("a", "b"), [libraries[0], "/nowhere"], "on rank 1"),
    ):
        workers = pair(identities, paths)
        for rehearsed, used, explained, *_ in workers.all(CHOSEN):
            assert rehearsed == [] and used == ["peer"]
            assert f"peer (nccl is not there: {'' if why[0] == 'r' else 'exchange'}" in explained
            assert why in explained, explained
        workers.all("group.close()")


@pytest.mark.parametrize("fault", ["nccl", "rehearse nccl", "meet", "rehearse peer"])
def test_one_that_fails_in_a_process_is_taken_by_none(pair, fault):
    better = "peer" if "nccl" in fault else "nccl"
    workers = pair()
    workers.all("Links.took = {'peer': 3.0, 'nccl': 2.0}")
    workers[1].do("Links.wrong = {fault}", fault=fault)
    for _, used, explained, *_ in workers.all(CHOSEN):
        assert used == [better], explained
        assert f"{better} (messages of both passes" in explained and "is not there: " in explained
    assert workers.all("answer = call()[0].shape") == [(32, 2, 4)] * 2


def test_where_both_fail_the_call_raises_and_can_be_tried_again(pair):
    workers = pair()
    workers[1].do("Links.wrong = {'meet', 'nccl'}")
    workers.tell_all("call()")
    mine, theirs = workers.errors()
    assert "rank 1: no socket" in mine.text and "no socket" in theirs.text
    workers[1].do("Links.wrong = set()")
    assert workers.all("answer = call()[0].shape") == [(32, 2, 4)] * 2


def test_a_program_that_was_there_stays_with_the_exchange_that_was_asked_for(pair):
    workers = pair()
    workers.all("call(exchange='nccl')")
    found = workers.all(
        """
call()
call(exchange='nccl')
answer = [(x.exchange, x.calls, "free" in x.heard) for x in Links.made]
"""
    )
    assert found == [[("nccl", 2, False), ("peer", 1, False)]] * 2


def test_prepare_measures_ahead_of_the_first_call(pair):
    found = pair().all(
        """
plan.prepare(group, head_dim=4, device=0)
ahead, rounds = list(Program.rehearsed), group._rounds
call()
answer = ahead, Program.rehearsed, group._rounds - rounds
"""
    )
    assert found == [(["peer", "nccl"], ["peer", "nccl"], 0)] * 2


def test_a_death_while_it_is_measured_is_no_reason_for_the_other_exchange(pair):
    workers = pair()
    workers[1].do(
        """
def die(self, links, times):
    group._control.peers[0].connection.shutdown(2)
    raise RuntimeError("gone")
Program.rehearse = die
"""
    )
    workers.tell_all("call()")
    assert workers[0].error().kind == "RankFailure"
    assert workers[1].error().kind == "RankFailure"
    workers[1].do("from importlib import reload\nreload(played_ranks)")
