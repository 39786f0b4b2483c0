"""Where a process stands, by arguments and by each launcher's variables; ringside run; mpirun."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import ringside as rs
from group_meets import place
from group_processes import environment, free_port, meeting, started, wait_for_listener, within
from ringside._group import launch, meeting_file
from ringside._group.notice import Notice

TORCHRUN = {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}
TORCHRUN |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500, "TORCHELASTIC_RUN_ID": "none"}
OPENMPI = {"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_SIZE": 2}
MPICH = {"PMI_RANK": 1, "PMI_SIZE": 2, "MPI_LOCALRANKID": 1, "MPI_LOCALNRANKS": 2}
SBATCH = {"SLURM_JOB_ID": 7, "SLURM_NTASKS": 2, "SLURM_PROCID": 0, "SLURM_LOCALID": 0}
SRUN = {**SBATCH, "SLURM_PROCID": 1, "SLURM_STEP_ID": 0, "SLURM_STEP_NUM_TASKS": 2}
SRUN |= {"SLURM_STEP_NUM_NODES": 1, "SLURM_LOCALID": 1}
RUN = {"RINGSIDE_RANK": 1, "RINGSIDE_SIZE": 2}
RUN |= {"RINGSIDE_RENDEZVOUS": "127.0.0.1:5", "RINGSIDE_KEY": "secret"}
LAUNCHERS = {
    "torchrun": (TORCHRUN, "RANK"),
    "mpirun (OpenMPI)": (OPENMPI, "OMPI_COMM_WORLD_RANK"),
    "mpiexec (MPICH)": (MPICH, "PMI_RANK"),
    "srun": (SRUN, "SLURM_PROCID"),
    "ringside run": (RUN, "RINGSIDE_RANK"),
}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_each_launcher_s_variables_are_read(name):
    variables, _ = LAUNCHERS[name]
    found = launch.found({name: str(value) for name, value in variables.items()})
    assert (found.launcher, found.rank, found.size) == (name, 1, 2)
    assert place(variables=variables).ranks == (1,)
    hosted = place(variables=variables, ranks_per_process=3)
    assert (hosted.ranks, hosted.size) == ((3, 4, 5), 6)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        SBATCH,  # a batch script: SLURM_NTASKS counts tasks that are not there
        {"RANK": 1},  # anybody's word
        {"RANK": 1, "WORLD_SIZE": 2},
        {"PMI_RANK": 1, "PMI_SIZE": 2},  # of srun, which says more
    ],
)
def test_what_is_merely_inherited_makes_nobody_wait(variables):
    assert place(variables=variables).is_alone


def test_a_batch_script_starts_at_once():
    with started(1, **SBATCH) as (worker,):
        assert worker.do("answer = str(rs.init())") == "Group(rank=0, size=1)"
        assert worker.seconds < 1


def test_the_innermost_launcher_counts():
    assert launch.found({k: str(v) for k, v in {**SRUN, **TORCHRUN}.items()}).launcher == "torchrun"
    assert launch.found({k: str(v) for k, v in {**SRUN, **RUN}.items()}).launcher == "ringside run"


def test_arguments_come_before_variables():
    found = place([0, 3], 4, RUN, address="10.0.0.1:99", key="other", timeout_s=3)
    assert (found.ranks, found.size, found.timeout_s) == ((0, 3), 4, 3)
    assert (found.address, found.key) == (("10.0.0.1", 99), b"other")
    mixed = place(0, 2, {**RUN, "RINGSIDE_TIMEOUT_S": "2.5"})
    assert (mixed.address, mixed.key, mixed.timeout_s) == (("127.0.0.1", 5), b"secret", 2.5)


@pytest.mark.parametrize("name", ["torchrun", "mpirun (OpenMPI)", "mpiexec (MPICH)", "srun"])
def test_jobs_on_several_hosts_have_to_be_told_where_to_meet(name):
    variables, _ = LAUNCHERS[name]
    counts = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
    wide = {k: 1 if k in counts else 2 if k.endswith("NODES") else v for k, v in variables.items()}
    with pytest.raises(rs.InvalidArgument, match="Set RINGSIDE_RENDEZVOUS=host:port") as refused:
        place(variables=wide)
    passes_on = "and pass them on: mpirun -x RINGSIDE_RENDEZVOUS -x RINGSIDE_KEY"
    assert (passes_on in str(refused.value)) == (name == "mpirun (OpenMPI)")
    told = {"RINGSIDE_RENDEZVOUS": "node1:99", "RINGSIDE_KEY": "k"}
    assert place(variables={**wide, **told}).address == ("node1", 99)


def test_a_torchrun_over_several_hosts_meets_at_its_store_where_there_is_one():
    wide = {**TORCHRUN, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": "node0"}
    found = place(variables={**wide, "TORCHELASTIC_USE_AGENT_STORE": "True"}, name="a group")
    assert (found.board.address, found.board.name) == (("node0", 29500), "ringside/none/a group")
    assert found.address is None and not found.board.is_of_one_host
    with pytest.raises(rs.InvalidArgument, match=r"make torch's group and call ringside.init_from"):
        place(variables={**wide, "TORCHELASTIC_USE_AGENT_STORE": "False"})
    told = {"TORCHELASTIC_USE_AGENT_STORE": "True", **RUN}
    del told["RINGSIDE_RANK"], told["RINGSIDE_SIZE"]
    assert place(variables={**wide, **told}).board is None  # what somebody said comes first


def test_a_step_over_several_hosts_meets_at_its_first():
    wide = {**SRUN, "SLURM_STEP_NUM_NODES": 2, "SLURM_STEP_NODELIST": "gpu[07-09,3],login"}
    with pytest.raises(
        rs.InvalidArgument, match=r"srun on several hosts and no key; expected one.*openssl"
    ):
        place(variables=wide)
    wide["RINGSIDE_KEY"] = "secret"
    host, port = place(variables=wide).address
    assert host == "gpu07" and 10_000 <= port < 30_000
    assert place(variables={**wide, "SLURM_PROCID": 0, "SLURM_NODEID": 0}).address == (host, port)
    assert place(variables={**wide, "SLURM_STEP_ID": 1}).address[1] != port
    with pytest.raises(rs.InvalidArgument, match="Set RINGSIDE_RENDEZVOUS=host:port"):
        place(variables={**wide, "SLURM_PROCID": 0, "SLURM_NODEID": 1})  # asked to be elsewhere
    told = {"RINGSIDE_RENDEZVOUS": "node1:99"}
    assert place(variables={**wide, **told}).address == ("node1", 99)


@pytest.mark.parametrize(
    ("given", "variables", "message"),
    [
        ({"rank": 0}, {}, "rank without size"),
        ({"size": 2}, {}, "rank without size, or size without rank"),
        ({"rank": 2, "size": 2}, {}, r"rank=\[2\]; expected 0 to size-1, and size is 2"),
        ({"rank": [1, 0], "size": 3}, {}, "expected one rank, or several that rise"),
        ({"rank": 0, "size": 2}, {}, "no address to meet the others at"),
        ({"rank": 0, "size": 2, "address": "a:1"}, {}, "an address without a key"),
        ({"rank": 0, "size": 2, "address": "host", "key": "k"}, {}, 'expected "host:port"'),
        ({"rank": 0, "size": 1, "ranks_per_process": 2}, {}, "beside rank; expected one of them"),
        ({"ranks_per_process": 0}, {}, "ranks_per_process=0; expected at least 1"),
        ({"timeout_s": 0}, {}, "timeout_s=0; expected seconds, more than 0"),
        ({}, {"RINGSIDE_TIMEOUT_S": "soon"}, "RINGSIDE_TIMEOUT_S='soon'; expected seconds"),
        ({}, {"RINGSIDE_RANK": 0}, "RINGSIDE_RANK is set alone; expected RINGSIDE_RANK and"),
        ({}, {**RUN, "RINGSIDE_RANK": 2}, "RINGSIDE_RANK=2 and RINGSIDE_SIZE=2; expected ranks b"),
        ({}, {**RUN, "RINGSIDE_SIZE": "x"}, "RINGSIDE_SIZE='x'; expected an integer of at least"),
    ],
)
def test_what_does_not_fit_is_refused(given, variables, message):
    with pytest.raises(rs.InvalidArgument, match=message):
        place(variables=variables, **given)


SUM = """
plan = rs.plan(rs.PackedLayout([0, 20]), cp_size=group.size)
x = np.ones((20, 1, 2))
shards = [mine(plan, group.ranks, x)] * 3
with group:
    out, _ = plan.attention_rank(*shards, group=group)
