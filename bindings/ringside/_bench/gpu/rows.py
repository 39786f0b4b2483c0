"""ringside.thd on one GPU beside the device's own copy of as many bytes, in one run.

    python -m ringside._bench.gpu.rows [--quick]

Everything is compared with the host's functions before it is timed. Calls are captured in a graph,
a dozen at a time, so that times are the device's; inputs take turns and are larger than its caches;
graphs of copies alternate with ours, and medians count. Needs torch.
"""

from __future__ import annotations

import dataclasses
import importlib
import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ringside import Mask, PackedLayout, thd
from ringside._bench.gpu.clock import Call, Clock
from ringside._plan.build import plan as new_plan

HEAD_DIM, TOKENS_AND_HEADS = 64, 16 * 4096 * 16  # 134 MB of bfloat16
CALLS, REPEATS = 12, 15


@dataclasses.dataclass(frozen=True)
class Row:
    """Of the table.

    Attributes:
        case: what was called.
        cp_size, sequences, heads: of the batch; heads 0 where no rows move.
        milliseconds: a call, the median.
        gigabytes_per_second: read and written; None where no rows move.
        ratio_to_copy: of that rate to the rate of the device's own copy; None likewise.
    """

    case: str
    cp_size: int
    sequences: int
    heads: int
    milliseconds: float
    gigabytes_per_second: float | None = None
    ratio_to_copy: float | None = None


