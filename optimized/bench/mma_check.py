"""Checks the mma family on a GPU against a float64 reference, then times it against FlashAttention 2.

    mma_check.py check  LIBRARY        every mask, partition, head dimension; NaN in whatever is not data
    mma_check.py small  LIBRARY        a reduced check, for compute-sanitizer
    mma_check.py race   LIBRARY        the same launches alone, for its racecheck
    mma_check.py profile LIBRARY       one forward and backward each, for a profiler
    mma_check.py bench  LIBRARY...     forward and backward, alternately with torch's varlen_attn

A row's error may be twice that of a plain computation in the same element type. Where plain arithmetic
hits a row by luck or exactly (one visible key: dq is zero by cancellation), what rounding each weight and
score gradient once may do, and float32's own share (2^-18 of the tensor's largest value), count instead.
"""

from __future__ import annotations

import ctypes
import inspect
import math
import sys
from dataclasses import dataclass, field

import numpy as np
import torch

NONE = -1
FULL, CAUSAL = (NONE, NONE, 0, 0), (NONE, 0, 0, 0)
BOTTOM_RIGHT = (NONE, 0, 0, 1)
ELEMENTS = {torch.float16: 1, torch.bfloat16: 2}


class Matrix(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("row", ctypes.c_int64), ("head", ctypes.c_int64))

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Matrix:
        return cls(tensor.data_ptr(), tensor.stride(0), tensor.stride(1))


@dataclass
class Case:
    lens_q: list[int]
    lens_k: list[int]
    mask: tuple[int, int, int, int] = CAUSAL
    heads: int = 2
    kv_heads: int = 1
    dims: tuple[int, int] = (128, 128)
    dtype: torch.dtype = torch.bfloat16
    partition: str = "whole"
    ranks: int = 1
    ring: bool = False  # one launch per rank's keys, merged, instead of one over the gathered buffer
    name: str = field(default="", compare=False)

    def __str__(self) -> str:
        lens = self.lens_q if len(self.lens_q) < 10 else f"{len(self.lens_q)} sequences"
        how = f"{self.partition} {self.ranks}{' ring' if self.ring else ''}"
        kind = str(self.dtype)[6:]
        return f"{how} mask {self.mask} h {self.heads}/{self.kv_heads} d {self.dims} {kind} {lens}"


def shares(case: Case, length: int, rank: int) -> list[tuple[int, int, int]]:
    """(pos, stride, len) of what a rank holds of one sequence, padding included."""
    n = case.ranks
    padded = -(-length // (2 * n)) * 2 * n + (0 if case.partition == "whole" else 2 * n)
    if case.partition == "whole":
        return [(0, 1, length + 3)]
    if case.partition == "zigzag":
        part = padded // (2 * n)
        return [(rank * part, 1, part), ((2 * n - 1 - rank) * part, 1, part)]
    return [(rank, n, padded // n)]


def gathered(case: Case, lens: list[int]) -> tuple[list[list[tuple[int, ...]]], int, torch.Tensor]:
    """Segments of every rank in one buffer in rank order, its rows, and the row of each token."""
    segments, row, token_row = [], 0, {}
    for rank in range(case.ranks):
        mine = []
        for seq, length in enumerate(lens):
            for pos, stride, count in shares(case, length, rank):
                mine.append((seq, pos, stride, row, count))
                for i in range(count):
                    if pos + i * stride < length:
                        token_row[seq, pos + i * stride] = row + i
                row += count
        segments.append(mine)
    rows = [token_row[seq, p] for seq, length in enumerate(lens) for p in range(length)]
    return segments, row, torch.tensor(rows, dtype=torch.int64, device="cuda")


def cumulative(lens: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lens)]).astype(np.int32)


class Library:
    def __init__(self, path: str) -> None:
        self.path = path
        self.library = ctypes.CDLL(path)
        self.library.ringside_lists.restype = ctypes.c_void_p

    def lists(self, shape, q_segments, k_segments, lens_q, lens_k, mask):
        q, k = (np.array(s, np.int32).reshape(-1, 5) for s in (q_segments, k_segments))
        cu_q, cu_k = cumulative(lens_q), cumulative(lens_k)
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (q, k, cu_q, cu_k)]
        mask_ints = (ctypes.c_int * 4)(*mask)
        return ctypes.c_void_p(self.library.ringside_lists(
            shape, pointers[0], len(q), pointers[1], len(k), pointers[2], pointers[3], len(lens_q),
            mask_ints))

    def forward(self, lists, shape, scale, matrices, lse):
        operands = (Matrix * 4)(*map(Matrix.of, matrices))
        status = self.library.ringside_forward(
            lists, shape, ctypes.c_float(scale), operands, ctypes.c_void_p(lse.data_ptr()), stream())
        assert status == 0, f"forward: CUDA error {status}"

    def backward(self, lists, shape, scale, matrices, lse, delta, deterministic):
        operands = (Matrix * 7)(*map(Matrix.of, matrices))
        status = self.library.ringside_backward(
            lists, shape, ctypes.c_float(scale), operands, ctypes.c_void_p(lse.data_ptr()),
            ctypes.c_void_p(delta.data_ptr()), int(deterministic), stream())
        assert status == 0, f"backward: CUDA error {status}"


def stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def shape_of(heads: int, kv_heads: int, dims: tuple[int, int], dtype: torch.dtype):
    return (ctypes.c_int * 8)(heads, kv_heads, 0, 0, heads // kv_heads, *dims, ELEMENTS[dtype])


def allowed(mask, len_q: int, len_k: int) -> torch.Tensor:
    left, right, chunk, align = mask
    p = torch.arange(len_q, device="cuda")[:, None] + (len_k - len_q if align else 0)
    k = torch.arange(len_k, device="cuda")[None, :]
    seen = torch.ones(len_q, len_k, dtype=torch.bool, device="cuda")
    if left != NONE:
        seen &= k >= p - left
    if right != NONE:
        seen &= k <= p + right
    if chunk:
        seen &= p.div(chunk, rounding_mode="floor") == k.div(chunk, rounding_mode="floor")
    return seen


def dense(case: Case, q, k, v, dout, kind: torch.dtype):
    """out, lse, dq, dk, dv of the packed tokens, each sequence by itself, all arithmetic in `kind`.

    Then what rounding works on, for out, dq, dk, dv: the same sums over absolute values.
    """
    q, k, v = (x.to(kind).requires_grad_() for x in (q, k, v))
    dout, scale = dout.to(kind), 1 / math.sqrt(case.dims[0])
    outs, lses, sizes, begin_q, begin_k = [], [], [[], [], []], 0, 0
    size_k, size_v = torch.zeros_like(k), torch.zeros_like(v)
    group = case.heads // case.kv_heads
    for len_q, len_k in zip(case.lens_q, case.lens_k, strict=True):
        rows_q, rows_k = slice(begin_q, begin_q + len_q), slice(begin_k, begin_k + len_k)
        qs, douts = q[rows_q].transpose(0, 1), dout[rows_q].transpose(0, 1)
        ks, vs = (x[rows_k].transpose(0, 1).repeat_interleave(group, 0) for x in (k, v))
        begin_q, begin_k = begin_q + len_q, begin_k + len_k
        seen = allowed(case.mask, len_q, len_k)
        some = seen.any(-1)
        scores = (qs @ ks.transpose(1, 2)) * scale
        scores = scores.masked_fill(~(seen | ~some[:, None]), -math.inf)
        weights = torch.softmax(scores, -1) * some[:, None]
        outs.append((weights @ vs).transpose(0, 1))
        lse = torch.logsumexp(scores.double(), -1) if len_k else scores.new_zeros(scores.shape[:2])
        lses.append(lse.masked_fill(~some, -math.inf).transpose(0, 1))
        with torch.no_grad():
            grads = douts @ vs.transpose(1, 2)
            # delta = dout . out carries the rounding of the weights that made out.
            delta, delta_size = ((weights * x).sum(-1, keepdim=True) for x in (grads, grads.abs()))
            ds = weights * ((grads - delta).abs() + delta_size) * scale
            sizes[0].append((weights @ vs.abs()).transpose(0, 1))
            sizes[1].append((ds @ ks.abs()).transpose(0, 1))
            for size, by, of in ((size_k, ds, qs), (size_v, weights, douts)):
                each = (by.transpose(1, 2) @ of.abs()).unflatten(0, (case.kv_heads, group))
                size[rows_k] = each.sum(1).transpose(0, 1)
    out = torch.cat(outs)
    grads = torch.autograd.grad(out, (q, k, v), dout, allow_unused=True)
    return (out.detach(), torch.cat(lses).detach(), *grads,
            [torch.cat(sizes[0]), torch.cat(sizes[1]), size_k, size_v])


def excess(got, exact, plain, size, kind: torch.dtype) -> tuple[float, float]:
    """Worst row and whole tensor: error over that of the plain computation."""
    if got.numel() == 0:
        return 0.0, 0.0
    error = (got.double() - exact.double()).abs().amax(-1)
    other = (plain.double() - exact.double()).abs().amax(-1)
    floor = size.double().abs().amax(-1) * torch.finfo(kind).eps / 2
    floor = floor + exact.double().abs().amax() * 2**-18 + 1e-7
    error = torch.where(error.isnan(), torch.inf, error)
    row = (error / torch.maximum(other, floor)).max().item()
    return row, (error.max() / torch.maximum(other.max(), floor.max())).item()


def poisoned(rows: int, heads: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((rows + 2, heads + 1, dim + 8), math.nan, dtype=dtype, device="cuda")[
        1:-1, :heads, :dim]


def check(library: Library, case: Case) -> dict[str, tuple[float, float]]:
    torch.manual_seed(0)
    (d_qk, d_v), kind = case.dims, case.dtype
    q_segments, rows_q, of_q = gathered(case, case.lens_q)
    k_segments, rows_k, of_k = gathered(case, case.lens_k)
    q = torch.randn(sum(case.lens_q), case.heads, d_qk, device="cuda").to(kind)
    k = torch.randn(sum(case.lens_k), case.kv_heads, d_qk, device="cuda").to(kind)
    v = torch.randn(sum(case.lens_k), case.kv_heads, d_v, device="cuda").to(kind)
    dout = torch.randn(sum(case.lens_q), case.heads, d_v, device="cuda").to(kind)
    *exact, sizes = dense(case, q, k, v, dout, torch.float64)
    *plain, _ = dense(case, q, k, v, dout, kind)

    def spread(packed, of, rows):
        whole = poisoned(rows, packed.shape[1], packed.shape[2], kind)
        whole[of] = packed
        return whole

    operands = [spread(q, of_q, rows_q), spread(k, of_k, rows_k), spread(v, of_k, rows_k)]
    shape, scale = shape_of(case.heads, case.kv_heads, case.dims, kind), 1 / math.sqrt(d_qk)
    launches = [(q_segments[r], [s]) for r in range(case.ranks) for s in k_segments]
    if not case.ring:
        launches = [(sum(q_segments, []), k_segments)]
    lists = [library.lists(shape, qs, sum(ks, []), case.lens_q, case.lens_k, case.mask)
             for qs, ks in launches]

    def forward():
        out = poisoned(rows_q, case.heads, d_v, torch.float32)
        lse = torch.full((rows_q, case.heads), math.nan, device="cuda")
        lse[of_q] = -math.inf  # "saw nothing": what out holds there is not read
        for each in lists:
            library.forward(each, shape, scale, [*operands, out], lse)
        return out, lse

    def backward(out, lse, deterministic):
        delta = torch.full_like(lse, math.nan)
        delta[of_q] = (dout.float() * out[of_q]).sum(-1)
        grads = [poisoned(rows_q, case.heads, d_qk, torch.float32),
                 poisoned(rows_k, case.kv_heads, d_qk, torch.float32),
                 poisoned(rows_k, case.kv_heads, d_v, torch.float32)]
        for grad, of in zip(grads, (of_q, of_k, of_k), strict=True):
            grad[of] = 0
        for each in lists:
            library.backward(each, shape, scale, [*operands, spread(dout, of_q, rows_q), *grads], lse,
                             delta, deterministic)
        for grad, of in zip(grads, (of_q, of_k, of_k), strict=True):
            untouched(grad, of)
        return grads

    def untouched(whole, of):
        rest = torch.ones(whole._base.shape, dtype=torch.bool, device="cuda")
        inside = rest[1:-1, :whole.shape[1], :whole.shape[2]]
        inside[of] = False
        assert whole._base[rest].isnan().all(), "wrote outside the rows of the items"

    out, lse = forward()
    untouched(out, of_q)
    blind = exact[1].isinf()
    assert torch.equal(lse[of_q].isinf(), blind), "rows that saw nothing differ"
    out[of_q] = torch.where(blind[..., None], 0, out[of_q])
    again, _ = forward()
    assert torch.equal(again[of_q][~blind], out[of_q][~blind]), "forward differs from run to run"
    error = (lse[of_q].double() - exact[1])[~blind].abs()
    result = {"lse": (error.max().item() if error.numel() else 0.0,) * 2}
    assert result["lse"][0] < 2e-4, f"lse off by {result['lse'][0]}"
    result["out"] = excess(out[of_q], exact[0], plain[0], sizes[0], kind)
    grads = backward(out, lse, False)
    fixed = backward(out, lse, True)
    fixed_again = backward(out, lse, True)
    names = ("dq", "dk", "dv")
    for name, of, got, one, two, want, rough, size in zip(
            names, (of_q, of_k, of_k), grads, fixed, fixed_again, exact[2:], plain[2:], sizes[1:],
            strict=True):
        assert torch.equal(one[of], two[of]), f"deterministic {name} differs from run to run"
        result[name] = excess(got[of], want, rough, size, kind)
        result[name + "!"] = excess(one[of], want, rough, size, kind)
    torch.cuda.synchronize()
    return result


def launch_only(library: Library, case: Case) -> None:
    """Forward and both backwards on arbitrary data, no kernel of anybody else's between them."""
    shape = shape_of(case.heads, case.kv_heads, case.dims, case.dtype)
    q_segments, rows_q, _ = gathered(case, case.lens_q)
    k_segments, rows_k, _ = gathered(case, case.lens_k)
    lists = library.lists(shape, sum(q_segments, []), sum(k_segments, []), case.lens_q, case.lens_k,
                          case.mask)

    def random(rows, heads, dim, dtype=case.dtype):
        return torch.randn(rows, heads, dim).to(dtype).cuda()

    (d_qk, d_v), h, kv = case.dims, case.heads, case.kv_heads
    q, k, v, dout = (random(rows_q, h, d_qk), random(rows_k, kv, d_qk), random(rows_k, kv, d_v),
                     random(rows_q, h, d_v))
    out, lse, delta = (random(rows_q, h, dim, torch.float32) for dim in (d_v, 1, 1))
    grads = [random(*x.shape, torch.float32) for x in (q, k, v)]
    library.forward(lists, shape, 0.1, [q, k, v, out], lse)
    for deterministic in (False, True):
        library.backward(lists, shape, 0.1, [q, k, v, dout, *grads], lse, delta, deterministic)
    torch.cuda.synchronize()


EDGES = [0, 1, 63, 64, 65, 127, 128, 129, 300]
MASKS = [FULL, CAUSAL, (100, 0, 0, 0), (30, 17, 0, 0), (NONE, NONE, 96, 0), (NONE, 0, 100, 0),
         (50, 0, 128, 0), BOTTOM_RIGHT, (40, 20, 0, 1)]


def cases() -> list[Case]:
    tail = [int(x) for x in np.random.default_rng(1).lognormal(4.6, 1.2, 24)]
    result = [Case(EDGES, EDGES, mask, 2, 1) for mask in MASKS]
    for dims in ((64, 64), (96, 96), (192, 192), (256, 256), (192, 128), (80, 80), (40, 24),
                 (128, 64), (64, 192), (8, 8), (160, 248)):
        for dtype in ELEMENTS:
            result.append(Case(EDGES, EDGES, CAUSAL, 2, 1, dims, dtype))
        result.append(Case([200, 333], [350, 100], (70, 9, 0, 1), 3, 3, dims))
        result.append(Case(tail, tail, CAUSAL, 4, 2, dims, partition="zigzag", ranks=2))
    for mask in MASKS:
        for partition, ranks in (("zigzag", 4), ("striped", 3)):
            for ring in (False, True):
                result.append(Case(EDGES, EDGES, mask, 4, 2, (64, 64), torch.bfloat16, partition,
                                   ranks, ring))
                result.append(Case(tail, tail, mask, 2, 2, (128, 128), torch.float16, partition,
                                   ranks, ring))
    result.append(Case([5, 130, 700], [400, 0, 65], CAUSAL, 6, 2))
    result.append(Case([5, 130, 700], [400, 0, 65], BOTTOM_RIGHT, 6, 2, (64, 64)))
    result.append(Case([2000, 3000], [2000, 3000], CAUSAL, 4, 1))
    return result


def small_cases() -> list[Case]:
    pairs = ((64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256))
    result = [Case([0, 1, 65, 200], [0, 1, 65, 200], CAUSAL, 2, 1, dims) for dims in pairs]
    return result + [Case([130, 70], [130, 70], (40, 0, 64, 0), 2, 1, dims, torch.float16, "zigzag", 2)
                     for dims in pairs]


def run_checks(library: Library, all_cases: list[Case]) -> int:
    worst: dict[str, tuple[float, float]] = {}
    failed = 0
    for case in all_cases:
        try:
            result = check(library, case)
        except AssertionError as error:
            print(f"FAIL {case}: {error}")
            failed += 1
            continue
        bad = {name: ratio for name, ratio in result.items() if name != "lse" and not ratio[0] <= 2}
        if bad:
            print(f"FAIL {case}: {bad}")
            failed += 1
        for name, ratio in result.items():
            worst[name] = tuple(max(a, b) for a, b in zip(worst.get(name, (0, 0)), ratio, strict=True))
    print(f"{len(all_cases)} cases, {failed} failed; worst (row, tensor) error over the plain one's:")
    print({name: tuple(f"{x:.3g}" for x in ratio) for name, ratio in worst.items()})
    return failed


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
            lo, hi = np.maximum(lo, p // mask[2] * mask[2]), np.minimum(
                hi, (p // mask[2] + 1) * mask[2])
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
            for name, mask in {"causal": CAUSAL, "full": FULL, "window 1024": (1024, 0, 0, 0),
                               "chunk 8192": (NONE, 0, 8192, 0)}.items():
                if "1" in name and pack != "16k x2":
                    continue
                if quick and (name, pack) not in (("causal", "tail"), ("causal", "16k x2"),
                                                  ("full", "2k x16")):
                    continue
                bench_case(libraries, varlen_attn, f"d{d} h{h} {pack} {name}", lens, mask, h, d)
    for dims, h, kv in (((128, 128), 64, 8), ((96, 96), 16, 16), ((192, 128), 16, 16),
                        ((192, 192), 8, 8), ((256, 256), 8, 8)):
        bench_case(libraries, None, f"d{dims} h{h}/{kv} tail causal", packs["tail"], CAUSAL, h, dims[0],
                   kv, dims[1])


def bench_case(libraries, peer, name, lens, mask, h, d, kv=None, d_v=None, repeats=11) -> None:
    kv, d_v = kv or h, d_v or d
    total = sum(lens)
    torch.manual_seed(0)
    q, k, v, dout = (torch.randn(total, heads, dim, device="cuda", dtype=torch.bfloat16)
                     for heads, dim in ((h, d), (kv, d), (kv, d_v), (h, d_v)))
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
    speed = [[factor * work / t for t in median_times(runs, repeats)]
             for runs, factor in ((forwards, 1), (backwards, 2.5))]
    has_peer = peer is not None and not mask[2]
    for label, rates in zip(("fwd", "bwd"), speed, strict=True):
        peer_rate = f"FA2 {rates[0]:4.0f}" if has_peer else "FA2   - "
        ours = " ".join(f"{r:4.0f}" + (f" ({r / rates[0]:.2f})" if has_peer else "") for r in rates[1:])
        print(f"{name:32s} {label} {peer_rate} | {ours}", flush=True)


def main() -> int:
    verb, libraries = sys.argv[1], [Library(path) for path in sys.argv[2:]]
    if verb in ("check", "small"):
        return run_checks(libraries[0], cases() if verb == "check" else small_cases())
    if verb == "race":
        for case in small_cases():
            launch_only(libraries[0], case)
        return 0
    if verb == "profile":
        for d in (128, 64):
            bench_case(libraries, None, f"d{d}", [16384], CAUSAL, 8, d, repeats=1)
        return 0
    print(torch.cuda.get_device_name(), "TFLOP/s of visible pairs; bwd: fast, deterministic, "
          "fast with zeroing, then other libraries fast")
    bench(libraries, verb == "quick")
    return 0


if __name__ == "__main__":
    sys.exit(main())
