"""Ranks on several hosts, which network namespaces of this machine stand for: CPUs over sockets.

What two hosts have and one has not: names that mean another thing on each, addresses that some
cannot reach, cables that are cut without a word, memory that is not shared.
"""

import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
from group_processes import Raised, environment, require_failure, within
from network_hosts import Network, missing, slow_cable
from played_libraries import START

SOON = 2.0  # seconds, after a death
TIMEOUT = 2.0  # of groups in which a host is silent: longer than a beat may be late
KEY = "of this test"
PORT = 29411

CALL = """
plan = rs.plan(rs.PackedLayout([0, 40, 64]), cp_size=group.size, num_heads=12, comm=comm)
x = np.random.default_rng(0).normal(size=(64, 12, 4))
shards = [mine(plan, group.ranks, x)] * 3
def call():
    return plan.attention_rank(*shards, group=group)
def right():
    return bool((call()[0] == plan.shard(plan.attention(x, x, x)[0], group.rank)).all())
answer = right()
"""


@pytest.fixture(scope="module")
def reason():
    return missing()


@pytest.fixture
def network(reason):
    """network(count, ...): hosts on a switch, for one test."""
    if reason:
        pytest.skip(reason)
    every = []

    def make(count, **more):
        every.append(Network(count, **more).__enter__())
        return every[-1]

    yield make
    for made in every:
        made.__exit__()


def meet(workers, address, timeout_s=20.0):
    """All are told to make a group, a rank each."""
    place = {"size": len(workers), "address": address, "key": KEY, "timeout_s": timeout_s}
    workers.all("None")  # they run: a timeout is not for starting Python
    each = [{"rank": rank} for rank in range(len(workers))]
    workers.tell_all("group = rs.init(rank, **place)", each, place=place)


def said(worker):
    """Its answer or what it raised, so that a test shows those of all."""
    try:
        return worker.answer()
    except Raised as raised:
        return raised


def grouped(workers, address, comm="p2p", **more):
    """They are one, and compute what one process would."""
    meet(workers, address, **more)
    assert [said(worker) for worker in workers] == [None] * len(workers)
    assert workers.all(CALL, comm=comm) == [True] * len(workers)


def test_hosts_meet_by_address_and_by_name_over_either_protocol(network):
    """The name of the first host means 127.0.1.1 there, and both ranks of it come that way."""
    hosts = network(3)
    with hosts.started(2) as workers:
        for where in ("10.77.0.1", "node0", "[fd77::1]"):
            grouped(workers, f"{where}:{PORT}")
            workers.all("group.close()")
    assert len({host.name for host in hosts.hosts}) == 3


def test_hosts_that_speak_ipv6_only_meet_by_name(network):
    with network(2, families=(6,)).started(1) as workers:
        grouped(workers, f"node0:{PORT}")


def test_an_address_of_another_host_is_refused_at_once_where_rank_0_is(network):
    with network(2).started(1) as workers:
        with within(SOON):
            meet(workers, f"10.77.0.2:{PORT}", timeout_s=1.0)
            error = workers[0].error()
        assert error.kind == "InvalidArgument"
        assert "10.77.0.2 is no address of this host, which hosts rank 0" in error.text
        assert "expected one of 10.77.0.1, fd77::1. Set it so" in error.text
        require_failure(workers[1].error(), [0], f"10.77.0.2:{PORT}: ", "refused")


def test_a_name_that_means_the_own_host_on_every_host_is_told_so(network):
    hosts = network(2)
    for host in hosts.hosts:
        host.knows({"here": "127.0.1.1"})
    with hosts.started(1) as workers:
        meet(workers, f"here:{PORT}", timeout_s=1.0)
        require_failure(workers[0].error(), [1], "rank 1 did not come within 1 s")
        where = f"(here:{PORT}, which is 127.0.1.1 on this host: itself: "
        require_failure(workers[1].error(), [0], "rank 0 was not there within 1 s", where)


def test_hosts_that_cannot_reach_each_other_are_named_on_all_with_the_address(network):
    hosts = network(3)
    hosts.hosts[2].configure("route add unreachable 10.77.0.2/32")
    with hosts.started(1) as workers:
        meet(workers, f"10.77.0.1:{PORT}")
        outcomes = [said(worker) for worker in workers]
        assert outcomes[2] is not None
        for worker, outcome in zip(workers, outcomes, strict=True):
            if outcome is None:  # it had met all of its own, and hears in its first call
                worker.tell("time.sleep(0.5)\ngroup._require_usable()")
            error = outcome or worker.error()
            require_failure(error, [1], "rank 1 did not answer rank 2 at 10.77.0.2:", "No route")
            assert "expected that every host reaches every other, at any port" in error.text