answer = (group.size, float(np.sum(out)))
"""


@pytest.mark.parametrize("name", ["torchrun", "mpirun (OpenMPI)", "mpiexec (MPICH)", "srun"])
def test_processes_of_a_launcher_meet_by_a_private_file(name, tmp_path):
    variables, rank = LAUNCHERS[name]
    with started(0) as workers:
        for number in (0, 1):
            own = {**variables, rank: number, "TMPDIR": tmp_path}
            workers.extend(started(1, **own))
        workers.all("group = rs.init(timeout_s=20)")
        assert workers.all(SUM) == [(2, 20.0), (2, 20.0)]
        workers.all("group = rs.init(timeout_s=20)")  # again, by the same file
        assert workers.all(SUM) == [(2, 20.0), (2, 20.0)]
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="scripts are seen in /proc")
def test_processes_of_mpiexec_meet_though_each_has_a_script_around_it(tmp_path):
    """MPICH tells its jobs apart by nothing but the process that starts them."""
    with started(0) as workers:
        for number in (0, 1):
            around = ["sh", "-c", '"$@"; exit $?', "sh"] * number
            own = {**MPICH, "PMI_RANK": number, "TMPDIR": tmp_path}
            workers.extend(started(1, around, **own))
        workers.all("group = rs.init(timeout_s=20)")
        assert workers.all(SUM) == [(2, 20.0), (2, 20.0)]


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_file_left_over_is_not_believed(tmp_path, monkeypatch, is_answered):
    """Nobody listens where it says, or by now somebody else does."""
    variables, rank = LAUNCHERS["torchrun"]
    monkeypatch.setattr(meeting_file.tempfile, "tempdir", str(tmp_path))
    job = launch.found({name: str(value) for name, value in variables.items()}).job
    port, other = free_port(), meeting()
    address = other["address"] if is_answered else f"127.0.0.1:{port}"
    there = ("127.0.0.1", int(address.split(":")[1]))
    left_over = Notice((there[0],), there[1], b"of a job that was killed")
    meeting_file.MeetingFile(f"{job}|").post(left_over, 1.0)
    with started(1) as others, started(0) as workers:
        others[0].tell("rs.init(0, 2, **place)", place=other)
        if is_answered:
            wait_for_listener(address)
        for number in (1, 0):
            workers.extend(started(1, **{**variables, rank: number, "TMPDIR": tmp_path}))
        workers[0].tell("group = rs.init(timeout_s=20)")
        time.sleep(1.0)
        workers[1].tell("group = rs.init(timeout_s=20)")
        for worker in workers:
            worker.answer()
        assert workers.all(SUM) == [(2, 20.0), (2, 20.0)]


def test_a_folder_that_another_user_has_made_is_refused_with_a_way_around(tmp_path, monkeypatch):
    monkeypatch.setattr(meeting_file.tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"ringside-{os.getuid()}").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(
        rs.InvalidArgument, match=r"not this user's folder; .* set TMPDIR to a fold"
    ):
        meeting_file.path_of("job")


def test_a_folder_that_others_can_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(meeting_file.tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"ringside-{os.getuid()}"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(rs.InvalidArgument, match="is open to others; expected mode 700"):
        meeting_file.path_of("job")


# --- ringside run, and mpirun

SCRIPT = """
import os, signal, sys, time
import numpy as np, ringside as rs
with rs.init() as group:
    plan = rs.plan(rs.PackedLayout([0, 20]), cp_size=group.size)
    x = plan.shard(np.ones((20, 1, 2)), group.rank)
    out, _ = plan.attention_rank(x, x, x, group=group)
    line = f"rank {{group.rank}} of {{group.size}} {{float(out.sum())}} {{sys.argv[1:]}}\\n"
    os.write(1, line.encode())
    {then}
