"""Makes the time models that travel with the package, from what data/results measured.

Run: .venv/bin/python .dev/time_models.py to write bindings/ringside/_time/presets/*.json, --check
to see whether they are in step. Rates of kernels are fitted; what nobody measured says so in its
source.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import time_rows
from ringside._bench.calibration import rising
from ringside._time import model_json
from ringside._time.fit import fitted, solved
from ringside._time.model import Kernel, Links, Memory, Rates, Table, TimeModel
from time_rows import SMS, Measured

FOLDER = Path(__file__).resolve().parent.parent / "bindings/ringside/_time/presets"
MIB = 2**20
BLOCK = (128, 128)
# Forward the largest errors are held small, too: of packs alone and of many launches by turns. The
# largest ones of the backward pass are of gradients that fall on the same rows, which no count has.
POWER = {"forward": 4.0, "backward": 2.0}
DATE = "22 Nov 2026"
H200 = f"NVIDIA H200, {DATE}"
# Of the hopper family's kernels (commit e9f68cb) and of calls on several GPUs (cea52f1).
H200_CALLS = "NVIDIA H200, 26 and 27 Nov 2026"

QUEUED = "calls queued one behind the other, so the host takes no time"
# Between hosts nothing has been measured.
NETWORK_GB_PER_S, NETWORK_US = 42.5, 25.0
NETWORK_SOURCE = (
    "assumed, not measured: 400 Gb/s InfiniBand a GPU at 85 % and 25 us a message, as is usual"
)
# That NCCL takes where tiles leave some free, as those of other packages do.
NCCL_SMS = 16
NCCL_SMS_SOURCE = (
    "SMs of an exchange: assumed, 16 channels of a block each; beside ours NCCL took 8 to 32"
)


def rates(measured: Iterable[Measured], work: str, power: float | None = None) -> Rates:
    """Of the rows of one pass."""
    chosen = [row for row in measured if row.work == work]
    counts, us = np.array([row.counts for row in chosen]), np.array([row.us for row in chosen])
    return Rates(*(round(x, 4) for x in fitted(counts, us, power or POWER[work])))


def mma_kernel() -> Kernel:
    """Portable tensor core kernels, heads of 128."""
    rows = [*time_rows.plans(), *time_rows.one_gpu("mma", 128)]
    return _kernel(
        128,
        rates(rows, "forward"),
        rates(rows, "backward"),
        f"mma family, {H200}: 120 rows of data/results/bench_plans_nvidia_h200.csv (commit "
        "9e87f03) and the d128 rows of bench_gpu_nvidia_h200.csv (commit 6c2b5ef)",
    )


def mma_kernel_of_64() -> Kernel:
    """Likewise, heads of 64: packs, windows and chunks of one rank."""
    rows = list(time_rows.one_gpu("mma", 64))
    return _kernel(
        64,
        rates(rows, "forward", 2.0),
        rates(rows, "backward", 2.0),
        f"mma family, {H200}: the d64 rows of data/results/bench_gpu_nvidia_h200.csv",
    )


def hopper_kernel() -> Kernel:
    """Kernels of the hopper family: both passes at once, as several GPUs were timed."""
    rows = [*time_rows.hopper_alone(), *time_rows.several_gpus()]
    nothing = np.zeros(4)
    shares = []
    for row in rows:
        forward = nothing if row.work == "backward" else row.counts
        backward = nothing if row.work == "forward" else row.counts
        alone = 1.0 if row.work == "both" else 3.0  # few rows tell the passes apart
        shares.append((np.concatenate([forward, backward]) / row.us, alone))
    matrix = np.array([share for share, _ in shares])
    weight = np.array([w for _, w in shares])
    found = solved(np.repeat(matrix, weight.astype(int), axis=0), 2.0)
    return _kernel(
        128,
        Rates(*(round(x, 4) for x in found[:4].tolist())),
        Rates(*(round(x, 4) for x in found[4:].tolist())),
        f"hopper family, {H200_CALLS}: gpu_ms of the d128 rows of "
        "data/results/fa3_beside_cp_nvidia_h200.csv, weighted three times, and attention_ms of "
        "bench_cp_nvidia_h200.csv, which are of both passes",
    )


def flash_attention_2() -> Kernel:
    """FlashAttention 2 as it ran beside ours."""
    rows = list(_with_peer(time_rows.one_gpu("mma", 128)))
    return _kernel(
        128,
        rates(rows, "forward", 2.0),
        rates(rows, "backward", 2.0),
        f"FlashAttention 2 of torch 2.11, {H200}: peer_kernels_ms of "
        "data/results/bench_gpu_nvidia_h200.csv, d128",
    )


def _with_peer(rows: Iterable[Measured]) -> Iterator[Measured]:
    """The same rows, with the times of FlashAttention 2 where there are any."""
    us = {
        (row["case"], row["work"]): 1e3 * float(row["peer_kernels_ms"])
        for row in time_rows.rows("bench_gpu_nvidia_h200.csv")
        if row["section"] == "attention" and row["peer_kernels_ms"]
    }
    for row in rows:
        if (row.name, row.work) in us:
            yield row._replace(us=us[row.name, row.work])


def cudnn_kernel() -> Kernel:
    """What PyTorch's context_parallel called: one number was told, so blocks alone cost."""
    one_gpu = 494 / 0.83  # TFLOP/s
    block = BLOCK[0] * BLOCK[1] * 4 * 128 * SMS / one_gpu / 1e6
    forward = Rates(round(block, 4), 0.0, 0.0, 5.0)
    source = "cuDNN of torch 2.11 on an H200: 494 TFLOP/s a GPU at 0.83 of one GPU's, 64k tokens"
    return _kernel(128, forward, Rates(*(round(2.5 * x, 4) for x in forward)), source)