def test_a_silent_network_delays_nobody_beyond_the_timeout_while_a_group_meets(network):
    hosts = network(2)
    hosts.cut(hosts.hosts[1])
    with hosts.started(1) as workers, within(TIMEOUT + SOON):
        meet(workers, f"node0:{PORT}", timeout_s=TIMEOUT)
        require_failure(workers[0].error(), [1], "rank 1 did not come within 2 s")
        require_failure(workers[1].error(), [0], "rank 0 was not there within 2 s", "timed out")


@pytest.mark.parametrize("how", ["cut", "unplug"])
def test_silent_hosts_are_named_by_all_others_within_the_timeout(network, how):
    """Nothing says that they are gone: no socket closes. Their ranks miss the others likewise."""
    hosts = network(2)
    second = hosts.hosts[1]
    with hosts.started(2) as workers:
        grouped(workers, f"node0:{PORT}", "p2p" if how == "cut" else "a2a", timeout_s=TIMEOUT)
        getattr(hosts, how)(second)
        with within(TIMEOUT + SOON):
            workers.tell_all("call()")
            for worker in workers[:2]:
                require_failure(worker.error(), [2, 3], "gave no sign of life for 2 s", "in step")
            for worker in workers[2:]:
                require_failure(worker.error(), [0, 1], "gave no sign of life for 2 s", "in step")
        survivors = type(workers)(workers[:2])
        survivors.all("group.close()")
        grouped(survivors, f"node0:{PORT}")
        if how == "cut":
            hosts.mend(second)
            workers.all("group.close()")
            grouped(workers, f"node0:{PORT}")


def test_a_host_that_is_silent_before_a_call_is_agreed_on_is_named(network):
    hosts = network(3)
    with hosts.started(1) as workers:
        grouped(workers, f"node0:{PORT}", timeout_s=TIMEOUT)
        hosts.cut(hosts.hosts[2])
        with within(TIMEOUT + SOON):
            workers.tell_all(CALL.replace("40, 64", "50, 64"), comm="all_gather")
            for worker in workers[:2]:
                require_failure(worker.error(), [2], "gave no sign of life for 2 s")
            require_failure(workers[2].error(), [0, 1], "gave no sign of life for 2 s")


def test_a_rank_killed_on_another_host_is_named_soon(network):
    with network(2).started(2) as workers:
        grouped(workers, f"node0:{PORT}")
        for worker in workers[:3]:
            worker.tell("call()")
        time.sleep(0.3)
        workers[3].signal(signal.SIGKILL)
        with within(SOON):
            for worker in workers[:3]:
                require_failure(worker.error(), [3], "rank 3 ended", "in step")


def test_a_slow_network_is_no_failure(network):
    """50 ms each way; many steps take longer than the timeout, each of them less."""
    hosts = network(2)
    with slow_cable(hosts.hosts, 0.05) as (address, _), hosts.started(1) as workers:
        grouped(workers, f"{address}:{PORT}", timeout_s=1.0)
        more = "answer = [right() for _ in range(15)]"
        begin = time.monotonic()
        assert workers.all(more) == [[True] * 15] * 2
        assert time.monotonic() - begin > 0.5  # it was slow


