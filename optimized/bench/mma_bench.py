"""Times the mma family against FlashAttention 2, alternately in one process.

    mma_bench.py bench   LIBRARY...    forward and backward, beside torch's varlen_attn
    mma_bench.py quick   LIBRARY...    three packs only
    mma_bench.py profile LIBRARY       one forward and backward each, for a profiler

Rates are TFLOP/s of visible pairs: 2 (d_qk + d_v) a pair forward, 2.5 times that backward. Columns
of the backward: fast, deterministic, fast with zeroed gradients, then other libraries' fast one.
"""

from __future__ import annotations

import inspect
import math
import sys

import numpy as np
import torch
from mma_library import CAUSAL, FULL, NONE, Library, cumulative, shape_of


def long_tail(total: int, count: int, largest: int) -> list[int]:
    lens = np.sort(np.random.default_rng(3).lognormal(0, 1.1, count))[::-1]
    lens = np.minimum(lens / lens.sum() * total, largest).astype(int)
    lens[count // 3] += total - lens.sum()
    return np.random.default_rng(4).permutation(lens).tolist()


def pairs(mask, lens: list[int]) -> int:
    total = 0
    for length in lens:
        p = np.arange(length)
        lo, hi = np.zeros(length, int), np.full(length, length)
        if mask[0] != NONE:
            lo = np.maximum(lo, p - mask[0])
        if mask[1] != NONE:
            hi = np.minimum(hi, p + mask[1] + 1)
        if mask[2]:
            lo, hi = (
                np.maximum(lo, p // mask[2] * mask[2]),
                np.minimum(hi, (p // mask[2] + 1) * mask[2]),
            )
        total += int(np.maximum(hi - lo, 0).sum())
    return total


def median_times(runs, repeats: int) -> list[float]:
    """Milliseconds of each of some functions, run in turns."""
    for run in runs:
        run(), run()
    times = [[] for _ in runs]
    for _ in range(repeats):
        for run, into in zip(runs, times, strict=True):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            torch.cuda.synchronize()
            into.append(begin.elapsed_time(end))
    return [float(np.median(t)) for t in times]


def bench(libraries: list[Library], quick: bool) -> None:
    from torch.nn.attention.varlen import varlen_attn

    packs = {"tail": long_tail(32768, 21, 8000), "2k x16": [2048] * 16, "16k x2": [16384] * 2}
    for h, d in ((16, 128), (32, 64)):
        for pack, lens in packs.items():
            for name, mask in {
                "causal": CAUSAL,
                "full": FULL,
                "window 1024": (1024, 0, 0, 0),
                "chunk 8192": (NONE, 0, 8192, 0),
            }.items():
                if "1" in name and pack != "16k x2":
                    continue
                if quick and (name, pack) not in (
                    ("causal", "tail"),
                    ("causal", "16k x2"),
                    ("full", "2k x16"),
                ):
                    continue
                bench_case(libraries, varlen_attn, f"d{d} h{h} {pack} {name}", lens, mask, h, d)
    for dims, h, kv in (
        ((128, 128), 64, 8),
        ((96, 96), 16, 16),
        ((192, 128), 16, 16),
        ((192, 192), 8, 8),
        ((256, 256), 8, 8),
    ):
        name = f"d{dims} h{h}/{kv} tail causal"
        bench_case(libraries, None, name, packs["tail"], CAUSAL, h, dims[0], kv, dims[1])


def bench_case(libraries, peer, name, lens, mask, h, d, kv=None, d_v=None, repeats=11) -> None:
    kv, d_v = kv or h, d_v or d
    total = sum(lens)
    torch.manual_seed(0)
    q, k, v, dout = (
        torch.randn(total, heads, dim, device="cuda", dtype=torch.bfloat16)
        for heads, dim in ((h, d), (kv, d), (kv, d_v), (h, d_v))
    )
    shape, scale = shape_of(h, kv, (d, d_v), torch.bfloat16), 1 / math.sqrt(d)
    out = torch.zeros(total, h, d_v, device="cuda")
    lse = torch.full((total, h), -math.inf, device="cuda")
    dq, dk, dv = (torch.zeros(*x.shape, device="cuda") for x in (q, k, v))
    cu = cumulative(lens)
    segments = [(i, 0, 1, int(cu[i]), n) for i, n in enumerate(lens)]
    forwards, backwards = [], []
    if peer is not None and not mask[2]:
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        on_device = torch.tensor(cu, device="cuda")
        if "window_size" in inspect.signature(peer).parameters:
            how = {"window_size": (mask[0], mask[1])}
        else:
            how = {"is_causal": mask[1] == 0}

        def peer_forward():
            return peer(*leaves, on_device, on_device, max(lens), max(lens), **how)

        kept = peer_forward()
        forwards.append(peer_forward)
        backwards.append(lambda: torch.autograd.grad(kept, leaves, dout, retain_graph=True))
    else:
        forwards.append(lambda: None), backwards.append(lambda: None)
    for library in libraries:
        lists = library.lists(shape, segments, segments, lens, lens, mask)

        def forward(library=library, lists=lists):
            lse.fill_(-math.inf)
            library.forward(lists, shape, scale, [q, k, v, out], lse)

        forward()
        delta = (dout.float() * out).sum(-1)

        def backward(library=library, lists=lists, delta=delta, fixed=False):
            library.backward(lists, shape, scale, [q, k, v, dout, dq, dk, dv], lse, delta, fixed)

        forwards.append(forward), backwards.append(backward)
        if library is libraries[0]:
            backwards.append(lambda run=backward: run(fixed=True))
            backwards.append(lambda run=backward: (dq.zero_(), dk.zero_(), dv.zero_(), run()))
    work = pairs(mask, lens) * h * 2 * (d + d_v) / 1e9
    speed = [
        [factor * work / t for t in median_times(runs, repeats)]
        for runs, factor in ((forwards, 1), (backwards, 2.5))
    ]
    has_peer = peer is not None and not mask[2]
    for label, rates in zip(("fwd", "bwd"), speed, strict=True):
        peer_rate = f"FA2 {rates[0]:4.0f}" if has_peer else "FA2   - "
        ratio = "({:.2f})" if has_peer else ""
        ours = " ".join(f"{r:4.0f} {ratio.format(r / rates[0])}" for r in rates[1:])
        print(f"{name:32s} {label} {peer_rate} | {ours}", flush=True)


def main() -> int:
    verb, libraries = sys.argv[1], [Library(path) for path in sys.argv[2:]]
    if verb == "profile":
        for d in (128, 64):
            bench_case(libraries, None, f"d{d}", [16384], CAUSAL, 8, d, repeats=1)
        return 0
    print(torch.cuda.get_device_name())
    bench(libraries, verb == "quick")
    return 0


if __name__ == "__main__":
    sys.exit(main())