def _kernel(head_dim: int, forward: Rates, backward: Rates, source: str) -> Kernel:
    return Kernel("bfloat16", head_dim, head_dim, BLOCK, forward, backward, source)


def table(exchange: str, kind: str, scale: float = 1.0) -> Table:
    """Of one kind of links_nvidia_h200.csv: bytes that a GPU receives, and what they take.

    A message that took longer than a larger one waited for the host: it is left out.
    """
    points = []
    for row in time_rows.rows("links_nvidia_h200.csv"):
        if (row["exchange"], row["kind"]) == (exchange, kind):
            size = int(row["messages"]) * int(row["mebibytes"]) * MIB
            took = size / float(row["gigabytes_per_second"]) / 1e3
            points.append((float(size), round(took * scale, 3)))
    return rising(points)


def network() -> Links:
    """Between hosts."""
    sizes = (MIB / 16, float(MIB), 64.0 * MIB)
    us = tuple(round(NETWORK_US + size / NETWORK_GB_PER_S / 1e3, 3) for size in sizes)
    kinds = ("hop", "all_gather", "all_to_all", "fetch")
    return Links(None, {kind: Table(sizes, us) for kind in kinds}, NETWORK_SOURCE)


def peer_links() -> Links:
    """Copy engines: one size of message was measured; several share what a GPU can receive."""
    hop = table("peer", "hop")
    kinds = ("hop", "all_gather", "all_to_all", "fetch")
    source = f"copy engines, {H200}: data/results/links_nvidia_h200.csv, a hop; others taken alike"
    return Links(8, dict.fromkeys(kinds, hop), source)


def nccl_links() -> Links:
    """NCCL 2.28.9; a fetch is messages to peers, as an all_to_all is."""
    tables = {kind: table("nccl", kind) for kind in ("hop", "all_gather", "all_to_all")}
    tables["fetch"] = tables["all_to_all"]
    source = f"NCCL 2.28.9 over NVLink, {H200}: data/results/links_nvidia_h200.csv"
    return Links(8, tables, source)


def memory() -> Memory:
    """An H200's: copies, and what sums and the packing of heads took in calls of several GPUs."""
    source = (
        f"{H200}: rate of 'sequence to rank order' in data/results/bench_gpu_nvidia_h200.csv; "
        f"{H200_CALLS}: sums and what makes gradients final, and reorders of all_to_all: fitted to "
        "calls over copy engines in data/results/bench_cp_nvidia_h200.csv; a sum alone moves 3 "
        "bytes for each that is added, 27 us for 33 MB"
    )
    return Memory(3900.0, {"all_to_all": 20.0}, per_byte_added=8.0, source=source)


