"""Which ranks this process hosts, and where the processes meet: what a launcher's variables say.

Each launcher is a row of a table: its variables of rank and size, those that must be there too,
and those that tell its jobs apart. The first whose variables are all there counts: what runs inside
another comes first. Inside a batch script SLURM_PROCID and SLURM_NTASKS are set although one
process runs; only a step has SLURM_STEP_NUM_TASKS.

Where a job is on several hosts, torchrun's agent serves a store that all of them know, and srun
tells the first of them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ringside._core import InvalidArgument

Environment = Mapping[str, str]
FIRST_PORT, PORTS = 10_000, 20_000  # for steps: below those that a system gives out by itself


@dataclass(frozen=True)
class Launcher:
    """The variables of one launcher."""

    name: str
    rank: str
    size: str
    needs: tuple[str, ...] = ()
    local_size: str = ""  # as many as `size` where all processes are on one host
    nodes: str = ""  # 1 where they are
    job: tuple[str, ...] = ()  # alike in all processes of a job, different in any two jobs


LAUNCHERS = (
    Launcher("ringside run", "RINGSIDE_RANK", "RINGSIDE_SIZE"),
    Launcher(
        "torchrun",
        "RANK",
        "WORLD_SIZE",
        needs=("MASTER_ADDR", "MASTER_PORT"),
        local_size="LOCAL_WORLD_SIZE",
        job=("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    ),
    Launcher(
        "mpirun (OpenMPI)",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
        job=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"),
    ),
    Launcher(
        "mpiexec (MPICH)",
        "PMI_RANK",
        "PMI_SIZE",
        needs=("MPI_LOCALNRANKS",),
        local_size="MPI_LOCALNRANKS",
    ),
    Launcher(
        "srun",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        nodes="SLURM_STEP_NUM_NODES",
        job=("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
    ),
)


@dataclass(frozen=True)
class Launch:
    """One process of a launcher's job."""

    launcher: str
    rank: int
    size: int
    job: str | None  # of a job on one host, else None
    store: tuple[str, int] | None = None  # of torch, where there is one before the processes are
    run: str = ""  # what tells a job from others in that store
    address: tuple[str, int] | None = None  # of the first host, where the launcher tells it


def found(environment: Environment) -> Launch | None:
    """What launched this process; None where nothing says so.

    >>> found({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}).rank
    1
    >>> found({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "5"})  # a batch script
    """
    for launcher in LAUNCHERS:
        if all(name in environment for name in (launcher.rank, launcher.size, *launcher.needs)):
            return _launch(launcher, environment)
    if present := [n for n in ("RINGSIDE_RANK", "RINGSIDE_SIZE") if n in environment]:
        raise InvalidArgument(
            f"{present[0]} is set alone; expected RINGSIDE_RANK and RINGSIDE_SIZE. Set both or none"
        )
    return None


def _launch(launcher: Launcher, environment: Environment) -> Launch:
    size = _integer(environment, launcher.size, least=1)
    rank = _integer(environment, launcher.rank, least=0)
    if rank >= size:
        raise InvalidArgument(
            f"{launcher.rank}={rank} and {launcher.size}={size}; expected ranks below the size. "
            "Set them as the launcher does"
        )
    job = _job(launcher, size, environment)
    if launcher.name == "torchrun" and environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        store = environment["MASTER_ADDR"], _integer(environment, "MASTER_PORT", least=1)
        run = environment.get("TORCHELASTIC_RUN_ID", "")
        return Launch(launcher.name, rank, size, job, store=store, run=run)
    address = _of_step(rank, environment) if launcher.name == "srun" and job is None else None
    return Launch(launcher.name, rank, size, job, address=address)


def _of_step(rank: int, environment: Environment) -> tuple[str, int] | None:
    """The first host of a step of srun, where rank 0 is unless asked otherwise, and its port."""
    nodes, told = environment.get("SLURM_STEP_NODELIST"), environment.get("SLURM_NODEID", "0")
    if nodes is None or (rank == 0 and told != "0"):
        return None
    step = "/".join(environment.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    digest = hashlib.sha256(step.encode()).digest()
    return first_host(nodes), FIRST_PORT + int.from_bytes(digest[:4], "big") % PORTS


def first_host(nodes: str) -> str:
    """Of a list as Slurm writes it.

    >>> first_host("gpu[003-008,012],login1"), first_host("a,b"), first_host("r[1-2]n[07,09]x,b")
    ('gpu003', 'a', 'r1n07x')
    """
    (first,) = re.findall(r"^(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first)


def _job(launcher: Launcher, size: int, environment: Environment) -> str | None:
    if launcher.local_size in environment:
        on_one_host = _integer(environment, launcher.local_size, least=1) == size
    else:
        on_one_host = environment.get(launcher.nodes) == "1"
    if not on_one_host:
        return None
    told = [f"{name}={environment[name]}" for name in launcher.job if name in environment]
    rank = f"{launcher.rank}={environment[launcher.rank]}".encode()
    return "|".join([launcher.name, *(told or [f"started by={_starter(rank)}"])])


def _starter(rank: bytes) -> int:
    """The process that started those of a job: above this one, the first that is not its script.

    A script around a program has the same rank in its environment.
    """
    process = os.getppid()
    try:
        while rank in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        pass  # another user's, or a system without
    return process


def _integer(environment: Environment, name: str, least: int) -> int:
    text = environment[name]
    if not text.strip().isdecimal() or int(text) < least:
        raise InvalidArgument(
            f"{name}={text!r}; expected an integer of at least {least}. Set it so, or unset it"
        )
    return int(text)