@dataclasses.dataclass(frozen=True)
class Batch:
    """Sequences of one length, or of ragged ones that 2*cp_size does not divide."""

    sequences: int
    heads: int
    cp_size: int
    ragged: bool = False

    def starts(self) -> np.ndarray:
        """[sequences+1], where they start; 134 MB of bfloat16 in all."""
        rows = TOKENS_AND_HEADS // self.heads
        if not self.ragged:
            return np.arange(self.sequences + 1, dtype=np.int64) * (rows // self.sequences)
        cuts = np.random.default_rng(0).integers(0, rows + 1, self.sequences - 1)
        return np.array([0, *np.sort(cuts), rows])


class Bench:
    """The device, its memory, and a stopwatch."""

    def __init__(self) -> None:
        self.torch = importlib.import_module("torch")

    def rows(self, batch: Batch, dtype: str = "bfloat16") -> Any:
        """[rows, heads, HEAD_DIM], random."""
        shape = (int(batch.starts()[-1]), batch.heads, HEAD_DIM)
        return self.torch.randn(shape, device="cuda").to(getattr(self.torch, dtype))

    def offsets(self, values: np.ndarray) -> Any:
        """int32 on the device."""
        return self.torch.tensor(np.asarray(values), dtype=self.torch.int32, device="cuda")

    def _captured(self, call: Callable[[int], object]) -> Any:
        call(0)  # loads the kernels
        self.torch.cuda.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            for i in range(CALLS):
                call(i)
        return graph

    def milliseconds(self, *calls: Callable[[int], object]) -> list[float]:
        """Medians of calls that take turns; each is told its number."""
        graphs = [self._captured(call) for call in calls]
        times: list[list[float]] = [[] for _ in calls]
        for _ in range(REPEATS + 2):
            for graph, spent in zip(graphs, times, strict=True):
                begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                spent.append(begin.elapsed_time(end) / CALLS)
        return [statistics.median(spent[2:]) for spent in times]

    def beside_copy(
        self, case: str, batch: Batch, moved: int, call: Callable[[int], object]
    ) -> Row:
        """A row of the table; `moved` bytes are read and written."""
        source, target = self.torch.empty(2, 3, moved // 2, dtype=self.torch.uint8, device="cuda")
        ours, copy = self.milliseconds(call, lambda i: target[i % 3].copy_(source[i % 3]))
        name = f"{case}, ragged" if batch.ragged else case
        shape = (batch.cp_size, batch.sequences, batch.heads)
        return Row(name, *shape, ours, moved / ours / 1e6, copy / ours)


def _require(holds: bool, case: str) -> None:
    if not holds:
        raise AssertionError(f"{case}: differs from the host's; nothing was timed")


def _reorders(bench: Bench, batch: Batch, *, both_ways: bool) -> Iterator[Row]:
    starts, cp_size = batch.starts(), batch.cp_size
    order = np.concatenate([thd.partition_indices(starts, cp_size, r) for r in range(cp_size)])
    on_device, x = bench.offsets(starts), [bench.rows(batch) for _ in range(3)]
    gather = bench.torch.from_numpy(order).long().cuda()
    moved = 2 * x[0].nbytes
    by_rank = thd.sequence_order_to_cp_rank_order(x, on_device, cp_size)
    back = thd.cp_rank_order_to_sequence_order(by_rank, on_device, cp_size)
    for a, b, c in zip(x, by_rank, back, strict=True):
        _require(bench.torch.equal(b, a[gather]) and bench.torch.equal(c, a), "reorder")
    del by_rank, back

    def to_ranks(i: int) -> object:
        return thd.sequence_order_to_cp_rank_order(x[i % 3], on_device, cp_size)

    def to_sequences(i: int) -> object:
        return thd.cp_rank_order_to_sequence_order(x[i % 3], on_device, cp_size)

    def k_and_v(i: int) -> object:
        return thd.sequence_order_to_cp_rank_order((x[i % 3], x[(i + 1) % 3]), on_device, cp_size)

    yield bench.beside_copy("sequence to rank order", batch, moved, to_ranks)
    if both_ways:
        yield bench.beside_copy("rank to sequence order", batch, moved, to_sequences)
        yield bench.beside_copy("sequence to rank order, k and v", batch, 2 * moved, k_and_v)


def _valid_rows(bench: Bench, batch: Batch) -> Row:
    starts = batch.starts()
    valid = starts // 2  # the first half of each sequence
    on_device = bench.offsets(starts), bench.offsets(valid)
    out, step_out = bench.rows(batch), [bench.rows(batch) for _ in range(3)]
    want = out.clone()
    length = int(starts[1])
    want.view(batch.sequences, length, -1)[:, : length // 2] = step_out[0].view(
        batch.sequences, length, -1
    )[:, : length // 2]
    thd.copy_valid_tokens(out, step_out[0], *on_device)
    _require(bench.torch.equal(out, want), "copy valid tokens")
    return bench.beside_copy(
        "copy valid tokens",
        batch,
        out.nbytes,
        lambda i: thd.copy_valid_tokens(out, step_out[i % 3], *on_device),
    )


def _sums(bench: Bench, batch: Batch) -> Row:
    starts = batch.starts()
    lengths = np.diff(starts)
    table = np.stack([starts[:-1], 0 * lengths + 1, starts[:-1], 0 * lengths + 1, lengths], axis=1)
    segments = bench.offsets(table)
    total, x = bench.rows(batch, "float32"), [bench.rows(batch) for _ in range(3)]
    want = total + x[0].float()
    thd.add_rows(total, x[0], segments)
    _require(bench.torch.equal(total, want), "add rows")
    moved = 2 * total.nbytes + x[0].nbytes
    return bench.beside_copy(
        "add bfloat16 rows to float32",
        batch,
        moved,
        lambda i: thd.add_rows(total, x[i % 3], segments),
    )


def _metadata(bench: Bench, sequences: int) -> Iterator[Row]:
    cp_size, rank, mask = 8, 3, Mask.causal()
    lengths = np.random.default_rng(0).integers(0, 64, sequences)
    starts = np.array([0, *np.cumsum(-(-lengths // 16) * 16)])
    valid, padded = bench.offsets(np.array([0, *np.cumsum(lengths)])), bench.offsets(starts)
    rows, window = int(starts[-1]), Mask.sliding_window(9, 0)
    layout = thd.DeviceLayout(valid, padded, rows)
    everything: dict[str, Callable[[int], object]] = {
        "all-gather metadata": lambda _: thd.all_gather_step_metadata(layout, cp_size, rank, mask),
        "ring metadata, diagonal": lambda _: thd.p2p_step_metadata(layout, cp_size, rank, 0, mask),
        "ring metadata, lower": lambda _: thd.p2p_step_metadata(layout, cp_size, rank, 1, mask),
        "ring metadata, window": lambda _: thd.p2p_step_metadata(layout, cp_size, rank, 1, window),
        "chunkify": lambda _: thd.chunkify(valid, padded, 16, num_rows=rows),
        "chunkify_p2p": lambda _: thd.chunkify_p2p(valid, padded, 16, cp_size, rank, num_rows=rows),
        "chunkify_p2p_below_diagonal": lambda _: thd.chunkify_p2p_below_diagonal(
            valid, padded, 16, cp_size, rank, 0
        ),
        "partition_indices": lambda _: thd.partition_indices(
            padded, cp_size, rank, num_rows=rows, capacity=rows // cp_size
        ),
    }
    found = thd.partition_indices(padded, cp_size, rank, num_rows=rows)
    want = thd.partition_indices(starts, cp_size, rank)
    _require(found.rows.cpu().numpy()[: len(want)].tolist() == want.tolist(), "partition_indices")
    for case, call in everything.items():
        (time,) = bench.milliseconds(call)
        yield Row(case, cp_size, sequences, 0, time)


def _delta(bench: Bench) -> Row:
    """What a backward pass begins with, rowsum(dout * out), beside a copy of as many bytes.

    Sequences of one token: out is v, and dq is 0 if delta is right.
    """
    torch, heads = bench.torch, 16
    rows = TOKENS_AND_HEADS // heads
    plan = new_plan(PackedLayout.from_lengths([1] * rows), cp_size=1, num_heads=heads)
    q, k, v, dout = (torch.randn(rows, heads, 128, device="cuda").bfloat16() for _ in range(4))
    out, lse = plan.attention(q, k, v, backend="cuda")

    def backward() -> Any:
        return plan.attention_backward(dout, q, k, v, out, lse, backend="cuda")

    _require(float(backward()[0].abs().max()) < 1e-2, "delta")
    source, target = torch.empty(2, dout.nbytes, dtype=torch.uint8, device="cuda")
    calls = [
        Call(backward, lambda kernel: "shard_softmax" in kernel),
        Call(lambda: target.copy_(source), lambda kernel: "Memcpy DtoD" in kernel),
    ]
    ours, copy = (times.kernels for times in Clock(REPEATS).times(calls))
    moved = dout.nbytes + out.nbytes
    return Row("delta", 1, rows, heads, ours, moved / ours / 1e6, copy / ours)


def rows(*, quick: bool = False) -> Iterator[Row]:
    """The rows of the table, as they are measured.

    Args:
        quick: only the largest claims, without the sweep.
    """
    bench = Bench()
    yield _delta(bench)
    for cp_size in (2, 4, 8):
        batch = Batch(16, 16, cp_size)
        yield from _reorders(bench, batch, both_ways=True)
        yield _valid_rows(bench, batch)
        yield _sums(bench, batch)
    for sequences in (16, 4096, 65_536):
        yield from _metadata(bench, sequences)
    for ragged in (False, True):
        for heads in (1, 4, 16, 64):
            for sequences in (1, 256, 4096, 16_384):
                if not quick:
                    batch = Batch(sequences, heads, 4, ragged)
                    yield from _reorders(bench, batch, both_ways=False)


def main() -> None:
    """Prints the table."""
    print(
        f"{'case':40} {'cp':>3} {'sequences':>9} {'heads':>5} {'ms':>8} {'GB/s':>6} {'of copy':>7}"
    )
    for row in rows(quick="--quick" in sys.argv[1:]):
        rate, ratio = row.gigabytes_per_second, row.ratio_to_copy
        print(
            f"{row.case:40} {row.cp_size:3} {row.sequences:9} {row.heads:5} "
            f"{row.milliseconds:8.4f} {'' if rate is None else f'{rate:.0f}':>6} "
            f"{'' if ratio is None else f'{ratio:.2f}':>7}",
            flush=True,
        )


if __name__ == "__main__":
    main()
