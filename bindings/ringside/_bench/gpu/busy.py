"""What a GPU was busy with during a call, by the profiler."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ringside._bench.gpu.clock import is_flash_attention, is_our_attention

CALLS = 3
MOVES = ("nccl", "memcpy", "memset")
WITHIN = "memcpy dtod"  # a copy within a GPU, which its multiprocessors do


class Busy(NamedTuple):
    """Milliseconds of a call.

    Attributes:
        attention: sum over the attention kernels.
        kernels: in which any kernel ran that is no exchange.
        exchange: sum over copies and NCCL's kernels, waits in them included.
        multiprocessors: that NCCL's kernels take from the tiles.
    """

    attention: float
    kernels: float
    exchange: float
    multiprocessors: int = 0


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of (begin, end).

    >>> covered([(4, 5), (0, 2), (1, 3)])
    4.0
    """
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def is_exchange(kernel: str) -> bool:
    """Whether it moves rows between ranks, or only waits for others.

    >>> is_exchange("ncclDevKernel_SendRecv(...)"), is_exchange("Memcpy PtoP"), is_exchange("x")
    (True, True, False)
    >>> is_exchange("Memcpy DtoD (Device -> Device)")
    False
    """
    name = kernel.lower()
    return WITHIN not in name and any(word in name for word in MOVES)


def is_attention(kernel: str) -> bool:
    """Ours, FlashAttention's or cuDNN's."""
    known = is_our_attention(kernel) or is_flash_attention(kernel)
    return known or ("cudnn" in kernel and "sdpa" in kernel)


def busy_of(run: Callable[[], Any]) -> Busy:
    """The mean of some calls; every rank must call it at the same time."""
    import torch

    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(CALLS):
            run()
        torch.cuda.synchronize()
    on_device = torch.autograd.DeviceType.CUDA
    events = [e for e in profile.events() if e.device_type == on_device]
    spans = [(e.name, e.time_range.start, e.time_range.end) for e in events]
    attention = sum(end - begin for name, begin, end in spans if is_attention(name))
    kernels = covered((begin, end) for name, begin, end in spans if not is_exchange(name))
    exchange = sum(end - begin for name, begin, end in spans if is_exchange(name))
    times = (x / CALLS / 1e3 for x in (attention, kernels, exchange))
    by_nccl = any("nccl" in name.lower() for name, _, _ in spans)
    return Busy(*times, multiprocessors_in(profile) if by_nccl else 0)


def multiprocessors_of(events: Iterable[Mapping[str, Any]]) -> int:
    """That the exchange's kernels take: the largest grid of one, a block on each.

    Args:
        events: of a trace of Chrome's, as torch's profiler writes them.

    >>> copy = {"name": "Memcpy PtoP", "args": {"bytes": 8}}
    >>> send = {"name": "ncclDevKernel_SendRecv", "args": {"grid": [24, 1, 1]}}
    >>> multiprocessors_of([copy, send]), multiprocessors_of([copy])
    (24, 0)
    """
    grids = [
        event["args"]["grid"]
        for event in events
        if is_exchange(event.get("name", "")) and "grid" in event.get("args", {})
    ]
    return max(map(math.prod, grids), default=0)


def multiprocessors_in(profile: Any) -> int:
    """Likewise, of a profile of torch's that has ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        return multiprocessors_of(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])
