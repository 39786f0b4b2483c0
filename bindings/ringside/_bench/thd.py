"""ringside.thd's row movers against a NumPy fancy-index copy of the same bytes, in one run."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ringside import thd

Rows = npt.NDArray[np.generic]
Call = Callable[[], object]


@dataclasses.dataclass(frozen=True)
class Shape:
    """The batch that moves: `batch` sequences of `tokens` rows of heads * head_dim elements.

    tokens is a multiple of twice every cp_size.
    """

    batch: int = 16
    tokens: int = 4096
    heads: int = 16
    head_dim: int = 64
    dtype: str = "float16"

    def random_rows(self) -> Rows:
        """[batch * tokens, heads, head_dim], any bits."""
        rows = self.batch * self.tokens
        row_bytes = self.heads * self.head_dim * np.dtype(self.dtype).itemsize
        bits = np.random.default_rng(0).integers(0, 256, (rows, row_bytes), np.uint8)
        return bits.view(self.dtype).reshape(rows, self.heads, self.head_dim)


@dataclasses.dataclass(frozen=True)
class Result:
    """Medians of one operation at one cp_size.

    Attributes:
        operation: what moved.
        cp_size: number of ranks.
        mebibytes: read, and as many written.
        ringside_ms, numpy_ms: milliseconds.
    """

    operation: str
    cp_size: int
    mebibytes: float
    ringside_ms: float
    numpy_ms: float

    @property
    def speedup(self) -> float:
        """How many times as fast as NumPy; at least 1 is the goal."""
        return self.numpy_ms / self.ringside_ms

    @property
    def gigabytes_per_second(self) -> float:
        """Read and written."""
        return 2 * self.mebibytes * 2**20 / self.ringside_ms / 1e6


@dataclasses.dataclass(frozen=True)
class Contest:
    """Two calls that move the same `mebibytes`, and a check to pass before they are timed."""

    operation: str
    mebibytes: float
    ringside: Call
    numpy: Call
    check: Callable[[], bool]


def bench(
    cp_sizes: Iterable[int] = (2, 4, 8), *, shape: Shape | None = None, repeats: int = 15
) -> list[Result]:
    """Times both reorders and copy_valid_tokens, turn by turn with NumPy's copy of the same bytes.

    What the two yield is compared byte by byte before any of it is timed.

    Args:
        cp_sizes: numbers of ranks.
        shape: of the batch; default 16 sequences of 4,096 tokens, 16 heads of 64 2-byte elements.
        repeats: of which the median counts.

    >>> from ringside._bench import thd
    >>> small = thd.Shape(batch=2, tokens=16)
    >>> for result in thd.bench([2], shape=small, repeats=1):
    ...     print(result.operation)
    sequence order to rank order
    rank order to sequence order
    copy valid tokens
    """
    shape = shape or Shape()
    x = shape.random_rows()
    results = []
    for cp_size in cp_sizes:
        for contest in (*_reorders(x, shape, cp_size), _valid_copy(x, shape, cp_size)):
            if not contest.check():
                raise AssertionError(f"{contest.operation}, cp_size {cp_size}: NumPy disagrees")
            times = _interleaved_medians((contest.ringside, contest.numpy), repeats)
            results.append(Result(contest.operation, cp_size, contest.mebibytes, *times))
    return results


def _reorders(x: Rows, shape: Shape, cp_size: int) -> Iterator[Contest]:
    """The whole batch into a new array, each way."""
    starts = np.arange(shape.batch + 1) * shape.tokens
    to_rank = np.concatenate([thd.partition_indices(starts, cp_size, r) for r in range(cp_size)])
    for operation, reorder, rows in (
        ("sequence order to rank order", thd.sequence_order_to_cp_rank_order, to_rank),
        ("rank order to sequence order", thd.cp_rank_order_to_sequence_order, np.argsort(to_rank)),
    ):

        def ringside(reorder: Callable[..., Rows] = reorder) -> Rows:
            return reorder(x, starts, cp_size)

        def numpy(rows: npt.NDArray[np.intp] = rows) -> Rows:
            return x[rows]

        def check(ours: Callable[[], Rows] = ringside, numpys: Callable[[], Rows] = numpy) -> bool:
            return _same_bytes(ours(), numpys())

        yield Contest(operation, x.nbytes / 2**20, ringside, numpy, check)


def _valid_copy(x: Rows, shape: Shape, cp_size: int) -> Contest:
    """The first half of a rank's rows, in place; NumPy takes them into an array that exists too."""
    local = shape.tokens // cp_size
    starts = np.arange(shape.batch + 1) * local
    step_out, valid = x[: starts[-1]], starts // 2
    rows = (starts[:-1, None] + np.arange(local // 2)).ravel()
    out, taken = np.zeros_like(step_out), np.empty_like(step_out[rows])

    def check() -> bool:
        thd.copy_valid_tokens(out, step_out, starts, valid)
        step_out.take(rows, axis=0, out=taken, mode="clip")
        want = np.zeros_like(step_out)
        want[rows] = taken
        return _same_bytes(out, want)

    return Contest(
        "copy valid tokens",
        taken.nbytes / 2**20,
        lambda: thd.copy_valid_tokens(out, step_out, starts, valid),
        lambda: step_out.take(rows, axis=0, out=taken, mode="clip"),
        check,
    )


def _same_bytes(a: Rows, b: Rows) -> bool:
    return a.shape == b.shape and np.array_equal(a.view(np.uint8), b.view(np.uint8))


def _interleaved_medians(calls: tuple[Call, ...], repeats: int) -> list[float]:
    """Milliseconds; the calls take turns, so that a busy moment of the machine hits all."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, spent in zip(calls, times, strict=True):
            begin = time.perf_counter()
            call()
            spent.append(1e3 * (time.perf_counter() - begin))
    return [statistics.median(spent) for spent in times]