LAUNCHERS = {
    "torchrun": {
        **{"RANK": "{}", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"},
        **{"MASTER_ADDR": "node0", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"},
    },
    "srun": {
        **{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "{}", "SLURM_LOCALID": "0"},
        **{"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2"},
        **{"SLURM_STEP_NODELIST": "node[0-1]", "SLURM_NODEID": "{}"},
    },
}


def test_a_step_of_srun_over_hosts_needs_a_key_and_nothing_else(network):
    hosts = network(2).hosts
    own = [{k: v.format(i) for k, v in LAUNCHERS["srun"].items()} for i in range(2)]
    with hosts[0].started(1, **own[0]) as workers:
        workers.extend(hosts[1].started(1, **own[1]))
        workers.tell_all("rs.init(timeout_s=20)")
        for error in workers.errors():
            assert error.kind == "InvalidArgument"
            assert "srun on several hosts and no key; expected one. Set RINGSIDE_KEY" in error.text
        workers.all("os.environ['RINGSIDE_KEY'] = key", key=KEY)
        workers.all("group = rs.init(timeout_s=20)")
        assert workers.all(CALL, comm="p2p") == [True, True]


MPIRUN = shutil.which("mpirun")


@pytest.mark.skipif(MPIRUN is None, reason="no mpirun is installed (openmpi-bin)")
def test_mpirun_over_hosts_passes_on_where_to_meet(network, tmp_path):
    if "Open MPI" not in subprocess.check_output([MPIRUN, "--version"], text=True):
        pytest.skip("this mpirun is not of OpenMPI, which is told how to reach a host")
    hosts = network(2).hosts
    reach, where = tmp_path / "reach", tmp_path / "hosts"  # instead of ssh
    cases = [f'{x.name}) shift; exec {shlex.join(x.begin)} sh -c "$*" ;;' for x in hosts]
    reach.write_text("\n".join(["#!/bin/sh", 'case "$1" in', *cases, "esac"]))
    reach.chmod(0o700)
    where.write_text("".join(f"{x.name} slots=1\n" for x in hosts))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("os.environ['RINGSIDE_LOCAL_RANK']", "0"))
    command = [*hosts[0].begin, MPIRUN, "--allow-run-as-root", "--hostfile", str(where)]
    command += ["--mca", "plm_rsh_agent", str(reach), "-x", "PYTHONPATH"]
    told = environment(RINGSIDE_RENDEZVOUS=f"node0:{PORT}", RINGSIDE_KEY=KEY)
    passed_on = ["-x", "RINGSIDE_RENDEZVOUS", "-x", "RINGSIDE_KEY"]
    run = {"capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run([*command, *passed_on, sys.executable, script], env=told, **run)
    said = [f"{i} of 2 on node{i}, 0 there" for i in (0, 1)]
    assert sorted(done.stdout.splitlines()) == said, done.stderr


def test_jobs_of_two_hosts_that_look_alike_and_share_a_folder_stay_apart(network, tmp_path):
    hosts = network(2)
    with hosts.started(0) as workers:
        for host in hosts.hosts:
            for rank in range(2):
                own = {**LAUNCHERS["torchrun"], "LOCAL_WORLD_SIZE": "2", "RANK": str(rank)}
                workers.extend(host.started(1, **own, TMPDIR=tmp_path))
        workers.all("None")
        workers.tell_all("group = rs.init(timeout_s=20)")
        assert [said(worker) for worker in workers] == [None] * 4
        each = [{"number": number} for number in (1, 1, 2, 2)]
        heard = workers.all("answer = [v for _, v in group._gather('job', 0, number)]", each)
        assert heard == [[1, 1], [1, 1], [2, 2], [2, 2]]


SCRIPT = """
import os, socket, sys
import ringside as rs
with rs.init(timeout_s=20) as group:
    told = f"{group.rank} of {group.size} on {socket.gethostname()}"
    os.write(1, f"{told}, {os.environ['RINGSIDE_LOCAL_RANK']} there\\n".encode())
    group._gather("all have said so", 0, None)
    sys.exit(7 if group.rank == 3 else 0)
"""


def test_ringside_run_on_each_host_makes_one_group(network, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    running = [
        subprocess.Popen(
            [
                *(*host.begin, sys.executable, "-m", "ringside", "run", "--nproc", "2"),
                *("--nnodes", "2", "--node-rank", str(host.number), "--master-addr", "node0"),
                str(script),
            ],
            env=environment(RINGSIDE_KEY=KEY),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host in network(2).hosts
    ]
    (out0, err0), (out1, err1) = (process.communicate(timeout=60) for process in running)
    assert sorted(out0.splitlines()) == [f"{i} of 4 on node0, {i} there" for i in (0, 1)], err0
    assert sorted(out1.splitlines()) == [f"{i} of 4 on node1, {i - 2} there" for i in (2, 3)], err1
    assert running[1].returncode == 7 and "process 3 of 4 exited with code 7" in err1, err1


@pytest.mark.parametrize("is_a_machine", [True, False])
def test_gpus_of_other_hosts_exchange_through_no_memory(network, is_a_machine):
    """GPUs are played. Namespaces of one machine share its memory, hosts do not."""
    hosts = network(2)
    for host in hosts.hosts:
        host.is_a_machine = is_a_machine
    with hosts.started(1) as workers:
        grouped(workers, f"node0:{PORT}")
        workers.all(START, [{"identity": x} for x in "ab"], size=2)
        for exchange in ("peer", "auto") if is_a_machine else ():
            workers.tell_all("call(exchange=exchange)", exchange=exchange)
            nearest = 'exchange="nccl"' if exchange == "peer" else "arrays on the host (CPU, socke"
            for error in workers.errors():
                assert error.kind == "Unsupported" and f"Nearest supported: {nearest}" in error.text
                assert ("rank 0 on one, rank 1 on another" in error.text) == (exchange == "peer")
        if not is_a_machine:
            workers.all("call(exchange='peer')")
            assert workers.all("answer = Links.made[0].heard[0]") == ["peers"] * 2
        workers.all(CALL, comm="p2p")
        assert workers.all("answer = right()") == [True, True]
