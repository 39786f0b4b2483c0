"""What a GPU was busy with during a call, by the profiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ringside._bench.gpu.clock import is_flash_attention, is_our_attention

CALLS = 3
MOVES = ("nccl", "memcpy", "memset")


class Busy(NamedTuple):
    """Milliseconds of a call.

    Attributes:
        attention: sum over the attention kernels.
        kernels: in which any kernel ran that is no exchange.
        exchange: sum over copies and NCCL's kernels, waits in them included.
    """

    attention: float
    kernels: float
    exchange: float


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
    """
    return any(word in kernel.lower() for word in MOVES)


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
    return Busy(*(x / CALLS / 1e3 for x in (attention, kernels, exchange)))
