"""What the links between the GPUs of a host carry, for `ringside bench cp`.

By PyTorch's NCCL and by copy engines, apart from any attention: what an exchange can hope for.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import ringside as rs
from ringside._bench.gpu.torch_ranks import mesh_of

MIB = (1, 8, 64, 256)
REPEATS, QUEUED = 7, 4


def lines(group: rs.Group, device: int) -> Iterator[str]:
    """GB/s that a GPU receives, a line a kind of exchange; every process calls it."""
    mesh_of(group)
    kinds = {
        "NCCL, a hop": (1, _hop),
        "NCCL, a message to each peer": (group.size - 1, _to_all),
        "NCCL, all_gather": (group.size - 1, _gather),
        "copy engine, a hop": (1, _copy),
    }
    for name, (parts, make) in kinds.items():
        speeds = []
        for mib in MIB:
            size = mib * 2**20
            took = _milliseconds(make(group, device, size))
            slowest = max(x for _, x in group._tell_all(took))
            speeds.append(f"{mib} MiB {parts * size / slowest / 1e6:.0f}")
        yield f"links, {group.size} GPUs, GB/s into a GPU: {name}: {', '.join(speeds)}"


def _buffers(device: int, size: int, count: int) -> list[Any]:
    import torch

    return [torch.zeros(size, dtype=torch.uint8, device=f"cuda:{device}") for _ in range(count)]


def _hop(group: rs.Group, device: int, size: int) -> Callable[[], None]:
    import torch.distributed as dist

    there, here = _buffers(device, size, 2)
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size

    def run() -> None:
        messages = [dist.P2POp(dist.isend, there, after), dist.P2POp(dist.irecv, here, before)]
        for work in dist.batch_isend_irecv(messages):
            work.wait()

    return run


def _to_all(group: rs.Group, device: int, size: int) -> Callable[[], None]:
    import torch.distributed as dist

    peers = [rank for rank in range(group.size) if rank != group.rank]
    there, *here = _buffers(device, size, 1 + len(peers))

    def run() -> None:
        sent = [dist.P2POp(dist.isend, there, peer) for peer in peers]
        heard = [dist.P2POp(dist.irecv, x, peer) for x, peer in zip(here, peers, strict=True)]
        for work in dist.batch_isend_irecv(sent + heard):
            work.wait()

    return run


def _gather(group: rs.Group, device: int, size: int) -> Callable[[], None]:
    import torch.distributed as dist

    (own,), (whole,) = _buffers(device, size, 1), _buffers(device, size * group.size, 1)
    return lambda: dist.all_gather_into_tensor(whole, own)


def _copy(group: rs.Group, device: int, size: int) -> Callable[[], None]:
    import torch

    (own,) = _buffers(device, size, 1)
    (other,) = _buffers((device + 1) % torch.cuda.device_count(), size, 1)
    return lambda: own.copy_(other)


def _milliseconds(run: Callable[[], None]) -> float:
    import torch

    for _ in range(2):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(QUEUED):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / QUEUED)
    return statistics.median(times)