def h200() -> TimeModel:
    """The default."""
    return TimeModel(
        name="h200",
        source=f"{H200_CALLS}, commits of data/results: hopper kernels, copy engines; {QUEUED}",
        multiprocessors=SMS,
        kernels=(hopper_kernel(),),
        links=(peer_links(), network()),
        exchange_multiprocessors=0,
        overlap=True,
        memory=memory(),
        host_us_per_step=0.0,
    )


# Unfused merges of partial results: to float32 (2 read, 4 written), a difference (8, 4), a
# sigmoid's product (4, 4), a difference (8, 4), bytes of an element of out.
UNFUSED_MERGE = 38.0


def _with_merges(plain: Memory) -> Memory:
    source = f"{plain.source}; merges: {UNFUSED_MERGE:g} bytes an element, read off the operators"
    return replace(plain, per_merged_element=UNFUSED_MERGE, source=source)


def ring_flash_attention() -> TimeModel:
    """Eight H800: an H200's multiprocessors, an H100's memory, half of the links."""
    nccl = nccl_links()
    slower = {kind: _no_faster(found, 160.0) for kind, found in nccl.us_of_bytes.items()}
    source = f"an H200's NCCL, no faster than 160 of an H800's 200 GB/s; {NCCL_SMS_SOURCE}"
    return TimeModel(
        name="h800-ring-flash-attention",
        source="zhuzilin/ring-flash-attention on 8 H800, put together; see each source",
        multiprocessors=SMS,
        kernels=(flash_attention_2(),),
        links=(Links(8, slower, source),),
        exchange_multiprocessors=NCCL_SMS,
        overlap=True,
        memory=replace(_with_merges(h100_memory()), per_byte_added=3.0),
        host_us_per_step=0.0,
    )


def _no_faster(found: Table, gb_per_s: float) -> Table:
    us = tuple(
        max(t, round(b / gb_per_s / 1e3, 3)) for b, t in zip(found.bytes, found.us, strict=True)
    )
    return Table(found.bytes, us)


def h100_memory() -> Memory:
    """Of the 3.35 TB/s that an H100 has, the share that copies reach on an H200."""
    source = "an H100's 3,350 GB/s times the share that copies reach on an H200, 3,900 of 4,800"
    return Memory(round(3350 * 3900 / 4800), {}, source=source)


def torch_context_parallel() -> TimeModel:
    """Gathers first, computes then, merges in float32, and launches from Python."""
    gather = table("nccl", "all_gather")
    third = Table(tuple(x / 3 for x in gather.bytes), tuple(round(x / 3, 3) for x in gather.us))
    return TimeModel(
        name="h200-torch",
        source="context_parallel of PyTorch 2.11 on 4 H200, put together; host time: assumed",
        multiprocessors=SMS,
        kernels=(cudnn_kernel(),),
        links=(Links(4, {"hop": third}, "a third of an all_gather of NCCL a step"),),
        exchange_multiprocessors=0,
        overlap=False,
        memory=_with_merges(replace(memory(), per_byte_received={}, per_byte_added=3.0)),
        host_us_per_step=150.0,
    )


def models() -> list[TimeModel]:
    """All that travel with the package."""
    best = h200()
    nccl = replace(
        best,
        name="h200-nccl",
        source=f"{H200_CALLS}, commits of data/results: hopper kernels, NCCL; {QUEUED}; a launch "
        "of tiles has all multiprocessors, so that NCCL's kernels begin when it ends: nothing "
        "travels under tiles (so calls are foretold at 1.00 in the median, else at 0.94)",
        links=(nccl_links(), network()),
        exchange_multiprocessors=0,
        overlap=False,
    )
    mma = replace(
        best,
        name="h200-mma",
        source=f"{H200}, commits of data/results: mma kernels, copy engines; {QUEUED}",
        kernels=(mma_kernel(), mma_kernel_of_64()),
    )
    return [best, nccl, mma, ring_flash_attention(), torch_context_parallel()]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if it would")
    options, changed = parser.parse_args(arguments), []
    for model in models():
        path, text = FOLDER / f"{model.name}.json", model_json.text(model)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            changed.append(path.name)
            if not options.check:
                path.write_text(text, encoding="utf-8")
    if options.check and changed:
        print(f"{', '.join(changed)}: not what data/results say; run .dev/time_models.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
