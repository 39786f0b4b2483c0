"""Running a case on the GPU between canaries, with poisoned workspaces, and judging the result.

What is allowed: rounding.py. The truth is the same plan on the CPU, in float64, on the values that
the GPU sees.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import interpreted
import numpy as np
import pytest
import ringside as rs
from assertions import assert_within, error_of
from ringside._arrays import cuda as _cuda
from ringside._arrays import programs as _programs
from ringside.testing import Arrays, Case, Results, locate
from ringside.testing.dtypes import round_to
from rounding import NAMES, limits
from unfused import unfused

NO_TORCH = "" if importlib.util.find_spec("torch") else "torch is not installed"
NO_KERNELS = _cuda.problem() or NO_TORCH
REASON = "kernels are interpreted" if interpreted.PATH else NO_KERNELS
needs_gpu = pytest.mark.skipif(bool(REASON), reason=f"no GPU test: {REASON}")

# Of a file: a GPU's kernels, or those of the interpreter.
NEEDS_KERNELS = [
    pytest.mark.kernels,
    pytest.mark.skipif(bool(NO_KERNELS), reason=f"no GPU test: {NO_KERNELS}"),
]
DTYPES = ("float32", "float16", "bfloat16")
CANARY_ROWS, CANARY = 64, 77.0

worst: dict[str, float] = collections.defaultdict(float)  # error / tolerance, by cell
cases_run: collections.Counter[str] = collections.Counter()


def on_device(x: Any) -> Any:
    """A torch tensor, on the GPU."""
    return interpreted.placed(x) if interpreted.PATH else x.cuda()


def to_device(x: np.ndarray, dtype: str = "float32") -> Any:
    """A torch tensor on the GPU."""
    import torch

    return on_device(torch.from_numpy(np.ascontiguousarray(x)).to(getattr(torch, dtype)))


def synchronize() -> None:
    """Waits for the GPU; the interpreter has done all."""
    import torch

    if not interpreted.PATH:
        torch.cuda.synchronize()


def multiprocessors() -> int:
    """Of the GPU."""
    import torch

    if interpreted.PATH:
        return interpreted.multiprocessors()
    return torch.cuda.get_device_properties(0).multi_processor_count


def to_host(x: Any) -> np.ndarray:
    """float64 on the CPU."""
    return x.detach().double().cpu().numpy()


def rounded(arrays: Arrays, dtype: str) -> Arrays:
    """The values that the GPU sees, in float64."""
    return Arrays(*(round_to(x, dtype) for x in arrays))


@contextlib.contextmanager
def canaries() -> Iterator[None]:
    """Every array that the library makes lies between rows that nobody may write."""
    guarded = []

    class Guarded(interpreted.Library if interpreted.PATH else _cuda.Torch):
        def empty(self, shape, like, dtype=None):
            count = int(np.prod(shape))
            whole = super().empty((count + 2 * 128 * CANARY_ROWS,), like, dtype).fill_(CANARY)
            inside = whole[128 * CANARY_ROWS : 128 * CANARY_ROWS + count]
            if dtype != "uint8" and whole.is_floating_point():
                inside.fill_(float("nan"))
            guarded.append((whole, count))
            return inside.view(*shape)

    library_of = _cuda.library_of

    def guarded_library_of(x):
        library = library_of(x)
        return Guarded() if isinstance(library, _cuda.Torch) else library

    _cuda.library_of = guarded_library_of
    try:
        yield
    finally:
        _cuda.library_of = library_of
    for whole, count in guarded:
        before, behind = whole[: 128 * CANARY_ROWS], whole[128 * CANARY_ROWS + count :]
        assert bool((before == CANARY).all()), "written before an array"
        assert bool((behind == CANARY).all()), "written behind an array"


def blind_blocks(mask: rs.Mask, cp_size: int) -> Case:
    """Blocks of queries that see nothing, and of keys that nobody sees.

    On one rank kernels write to the caller's arrays, as both head dimensions are theirs.
    """
    layout = rs.PackedLayout.from_lengths
    lengths = [300, 20, 0, 400, 200], [20, 300, 400, 0, 200]
    return Case(*map(layout, lengths), mask=mask, cp_size=cp_size, head_dim=64, head_dim_v=64)


@dataclasses.dataclass
class OnGpu:
    """Plans on the GPU: float64 arrays in and out, in `dtype` there, between canaries."""

    dtype: str
    options: rs.Options
    deterministic: bool = False

    def forward(self, plan: rs.Plan, *arrays: np.ndarray, **_: Any) -> tuple[np.ndarray, ...]:
        """(out, lse) from q, k, v."""
        q, k, v = (to_device(x, self.dtype) for x in arrays)
        with canaries():
            results = _programs.attention(plan, q, k, v, self.options, poison=True)
        return tuple(to_host(x) for x in results)

    def backward(self, plan: rs.Plan, *arrays: np.ndarray, **_: Any) -> tuple[np.ndarray, ...]:
        """(dq, dk, dv), and dsink where there is a sink, from dout, q, k, v, out, lse."""
        names = ("dout", "q", "k", "v", "out")
        given = {n: to_device(x, self.dtype) for n, x in zip(names, arrays, strict=False)}
        given["lse"] = to_device(arrays[5])
        with canaries():
            results = _programs.attention_backward(
                plan, given, self.options, deterministic=self.deterministic, poison=True
            )
        return tuple(to_host(x) for x in results if x is not None)


def keywords_of(options: rs.Options) -> dict[str, object]:
    """What Plan.attention takes of them by name."""
    return dict(vars(options))


def by_cpu(plan: rs.Plan, arrays: Arrays, gpu: Results, options: rs.Options) -> Results:
    """The same plan on the CPU; backward from what the GPU's forward pass returned."""
    keywords = keywords_of(options)
    out, lse = plan.attention(*arrays[:3], **keywords)
    saved = (*arrays[:3], gpu.out, gpu.lse)
    return Results(out, lse, *plan.attention_backward(arrays.dout, *saved, **keywords))


