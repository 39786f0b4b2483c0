"""A real torchrun over two hosts, which network namespaces stand for; nothing is told but its own.

Needs root. What a process does that finds torch's store is tested in test_group_torch_store.py.
"""

import importlib.util
import subprocess
import sys

import pytest
from group_processes import environment
from network_hosts import Network, missing

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="there is no torch, whose torchrun this is"
)
SCRIPT = """
import os, pathlib, signal, socket, sys
import numpy as np
import ringside as rs

def tell(*words):  # whole lines, whatever others write
    os.write(1, (" ".join(map(str, ("told:", socket.gethostname(), *words))) + "\\n").encode())

died = pathlib.Path(sys.argv[1])
first_time = not died.exists()  # torchrun does not count alike on both hosts
if first_time:  # torchrun may hear of the death first, and ends the others
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
try:
    with rs.init(timeout_s=30) as group:
        plan = rs.plan(rs.PackedLayout([0, 20]), cp_size=group.size)
        x = np.random.default_rng(0).normal(size=(20, 1, 2))
        shards = [plan.shard(x, group.rank)] * 3
        def right():
            out, _ = plan.attention_rank(*shards, group=group)
            return (out == plan.shard(plan.attention(x, x, x)[0], group.rank)).all()
        tell(group, "at first" if first_time else "again", right())
        if first_time and group.rank == 1:
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        right()
except rs.RankFailure as failure:
    tell("misses", failure.ranks)
    sys.exit(1)
"""


def test_torchrun_over_two_hosts_meets_names_who_died_and_meets_again(tmp_path):
    """Whose processes it starts anew: with the same store, in which the last notice stood."""
    if reason := missing():
        pytest.skip(reason)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with Network(2) as network:
        running = [
            subprocess.Popen(
                [
                    *(*host.begin, sys.executable, "-m", "torch.distributed.run"),
                    *("--nnodes=2", "--nproc-per-node=1", "--max-restarts=1", "--rdzv-id=7"),
                    *("--rdzv-backend=c10d", "--rdzv-endpoint=node0:29500"),
                    *(str(script), str(tmp_path / "died")),
                ],
                env=environment(OMP_NUM_THREADS=1),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for host in network.hosts
        ]
        try:
            outcomes = [process.communicate(timeout=120) for process in running]
        finally:
            for process in running:
                process.kill()
    said = sorted(x for out, _ in outcomes for x in out.splitlines() if x.startswith("told: "))
    hosts = {x.split()[1]: x.split("rank=")[1][0] for x in said if "at first True" in x}
    assert set(hosts) == {"node0", "node1"} and set(hosts.values()) == {"0", "1"}, outcomes
    assert [x.split()[1] for x in said if "again True" in x] == ["node0", "node1"], outcomes
    (first,) = [name for name, rank in hosts.items() if rank == "0"]
    assert f"told: {first} misses (1,)" in said and len(said) == 5, outcomes
    assert [process.returncode for process in running] == [0, 0], outcomes
