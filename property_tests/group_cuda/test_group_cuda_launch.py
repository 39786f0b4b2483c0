"""A script on all GPUs, started the ways people start one."""

import shutil
import subprocess
import sys

import pytest
from cuda_cases import REASON
from group_processes import environment, free_port

pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no GPU test: {REASON}")

SCRIPT = """
import torch
import ringside as rs
from group_cuda import difference
from ringside.testing import Case

with rs.init(timeout_s=60) as group:
    device = group.rank % torch.cuda.device_count()
    torch.cuda.set_device(device)
    layout = rs.PackedLayout([0, 301, 304, 517])
    case = Case(layout, cp_size=group.size, num_heads=4, num_kv_heads=2, head_dim=64)
    wrong = difference(case, group, "bfloat16", "auto", device)
    print(f"rank {group.rank} of {group.size}: {wrong or 'right'}", flush=True)
"""


def processes():
    import torch

    return max(2, min(4, torch.cuda.device_count()))


def commands(script, count):
    python = sys.executable
    return {
        "ringside run": [python, "-m", "ringside", "run", "--nproc", str(count), script],
        "torchrun": [
            *(python, "-m", "torch.distributed.run", f"--nproc-per-node={count}"),
            *(f"--master-port={free_port()}", script),
        ],
        "mpirun": [
            *("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(count)),
            *(python, script),
        ],
    }


@pytest.mark.parametrize("launcher", ["ringside run", "torchrun", "mpirun"])
def test_every_launcher_starts_ranks_that_are_right(tmp_path, launcher):
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("there is no mpirun here")
    script, count = tmp_path / "script.py", processes()
    script.write_text(SCRIPT)
    done = subprocess.run(
        commands(str(script), count)[launcher],
        env={**environment(), "OMPI_MCA_plm_rsh_agent": "false"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for rank in range(count):
        assert f"rank {rank} of {count}: right" in done.stdout, done.stdout