class Wrong(AssertionError):
    """What is wrong, and where; the latter is only looked for when somebody reads it."""

    def __init__(self, what: str, where: Callable[[], str]):
        super().__init__(what)
        self.what, self.where = what, where

    @functools.cached_property
    def text(self) -> str:
        return f"{self.what}\n{self.where()}"

    def __str__(self) -> str:
        return self.text


def check(
    case: Case, dtype: str = "float32", *, plan: rs.Plan | None = None, **keywords: Any
) -> None:
    """Forward and backward on the GPU agree with the CPU; by the case's plan, or by another."""
    options = rs.Options(softmax_scale=case.softmax_scale, **keywords)
    arrays = rounded(case.arrays(), dtype)
    plan = plan or case.plan()
    run = OnGpu(dtype, options, deterministic=case.seed % 2 == 0)
    q, k, v, dout = arrays
    out, lse = run.forward(plan, q, k, v)
    gpu = Results(out, lse, *run.backward(plan, dout, q, k, v, out, lse))
    (program,) = plan._programs.values()
    cpu = by_cpu(plan, arrays, gpu, options)
    plain = None
    if program.family != "float32":
        plain = unfused(case, arrays, dtype, gpu, options)
    limit = limits(case, arrays, cpu, dtype, plain, options)
    partition = case.partition if isinstance(case.partition, str) else "custom"
    cell = f"{program.family} {dtype} {partition} {case.comm}"
    cases_run[cell] += 1
    try:
        compare(cell, case, (gpu, cpu, limit))
    except AssertionError as error:
        raise Wrong(str(error), functools.partial(whereabouts, plan, arrays, run)) from None


def compare(cell: str, case: Case, results: tuple[Results, Results, Results]) -> None:
    """Every number of the GPU's, against the CPU's and what is allowed."""
    for name in NAMES:
        got, want, allowed = (getattr(x, name) for x in results)
        layout = case.keys if name in ("dk", "dv") else case.layout_q
        assert_within(name, got, want, allowed, None if name == "dsink" else layout)
        note_error(f"{cell} {name}", got, want, allowed)


def whereabouts(plan: rs.Plan, arrays: Arrays, run: OnGpu) -> str:
    """Which step, rank and tile is wrong, in words."""
    keywords = {"backward": run.backward, "dtype": run.dtype, **keywords_of(run.options)}
    try:
        found = locate(plan, run.forward, arrays, **keywords)
    except Exception as error:  # what is wrong matters more than where
        return f"could not be located: {type(error).__name__}: {error}"
    return f"first wrong in {found}" if found else "too little to be located in a tile"


def note_error(cell: str, got: np.ndarray, want: np.ndarray, allowed: np.ndarray) -> None:
    """Keeps the worst error of a cell, as a part of what is allowed."""
    off = error_of(got, want)
    ratio = np.divide(off, allowed, out=np.zeros_like(off), where=off > 0)
    worst[cell] = max(worst[cell], float(ratio.max(initial=0.0)))


def seen() -> dict[str, dict[str, float]]:
    """What this process compared: cases by cell, and the worst error of each."""
    return {"cases": dict(cases_run), "worst": dict(worst)}


def add_seen(other: dict[str, dict[str, float]]) -> None:
    """Adds what another process compared (seen) to this one's."""
    for cell, count in other.get("cases", {}).items():
        cases_run[cell] += int(count)
    for cell, error in other.get("worst", {}).items():
        worst[cell] = max(worst[cell], error)


def write_results(path: str, counts: dict[str, int]) -> None:
    """What ./dev gpu-test keeps: where it ran, what, and how close it came."""
    import torch

    def output_of(*command: str) -> str:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        return run.stdout.strip()

    results = {
        "gpu": torch.cuda.get_device_name(),
        "driver": output_of(
            "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"
        ),
        "commit": os.environ.get("RINGSIDE_COMMIT") or output_of("git", "rev-parse", "HEAD"),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "kernel_families": list(_cuda.cuda_core().KERNEL_FAMILIES),
        "sanitizers": os.environ.get("RINGSIDE_GPU_SANITIZERS", "").rstrip("; "),
        "tests": counts,
        "cases": dict(sorted(cases_run.items())),
        "worst_error_over_tolerance": {
            cell: round(error, 4) for cell, error in sorted(worst.items())
        },
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