"""


@pytest.fixture
def launched(tmp_path):
    """launched(then, *before, **options): the outcome of SCRIPT, which ends in `then`."""

    def run(then="pass", *command, arguments=(), **options):
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.format(then=then))
        command = command or (sys.executable, "-m", "ringside", "run", "--nproc", "3")
        process = subprocess.Popen(
            [*command, str(script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            **options,
        )
        return process

    return run


def test_ringside_run_starts_processes_that_find_each_other(launched):
    out, err = launched(arguments=("--nproc", "7")).communicate(timeout=60)
    told = sorted(line.split(maxsplit=5) for line in out.splitlines())
    assert [x[:4] for x in told] == [["rank", str(rank), "of", "3"] for rank in range(3)], err
    assert sum(float(x[4]) for x in told) == 40.0  # 20 rows of two ones
    assert [x[5] for x in told] == ["['--nproc', '7']"] * 3
    assert err == ""


@pytest.mark.parametrize(
    ("then", "code", "words"),
    [
        ("sys.exit(7) if group.rank == 1 else 0", 7, "1 of 3 exited with code 7"),
        ("os.kill(os.getpid(), 9) if group.rank == 2 else 0", 137, "2 of 3 was ended"),
    ],
)
def test_ringside_run_names_who_failed_and_ends_the_others(launched, then, code, words):
    asleep = "time.sleep(3 if group.rank else 60)"  # the others have left the call by then
    with within(25):
        process = launched(f"{asleep}; {then}; time.sleep(60)")
        _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert f"ringside run: process {words}" in err
    assert "ending the other 2" in err


def test_ringside_run_names_who_began_though_others_end_before(launched):
    again = "plan.attention_rank(x, x, x, group=group)"
    tidy = "(__import__('atexit').register(time.sleep, 1.0), sys.exit(7))"
    process = launched(f"{tidy} if group.rank == 1 else {again}")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 7, err
    assert "ringside run: process 1 of 3 exited with code 7" in err


def test_ringside_run_ends_where_all_fail_because_of_others(launched, tmp_path):
    note = "__import__('ringside._group.launched').%s.note_failed_by_others()"
    note %= "_group.launched"
    failing = f"(time.sleep(3), {note}, sys.exit(3))"
    process = launched(f"{failing} if group.rank == 2 else time.sleep(60)")
    with within(25):
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3 and "process 2 of 3 exited with code 3" in err


def test_tracebacks_of_processes_come_line_by_line_with_their_numbers(launched):
    """However they write at once, and in pieces."""
    pieces = "[(os.write(2, b'ab'), time.sleep(0.001)) for _ in range(200)]"
    fail = f"{pieces}, os.write(2, b' of %d\\n' % group.rank), int('x' * 5 + str(group.rank))"
    process = launched(f"{fail}; ")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and out.count("rank ") == 3
    lines = err.splitlines()
    assert sum(line.startswith("ringside run: process ") for line in lines) == 1
    of = {i: [x[4:] for x in lines if x.startswith(f"[{i}] ")] for i in range(3)}
    assert sum(map(len, of.values())) == len(lines) - 1, err
    for i, own in of.items():
        if own and f"xxxxx{i}" in own[-1]:  # those that were not ended before
            assert own[0] == "ab" * 200 + f" of {i}"
            assert own[1] == "Traceback (most recent call last):"
    failed = next(x for x in lines if x.startswith("ringside run")).split()[3]
    assert (
        f"[{failed}] ValueError: invalid literal for int() with base 10: 'xxxxx{failed}'" in lines
    )


def test_one_process_writes_for_itself(launched):
    command = (sys.executable, "-m", "ringside", "run", "--nproc", "1")
    _, err = launched("os.write(2, b'by itself')", *command).communicate(timeout=60)
    assert err == "by itself"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ringside_run_forwards_signals(launched, number):
    listen = "signal.signal({0}, lambda *_: (os.write(1, b'heard\\n'), sys.exit(0))); "
    process = launched(
        listen.format(int(number)) + "os.write(1, b'ready\\n'); time.sleep(60)",
        start_new_session=True,
    )
    lines = [process.stdout.readline() for _ in range(6)]
    assert lines.count("ready\n") == 3
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert out.split() == ["heard"] * 3
    assert process.returncode == 128 + number


HURRIED = """
import sys
from ringside._group import launcher
launcher.SIGNALLED_S = {}
sys.exit(launcher.run([sys.executable, "-c", sys.argv[1]], 2))
"""


@pytest.mark.parametrize(("grace", "signals"), [(0.5, 1), (60.0, 2)])
@pytest.mark.parametrize("then", ["time.sleep(60)", "os.kill(os.getpid(), signal.SIGSTOP)"])
def test_ringside_run_kills_what_a_signal_does_not_end(grace, signals, then):
    """After a while, or where it is told a second time."""
    ignores = "import os, signal, time; signal.signal(15, signal.SIG_IGN); "
    ready = "os.write(1, b'ready\\n'); "
    process = subprocess.Popen(
        [sys.executable, "-c", HURRIED.format(grace), ignores + ready + then],
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    with within(5):
        for _ in range(signals):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert "2 of 2 processes did not end after SIGTERM; killing them" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--nproc", "0"), "--nproc 0; expected at least 1"),
        (("--nnodes", "2"), "--nnodes 2 and no --node-rank; expected 0 to 1"),
        (("--nnodes", "2", "--node-rank", "1", "--master-addr", "node0"), "without RINGSIDE_KEY"),
    ],
)
def test_ringside_run_refuses_jobs_that_cannot_be(launched, flags, message):
    process = launched("pass", sys.executable, "-m", "ringside", "run", *flags)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2 and message in err


MPIRUN = shutil.which("mpirun")


@pytest.mark.skipif(MPIRUN is None, reason="no mpirun is installed (openmpi-bin, mpich)")
def test_mpirun_of_the_distribution(launched):
    version = subprocess.check_output([MPIRUN, "--version"], text=True)
    is_open_mpi = "Open MPI" in version or "OpenRTE" in version
    allowed = ("--oversubscribe", "--allow-run-as-root") if is_open_mpi else ()
    process = launched("pass", MPIRUN, *allowed, "-n", "3", sys.executable)
    out, err = process.communicate(timeout=60)
    assert sorted(x[:11] for x in out.splitlines()) == [f"rank {i} of 3" for i in range(3)], err
    assert process.returncode == 0
