"""`ringside calibrate`: a time model of the GPUs there are. A process a GPU runs this file."""

from __future__ import annotations

import datetime
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ringside as rs
from ringside import _core
from ringside._arrays import cuda as _cuda
from ringside._bench.calibration import Asked, Budget, calibrated
from ringside._bench.gpu import links
from ringside._bench.gpu.clock import Call, Clock, is_our_attention
from ringside._group import launcher

REPEATS = 5
COPY_BYTES = 2**29


class OnGpus:
    """See calibration.Machine. Rank 0 measures kernels; exchanges are those of all ranks."""

    def __init__(self, group: rs.Group, device: int) -> None:
        import torch

        self.torch, self.group, self.device, self.gpus = torch, group, device, group.size
        about = torch.cuda.get_device_properties(device)
        self.name, self.multiprocessors = about.name, about.multi_processor_count
        self.clock = Clock(REPEATS)
        if group.size > 1:
            links.mesh_of(group)

    def attention_us(
        self, lengths: Sequence[int], mask: _core.Mask, asked: Asked
    ) -> tuple[float, float]:
        """Medians of rank 0's GPU, which all ranks take."""
        found = [0.0, 0.0]
        if self.group.rank == 0:
            calls = self._calls(lengths, mask, asked)
            found = [1e3 * times.kernels for times in self.clock.times(calls)]
        (_, told), *_ = self.group._tell_all(found)
        return told[0], told[1]

    def _calls(self, lengths: Sequence[int], mask: _core.Mask, asked: Asked) -> list[Call]:
        layout = rs.PackedLayout.from_lengths(list(lengths))
        plan = rs.plan(layout, mask=mask, cp_size=1, num_heads=asked.num_heads)
        shape = (layout.num_rows, asked.num_heads, asked.head_dim)
        dtype = getattr(self.torch, asked.dtype)
        place = {"device": f"cuda:{self.device}", "dtype": dtype}
        q, k, v, dout = (self.torch.randn(shape, **place) for _ in range(4))
        out, lse = plan.attention(q, k, v, backend="cuda")

        def forward() -> Any:
            return plan.attention(q, k, v, backend="cuda")

        def backward() -> Any:
            return plan.attention_backward(dout, q, k, v, out, lse, backend="cuda")

        return [Call(forward, is_our_attention), Call(backward, is_our_attention)]

    def exchange_us(self, kind: str, size: int, exchange: str) -> float:
        """The slowest rank's."""
        peers = self.group.size - 1
        if exchange == "peer":
            run = links._copy(self.group, self.device, size)
        elif kind == "hop":
            run = links._hop(self.group, self.device, size)
        elif kind == "all_gather":
            run = links._gather(self.group, self.device, max(size // peers, 1))
        else:
            run = links._to_all(self.group, self.device, max(size // peers, 1))
        took = links._milliseconds(run)
        return 1e3 * max(x for _, x in self.group._tell_all(took))

    def copy_gb_per_s(self) -> float:
        """Of this rank's memory; that of rank 0 is written down."""
        there, here = (self.torch.zeros(COPY_BYTES, dtype=self.torch.uint8, device=self.device)
                       for _ in range(2))  # fmt: skip
        took = [self._once(lambda: here.copy_(there)) for _ in range(REPEATS + 1)][1:]
        return 2 * COPY_BYTES / statistics.median(took) / 1e6

    def _once(self, run: Callable[[], Any]) -> float:
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))


def start(path: Path, asked: Asked, gpus: int | None, seconds: float) -> int:
    """One process a GPU; an exit code. Nothing is written where one fails.

    Args:
        path: of the model.
        asked: what to calibrate.
        gpus: how many; None for all there are.
        seconds: to spend.
    """
    _cuda.require_cuda()
    if gpus is None:
        import torch

        gpus = torch.cuda.device_count()
    words = [asked.dtype, asked.head_dim, asked.num_heads, asked.exchange, seconds, path]
    command = [sys.executable, "-m", "ringside._bench.gpu.calibrate", *map(str, words)]
    return launcher.run(command, gpus)


def main(words: Sequence[str]) -> int:
    """In each process of a group."""
    import torch

    dtype, head_dim, num_heads, exchange, seconds, path = words
    asked = Asked(dtype, int(head_dim), int(num_heads), exchange)
    with rs.init() as group:
        device = int(os.environ.get("RINGSIDE_LOCAL_RANK", group.rank)) % torch.cuda.device_count()
        torch.cuda.set_device(device)
        model = calibrated(OnGpus(group, device), asked, budget(group, float(seconds)), today())
        if group.rank == 0:
            model.save(path)
            print(f"{model!r} -> {path}")
    return 0


def budget(group: rs.Group, seconds: float) -> Budget:
    """By the clock of rank 0: all ranks measure the same things."""
    own = Budget(seconds)

    def now() -> float:
        (_, told), *_ = group._tell_all(own_now())
        return float(told)

    own_now = own.now
    return Budget(seconds, now)


def today() -> str:
    """For the source of each number."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
