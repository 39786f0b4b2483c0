"""What it costs a plan to learn its lengths on the device: DevicePlan.set_lengths."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import numpy as np

ROWS, CALLS, REPEATS = 65_536, 20, 9
CASES = [
    (sequences, cp_size, comm)
    for sequences in (64, 4_096, 65_536)
    for cp_size, comm in ((1, "p2p"), (4, "all_gather"), (4, "p2p"), (8, "p2p"))
]


def rows() -> Iterator[dict[str, Any]]:
    """Microseconds of a call: the tables of every step, of forward and backward, of all ranks."""
    for sequences, cp_size, comm in CASES:
        yield {
            "case": f"set_lengths cp {cp_size} zigzag {comm}",
            "cp_size": cp_size,
            "sequences": sequences,
            "microseconds": _microseconds(sequences, cp_size, comm),
        }


def _microseconds(sequences: int, cp_size: int, comm: str) -> float:
    """The median over some captured graphs of calls, so that times are the device's."""
    import torch

    from ringside import DevicePlan

    plan = DevicePlan(max_sequences=sequences, num_rows_q=ROWS, cp_size=cp_size, comm=comm)
    lengths = np.random.default_rng(sequences).multinomial(ROWS, np.ones(sequences) / sequences)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    cu_seqlens = torch.tensor(offsets, dtype=torch.int32, device="cuda")
    plan.set_lengths(cu_seqlens)
    q = torch.randn(ROWS, 1, 64, device="cuda", dtype=torch.bfloat16)
    plan.attention(q, q, q)  # makes the tables
    plan.check()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            plan.set_lengths(cu_seqlens)
    times = []
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / CALLS)
    return statistics.median(times)
