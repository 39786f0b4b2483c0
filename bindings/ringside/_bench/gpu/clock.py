"""Times of calls on a GPU: whole, by events; and of chosen kernels alone, by the profiler.

Calls take turns, so that a throttled moment meets all of them, and each begins with other data in
the caches. torch is imported when a Clock is made.
"""

from __future__ import annotations

import importlib
import itertools
import random
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringside._bench.gpu.cases import Times

if TYPE_CHECKING:
    from ringside._bench.gpu.runners import Runner

OURS = re.compile("forward|backward|query_gradient|key_gradient")
# Of calls shorter than SHORT milliseconds the host takes most, and it varies: they run more often.
SHORT, SHORT_REPEATS = 1.0, 4
COLD_BYTES = 512 * 2**20  # ten times the L2 cache; a quarter of a millisecond to write


def function_name(kernel: str) -> str:
    """Without types, namespaces and arguments.

    >>> function_name("void ringside::(anonymous namespace)::fill_kernel<float>(float*, long)")
    'fill_kernel'
    """
    plain = kernel.replace("(anonymous namespace)", "").removeprefix("void ")
    return re.split(r"[<(]", plain, maxsplit=1)[0].split("::")[-1]


def is_our_attention(kernel: str) -> bool:
    """Whether a kernel computes attention, and does not move, convert, merge or reduce rows.

    Kernels of a family are called forward, backward or gradient (optimized/attention_*.cu).
    """
    return "ringside" in kernel and OURS.search(function_name(kernel)) is not None


def is_flash_attention(kernel: str) -> bool:
    """Whether a kernel is FlashAttention's: delta and the conversion of dq are among these."""
    return "flash" in kernel


@dataclass(frozen=True)
class Call:
    """Something to run, and which of its kernels to count by themselves."""

    run: Callable[[], Any]
    counts: Callable[[str], bool]


def counted_sums(events: Iterable[tuple[str, float]], calls: Sequence[Call]) -> list[list[float]]:
    """For each call, the sums of its counted kernels, one a repeat.

    Args:
        events: (kernel, milliseconds) in time order: a marker, then before each call the marker
            again; the calls take turns.
        calls: in turn.

    Raises:
        RuntimeError: the number of markers does not fit, or a call ran no counted kernel.

    >>> every = Call(run=print, counts=lambda kernel: True)
    >>> counted_sums([("mark", 1), ("mark", 1), ("a", 2), ("b", 3), ("mark", 1), ("c", 4)], [every])
    [[5, 4]]
    """
    events = list(events)
    marker = events[0][0] if events else ""
    runs: list[list[tuple[str, float]]] = []
    for kernel, milliseconds in events[1:]:
        if kernel == marker:
            runs.append([])
        elif not runs:
            raise RuntimeError(f"the profiler saw {kernel} before the first call")
        else:
            runs[-1].append((kernel, milliseconds))
    if not runs or len(runs) % len(calls):
        raise RuntimeError(
            f"the profiler saw {len(runs)} calls; expected a multiple of {len(calls)}, and some. "
            "Is another profiler using the GPU?"
        )
    sums: list[list[float]] = [[] for _ in calls]
    for i, run in enumerate(runs):
        call = i % len(calls)
        counted = [milliseconds for kernel, milliseconds in run if calls[call].counts(kernel)]
        if not counted:
            names = sorted({function_name(kernel) for kernel, _ in run})
            raise RuntimeError(f"no attention kernel among {', '.join(names) or 'no kernels'}")
        sums[call].append(sum(counted))
    return sums


def turns(calls: int, repeats: int) -> list[list[int]]:
    """Who follows whom, in an order of its own each time.

    What runs on the host before a call is a part of the call's time: threads that sleep, caches.

    >>> [sorted(turn) for turn in turns(3, 2)], turns(9, 2)[0] == turns(9, 2)[1]
    ([[0, 1, 2], [0, 1, 2]], False)
    """
    rng = random.Random(0)
    return [rng.sample(range(calls), calls) for _ in range(repeats)]


class Clock:
    """Medians on the current device and stream."""

    def __init__(self, repeats: int) -> None:
        self.torch = importlib.import_module("torch")
        self.repeats = repeats
        self.cold = self.torch.zeros(COLD_BYTES // 4, dtype=self.torch.int32, device="cuda")

    def times(self, calls: Sequence[Call]) -> list[Times]:
        """Of each call, after one untimed round."""
        for call in calls:
            call.run()
        spent = self._by_events(calls, self.repeats)
        if max(map(statistics.median, spent)) < SHORT:
            spent = self._by_events(calls, SHORT_REPEATS * self.repeats)
        whole = [statistics.median(x) for x in spent]
        kernels = [statistics.median(x) for x in counted_sums(self._by_profiler(calls), calls)]
        return [Times(*both) for both in zip(whole, kernels, strict=True)]

    def _cool_down(self) -> None:
        """Other data into the caches; busy for so long that the host is ahead when a call begins.

        An integer kernel that no attention uses: the profiler's marker.
        """
        self.cold.add_(1)

    def _by_events(self, calls: Sequence[Call], repeats: int) -> list[list[float]]:
        cuda = self.torch.cuda
        times: list[list[float]] = [[] for _ in calls]
        for turn in turns(len(calls), repeats):
            for call, spent in ((calls[i], times[i]) for i in turn):
                begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
                self._cool_down()
                begin.record()
                call.run()
                end.record()
                cuda.synchronize()
                spent.append(begin.elapsed_time(end))
        return times

    def _by_profiler(self, calls: Sequence[Call]) -> list[tuple[str, float]]:
        torch = self.torch
        activities = [torch.profiler.ProfilerActivity.CUDA]
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=activities, acc_events=True) as profile:
            self._cool_down()
            for _ in range(self.repeats):
                for call in calls:
                    self._cool_down()
                    call.run()
            torch.cuda.synchronize()
        on_device = torch.autograd.DeviceType.CUDA
        events = [e for e in profile.events() if e.device_type == on_device]
        events.sort(key=lambda e: e.time_range.start)
        return [(e.name, e.time_range.elapsed_us() / 1e3) for e in events]


def timed(
    clock: Clock, runners: Sequence[Runner], most: int | None = None
) -> list[dict[str, Times]]:
    """The first `most` calls of every runner, all in turns; forward passes first."""
    works = [itertools.islice(runner.calls().items(), most) for runner in runners]
    named = [(i, *item) for i, items in enumerate(works) for item in items]
    named.sort(key=lambda item: item[1] != "forward")
    times: list[dict[str, Times]] = [{} for _ in runners]
    for (i, name, _), taken in zip(named, clock.times([call for *_, call in named]), strict=True):
        times[i][name] = taken
    return times
