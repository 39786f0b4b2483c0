"""`ringside bench cpu`: the executor against NumPy, planning at scale, the rate of random checks.

Nothing is timed before it is checked.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ringside import _core, lengths
from ringside._bench import dense as _dense
from ringside._plan.build import plan as new_plan
from ringside.testing._compare import TOLERANCE
from ringside.testing._judging import relative_errors
from ringside.testing._problems import a2a_size
from ringside.testing._random_cases import cases

TRACE = "man_pages"
EXECUTOR_TOKENS, REPEATS = 16_384, 3
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 8, 2, 64
PLAN_TOKENS, PLAN_DOCUMENTS, PLAN_CP_SIZE = 131_072, 200, 64
RANDOM_CASES = 2_000


@dataclass(frozen=True)
class Line:
    """One measurement.

    Attributes:
        benchmark: what was measured.
        seconds: the median, or the one run.
        goal: what it should reach, in words.
        reached: what it reached, in words.
        ok: whether it did.
        details: further numbers by name.
    """

    benchmark: str
    seconds: float
    goal: str
    reached: str
    ok: bool
    details: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Flat, for CSV and JSON."""
        flat = asdict(self)
        return flat | flat.pop("details")


def planning() -> Iterator[Line]:
    """Builds and proves a large plan of every partition and transport, zigzag over p2p first.

    The peak is the process's: it counts all that was done before.
    """
    documents = lengths.load(TRACE)[:PLAN_DOCUMENTS].astype(np.float64)
    scaled = np.maximum(1, np.floor(documents * (PLAN_TOKENS / documents.sum()))).astype(np.int64)
    scaled[scaled.argmax()] += PLAN_TOKENS - scaled.sum()
    layout = _core.PackedLayout.from_lengths(scaled)
    first = ("zigzag", "p2p")
    every = [(p, c) for p in _core.PARTITIONS for c in _core.COMMS if (p, c) != first]
    for partition, comm in [first, *every]:
        begin = time.perf_counter()
        plan = new_plan(
            layout,
            cp_size=PLAN_CP_SIZE,
            partition=partition,
            comm=comm,
            a2a_size=a2a_size(comm, PLAN_CP_SIZE),
            num_heads=PLAN_CP_SIZE,
            num_kv_heads=NUM_KV_HEADS,
        )
        built = time.perf_counter()
        proof = plan.verify()
        seconds, peak = time.perf_counter() - begin, _peak_gib()
        yield Line(
            f"plan: {partition} over {comm}",
            seconds,
            "< 2 s and < 2 GiB",
            f"{seconds:.2f} s, peak {peak:.2f} GiB",
            seconds < 2 and peak < 2,
            {"build_seconds": built - begin, "peak_gib": peak, "tiles": float(proof.tiles)},
        )


def executor() -> Iterator[Line]:
    """The executor at cp_size 1 and dense NumPy on the same pack, taking turns."""
    layout = _core.PackedLayout.from_lengths(lengths.pack(lengths.load(TRACE), EXECUTOR_TOKENS))
    plan = new_plan(layout, cp_size=1, num_heads=NUM_HEADS, num_kv_heads=NUM_KV_HEADS)
    rng = np.random.default_rng(0)
    shapes = [(layout.num_rows, heads, HEAD_DIM) for heads in (NUM_HEADS, NUM_KV_HEADS)]
    q, dout = rng.normal(size=(2, *shapes[0]))
    k, v = rng.normal(size=(2, *shapes[1]))
    saved = plan.attention(q, k, v)
    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "forward": (
            lambda: plan.attention(q, k, v),
            lambda: _dense.causal_forward(q, k, v, layout.cu_seqlens),
        ),
        "backward": (
            lambda: plan.attention_backward(dout, q, k, v, *saved),
            lambda: _dense.causal_backward(dout, (q, k, v), saved, layout.cu_seqlens),
        ),
    }
    pairs = int(plan.cost().pairs.sum())
    products = {"forward": 2, "backward": 5}  # matrix products, 2 * HEAD_DIM flops a pair each
    for name, (ours, numpys) in calls.items():
        _require_equal(name, ours(), numpys())
        seconds, numpy_seconds = _in_turns(ours, numpys)
        flops = 2 * HEAD_DIM * products[name] * pairs
        ratio = numpy_seconds / seconds
        yield Line(
            f"executor: {name}",
            seconds,
            ">= 1 x NumPy",
            f"{ratio:.2f} x NumPy ({numpy_seconds:.2f} s), {flops / seconds / 1e9:.1f} GFLOP/s",
            ratio >= 1,
            {"numpy_seconds": numpy_seconds, "ratio": ratio, "gflops": flops / seconds / 1e9},
        )


def random_checks() -> Iterator[Line]:
    """How fast `ringside verify --random` goes."""
    begin = time.perf_counter()
    for case in cases(seed=0, numbers=range(RANDOM_CASES)):
        disagreement = case.run().disagreement
        if disagreement:
            raise AssertionError(f"random case {case.number}: {disagreement}")
    seconds = time.perf_counter() - begin
    rate = RANDOM_CASES / seconds * 60
    yield Line(
        "random checks",
        seconds,
        ">= 1,000 a minute",
        f"{rate:,.0f} a minute",
        rate >= 1000,
        {"cases_a_minute": rate},
    )


def _in_turns(ours: Callable[[], Any], numpys: Callable[[], Any]) -> tuple[float, float]:
    """Median seconds of each, alternating, so that a slow moment of the machine meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(REPEATS):
        for call, seconds in zip((ours, numpys), times, strict=True):
            begin = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)
    return statistics.median(times[0]), statistics.median(times[1])


def _require_equal(name: str, got: tuple[Any, ...], want: tuple[Any, ...]) -> None:
    for x, y in zip(got, want, strict=True):
        error = float(relative_errors(x, y).max(initial=0.0))
        if not error <= TOLERANCE:
            raise AssertionError(f"{name} differs from NumPy by {error:.1e}; nothing was timed")


def _peak_gib() -> float:
    """The largest resident set of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


CAPTION = (
    f"Plans: built and proved, {PLAN_TOKENS:,} tokens, {PLAN_DOCUMENTS} documents of {TRACE} "
    f"(lengths scaled), cp_size {PLAN_CP_SIZE}. Executor: cp_size 1, causal, "
    f"{EXECUTOR_TOKENS:,} tokens of {TRACE}, {NUM_HEADS} query / {NUM_KV_HEADS} kv heads, "
    f"head_dim {HEAD_DIM}, float64; flops of visible pairs; median of {REPEATS}, in turns with "
    f"NumPy, one document and head at a time. Random checks: {RANDOM_CASES:,} cases. All is "
    "checked before it is timed."
)
NUM_LINES = len(_core.PARTITIONS) * len(_core.COMMS) + 3


def measure() -> Iterator[Line]:
    """Everything; planning comes first, while the process is small."""
    yield from planning()
    yield from executor()
    yield from random_checks()


def usable_processors() -> int | None:
    """How many processors this process may run on, as the executor counts them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def machine() -> dict[str, Any]:
    """Where and when the numbers were taken."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": usable_processors(),
        "system": " ".join((platform.system(), platform.machine(), *platform.libc_ver())),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }
