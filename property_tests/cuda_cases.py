"""Running a case on the GPU between canaries, with poisoned workspaces, and judging the result.

float32 is held to 2e-6 of the scale of the operands: sums of up to some hundred products, rounded
at 6e-8 each, and exp() of scores whose own rounding error is multiplied by their size. Results in
float16 and bfloat16 are rounded once more, which adds half a unit in the last place; kernels on the
tensor cores also round the weights and their gradients to the type before the second product.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ringside as rs
from assertions import assert_close, scale_of
from ringside import _cuda
from ringside._attention import Options
from ringside.testing import Arrays, Case, Results

REASON = _cuda.problem() or ("" if importlib.util.find_spec("torch") else "torch is not installed")
needs_gpu = pytest.mark.skipif(bool(REASON), reason=f"no GPU test: {REASON}")
DTYPES = ("float32", "float16", "bfloat16")
EPSILON = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}
FLOAT32_TOLERANCE = 2e-6
CANARY_ROWS, CANARY = 64, 77.0

worst: dict[str, float] = collections.defaultdict(float)  # error / tolerance, by cell
cases_run: collections.Counter[str] = collections.Counter()


def to_device(x: np.ndarray, dtype: str = "float32") -> Any:
    """A torch tensor on the GPU."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(x)).to("cuda", getattr(torch, dtype))


def to_host(x: Any) -> np.ndarray:
    """float64 on the CPU."""
    return x.detach().double().cpu().numpy()


def rounded(arrays: Arrays, dtype: str) -> Arrays:
    """The values that the GPU sees, in float64."""
    return Arrays(*(to_host(to_device(x, dtype)) for x in arrays))


@contextlib.contextmanager
def canaries() -> Iterator[None]:
    """Every array that the library makes lies between rows that nobody may write."""
    guarded = []

    class Guarded(_cuda.Torch):
        def empty(self, shape, like, dtype=None):
            of_type = getattr(self.torch, dtype) if dtype else like.dtype
            count = int(np.prod(shape))
            whole = self.torch.full(
                (count + 2 * 128 * CANARY_ROWS,), CANARY, dtype=of_type, device=like.device
            )
            inside = whole[128 * CANARY_ROWS : 128 * CANARY_ROWS + count]
            if dtype != "uint8" and of_type.is_floating_point:
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


def by_gpu(
    plan: rs.Plan, arrays: Arrays, dtype: str, options: Options, *, deterministic: bool = False
) -> tuple[Results, Any]:
    """The plan on the GPU, in float64 on the CPU again, and dsink."""
    q, k, v, dout = (to_device(x, dtype) for x in arrays)
    with canaries():
        out, lse = _cuda.attention(plan, q, k, v, options, poison=True)
        given = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
        *grads, dsink = _cuda.attention_backward(
            plan, given, options, deterministic=deterministic, poison=True
        )
    results = Results(*(to_host(x) for x in (out, lse, *grads)))
    return results, None if dsink is None else to_host(dsink)


def by_cpu(case: Case, arrays: Arrays, gpu: Results, options: Options) -> tuple[Results, Any]:
    """The same plan on the CPU; backward from what the GPU's forward pass returned."""
    plan = case.plan()
    keywords = vars(options)
    out, lse = plan.attention(*arrays[:3], **keywords)
    saved = (gpu.out, gpu.lse)
    grads = plan.attention_backward(arrays.dout, *arrays[:3], *saved, **keywords)
    return Results(out, lse, *grads[:3]), grads[3] if len(grads) == 4 else None


def check(case: Case, dtype: str = "float32", **keywords: Any) -> None:
    """Forward and backward on the GPU agree with the CPU."""
    options = Options(softmax_scale=case.softmax_scale, **keywords)
    arrays = rounded(case.arrays(), dtype)
    plan = case.plan()
    gpu, gpu_dsink = by_gpu(plan, arrays, dtype, options, deterministic=case.seed % 2 == 0)
    (program,) = plan._programs.values()
    cpu, cpu_dsink = by_cpu(case, arrays, gpu, options)
    q, k, v, dout = arrays
    score = 1 + abs(case.scale) * case.head_dim**0.5 * scale_of(q) * scale_of(k)
    if options.alibi_slopes is not None:
        score += scale_of(options.alibi_slopes) * max(case.keys.lengths.max(initial=0), 1)
    ds = max(abs(case.scale), 1e-3) * case.head_dim_v**0.5 * size_of(dout) * size_of(v)
    scales = {
        "out": (score * size_of(v), case.layout_q, 0),
        "lse": (score, case.layout_q, 1),
        "dq": (score * ds * size_of(k), case.layout_q, 0),
        "dk": (score * ds * size_of(q) * group_rows(case), case.keys, 0),
        "dv": (score * size_of(dout) * group_rows(case), case.keys, 0),
    }
    partition = case.partition if isinstance(case.partition, str) else "custom"
    cell = f"{program.family} {dtype} {partition} {case.comm}"
    cases_run[cell] += 1
    for name, (scale, layout, axis) in scales.items():
        got, want = getattr(gpu, name), getattr(cpu, name)
        epsilon = 0.0 if name == "lse" else EPSILON[dtype]
        inside = FLOAT32_TOLERANCE
        if program.family != "float32" and name != "lse":
            inside = 2 * epsilon  # weights and their gradients are rounded to the type, too
        tolerance = (inside * scale + epsilon * scale_of(want)) / scale_of(want)
        assert_close(name, got, want, layout=layout, rows_axis=axis, tolerance=tolerance)
        note_error(f"{cell} {name}", got, want, tolerance * scale_of(want))
    if gpu_dsink is not None:
        assert_close("dsink", gpu_dsink, cpu_dsink, tolerance=1e-4)


def size_of(x: np.ndarray) -> float:
    """The root mean square of what is not padding, at least 1."""
    valid = x[np.isfinite(x)]
    return max(1.0, float(np.sqrt(np.mean(valid**2)))) if valid.size else 1.0


def group_rows(case: Case) -> float:
    """By how much more a sum over all queries of a group may round than a single product."""
    rows = max(int(case.layout_q.lengths.max(initial=0)), 1)
    return max(1.0, (rows * case.num_heads / case.num_kv_heads) ** 0.5 / 4)


def note_error(cell: str, got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    """Keeps the worst error of a cell, as a part of what is allowed."""
    with np.errstate(invalid="ignore"):
        off = np.where(got == want, 0.0, np.abs(got - want))
    worst[cell] = max(worst[cell], float(off.max(initial=0.0)) / tolerance)


def write_results(path: str, counts: dict[str, int]) -> None:
    """What ./dev gpu-test keeps: where it ran, what, and how close it came."""
    import torch

    def output_of(*command: str) -> str:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        return run.stdout.strip()

    results = {
        "gpu": torch.cuda.get_device_name(),
        "driver": output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
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
