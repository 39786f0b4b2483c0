"""Checks the mma family on a GPU against a float64 reference, NaN in whatever is not data.

    mma_check.py check LIBRARY    every mask, partition and head dimension
    mma_check.py small LIBRARY    a reduced check, for compute-sanitizer
    mma_check.py race  LIBRARY    the same launches alone, for its racecheck

A row's error may be twice that of a plain computation in the same element type. Where plain
arithmetic hits a row by luck or exactly (one visible key: dq is zero by cancellation), what
rounding each weight and score gradient once may do, and float32's own share (2^-18 of the tensor's
largest value), count instead.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
import torch
from mma_library import BOTTOM_RIGHT, CAUSAL, ELEMENTS, FULL, NONE, Library, shape_of


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
    ring: bool = False  # one launch per rank's keys, merged, not one over all

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
    return (
        out.detach(),
        torch.cat(lses).detach(),
        *grads,
        [torch.cat(sizes[0]), torch.cat(sizes[1]), size_k, size_v],
    )


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
        1:-1, :heads, :dim
    ]


def joined(parts):
    return [x for part in parts for x in part]


class Problem:
    """Random operands of a case, spread over rank-ordered buffers that hold NaN everywhere else."""

    def __init__(self, library: Library, case: Case) -> None:
        torch.manual_seed(0)
        self.library, self.case = library, case
        d_qk, kind = case.dims[0], case.dtype
        q_segments, self.rows_q, self.of_q = gathered(case, case.lens_q)
        k_segments, self.rows_k, self.of_k = gathered(case, case.lens_k)

        def random(lens, heads, dim):
            return torch.randn(sum(lens), heads, dim, device="cuda").to(kind)

        self.q, self.dout = (random(case.lens_q, case.heads, dim) for dim in case.dims)
        self.k, self.v = (random(case.lens_k, case.kv_heads, dim) for dim in case.dims)
        self.operands = [
            self.spread(self.q, True),
            self.spread(self.k, False),
            self.spread(self.v, False),
        ]
        self.shape, self.scale = shape_of(case.heads, case.kv_heads, case.dims, kind), d_qk**-0.5
        launches = [(q_segments[r], [s]) for r in range(case.ranks) for s in k_segments]
        if not case.ring:
            launches = [(joined(q_segments), k_segments)]
        self.lists = [
            library.lists(self.shape, qs, joined(ks), case.lens_q, case.lens_k, case.mask)
            for qs, ks in launches
        ]

    def spread(self, packed: torch.Tensor, is_query: bool) -> torch.Tensor:
        of, rows = (self.of_q, self.rows_q) if is_query else (self.of_k, self.rows_k)
        whole = poisoned(rows, packed.shape[1], packed.shape[2], packed.dtype)
        whole[of] = packed
        return whole

    def forward(self) -> tuple[torch.Tensor, torch.Tensor]:
        out = poisoned(self.rows_q, self.case.heads, self.case.dims[1], torch.float32)
        lse = torch.full((self.rows_q, self.case.heads), math.nan, device="cuda")
        lse[self.of_q] = -math.inf  # "saw nothing": what out holds there is not read
        for each in self.lists:
            self.library.forward(each, self.shape, self.scale, [*self.operands, out], lse)
        untouched(out, self.of_q)
        return out[self.of_q], lse[self.of_q]

    def backward(self, out, lse, deterministic: bool) -> list[torch.Tensor]:
        delta = (self.dout.float() * out).sum(-1)
        row_lse, row_delta = (
            self.spread(x[..., None], True)[..., 0].contiguous() for x in (lse, delta)
        )
        grads = [
            self.spread(torch.zeros(x.shape, device="cuda"), x is self.q)
            for x in (self.q, self.k, self.v)
        ]
        operands = [*self.operands, self.spread(self.dout, True), *grads]
        for each in self.lists:
            self.library.backward(
                each, self.shape, self.scale, operands, row_lse, row_delta, deterministic
            )
        for grad, of in zip(grads, (self.of_q, self.of_k, self.of_k), strict=True):
            untouched(grad, of)
        return [grads[0][self.of_q], grads[1][self.of_k], grads[2][self.of_k]]


def untouched(whole: torch.Tensor, of: torch.Tensor) -> None:
    rest = torch.ones(whole._base.shape, dtype=torch.bool, device="cuda")
    inside = rest[1:-1, : whole.shape[1], : whole.shape[2]]
    inside[of] = False
    assert whole._base[rest].isnan().all(), "wrote outside the rows of the items"


def check(library: Library, case: Case) -> dict[str, tuple[float, float]]:
    problem = Problem(library, case)
    operands = (problem.q, problem.k, problem.v, problem.dout)
    *exact, sizes = dense(case, *operands, torch.float64)
    *plain, _ = dense(case, *operands, case.dtype)
    out, lse = problem.forward()
    blind = exact[1].isinf()
    assert torch.equal(lse.isinf(), blind), "rows that saw nothing differ"
    out = torch.where(blind[..., None], 0, out)
    again, _ = problem.forward()
    assert torch.equal(again[~blind], out[~blind]), "forward differs from run to run"
    error = (lse.double() - exact[1])[~blind].abs()
    result = {"lse": (error.max().item() if error.numel() else 0.0,) * 2}
    assert result["lse"][0] < 2e-4, f"lse off by {result['lse'][0]}"
    result["out"] = excess(out, exact[0], plain[0], sizes[0], case.dtype)
    runs = [problem.backward(out, lse, deterministic) for deterministic in (False, True, True)]
    for i, name in enumerate(("dq", "dk", "dv")):
        fast, fixed, again = (run[i] for run in runs)
        assert torch.equal(fixed, again), f"deterministic {name} differs from run to run"
        compared = exact[2 + i], plain[2 + i], sizes[1 + i], case.dtype
        result[name], result[name + "!"] = excess(fast, *compared), excess(fixed, *compared)
    torch.cuda.synchronize()
    return result


def check_far_rows(library: Library) -> None:
    """Rows 2^24 elements apart, beyond 2^31 in all, must give the very same bits as packed ones."""
    case = Case([150], [150], CAUSAL, 2, 1)
    problem = Problem(library, case)
    shape, scale = problem.shape, problem.scale
    lists = library.lists(shape, [(0, 0, 1, 0, 150)], [(0, 0, 1, 0, 150)], [150], [150], CAUSAL)

    def far(packed):
        buffer = torch.empty(150 * 2**24, dtype=packed.dtype, device="cuda")
        whole = buffer.as_strided(packed.shape, (2**24, packed.shape[2], 1))
        return whole.copy_(packed)

    def run(place):
        operands = [place(x) for x in (problem.q, problem.k, problem.v)]
        out = place(torch.zeros(150, 2, 128, device="cuda"))
        lse = torch.full((150, 2), -math.inf, device="cuda")
        library.forward(lists, shape, scale, [*operands, out], lse)
        delta = (problem.dout.float() * out).sum(-1)
        grads = [place(torch.zeros(x.shape, device="cuda")) for x in operands]
        library.backward(
            lists, shape, scale, [*operands, place(problem.dout), *grads], lse, delta, True
        )
        return [x.contiguous() for x in (out, *grads)]

    near_and_far = zip(run(torch.clone), run(far), strict=True)
    assert all(torch.equal(near, away) for near, away in near_and_far), "far rows differ"


def launch_only(library: Library, case: Case) -> None:
    """Forward and both backwards on arbitrary data, no kernel of anybody else's between them."""
    shape = shape_of(case.heads, case.kv_heads, case.dims, case.dtype)
    q_segments, rows_q, _ = gathered(case, case.lens_q)
    k_segments, rows_k, _ = gathered(case, case.lens_k)
    lists = library.lists(
        shape, joined(q_segments), joined(k_segments), case.lens_q, case.lens_k, case.mask
    )

    def random(rows, heads, dim, dtype=case.dtype):
        return torch.randn(rows, heads, dim).to(dtype).cuda()

    (d_qk, d_v), h, kv = case.dims, case.heads, case.kv_heads
    q, k, v, dout = (
        random(rows_q, h, d_qk),
        random(rows_k, kv, d_qk),
        random(rows_k, kv, d_v),
        random(rows_q, h, d_v),
    )
    out, lse, delta = (random(rows_q, h, dim, torch.float32) for dim in (d_v, 1, 1))
    grads = [random(*x.shape, torch.float32) for x in (q, k, v)]
    library.forward(lists, shape, 0.1, [q, k, v, out], lse)
    for deterministic in (False, True):
        library.backward(lists, shape, 0.1, [q, k, v, dout, *grads], lse, delta, deterministic)
    torch.cuda.synchronize()


EDGES = [0, 1, 63, 64, 65, 127, 128, 129, 300]
MASKS = [
    FULL,
    CAUSAL,
    (100, 0, 0, 0),
    (30, 17, 0, 0),
    (NONE, NONE, 96, 0),
    (NONE, 0, 100, 0),
    (50, 0, 128, 0),
    BOTTOM_RIGHT,
    (40, 20, 0, 1),
]


def cases() -> list[Case]:
    tail = [int(x) for x in np.random.default_rng(1).lognormal(4.6, 1.2, 24)]
    result = [Case(EDGES, EDGES, mask, 2, 1) for mask in MASKS]
    for dims in (
        (64, 64),
        (96, 96),
        (192, 192),
        (256, 256),
        (192, 128),
        (80, 80),
        (40, 24),
        (128, 64),
        (64, 192),
        (8, 8),
        (160, 248),
    ):
        for dtype in ELEMENTS:
            result.append(Case(EDGES, EDGES, CAUSAL, 2, 1, dims, dtype))
        result.append(Case([200, 333], [350, 100], (70, 9, 0, 1), 3, 3, dims))
        result.append(Case(tail, tail, CAUSAL, 4, 2, dims, partition="zigzag", ranks=2))
    for mask in MASKS:
        for partition, ranks in (("zigzag", 4), ("striped", 3)):
            for ring in (False, True):
                result.append(
                    Case(EDGES, EDGES, mask, 4, 2, (64, 64), torch.bfloat16, partition, ranks, ring)
                )
                result.append(
                    Case(tail, tail, mask, 2, 2, (128, 128), torch.float16, partition, ranks, ring)
                )
    result.append(Case([5, 130, 700], [400, 0, 65], CAUSAL, 6, 2))
    result.append(Case([5, 130, 700], [400, 0, 65], BOTTOM_RIGHT, 6, 2, (64, 64)))
    result.append(Case([2000, 3000], [2000, 3000], CAUSAL, 4, 1))
    return result


def small_cases() -> list[Case]:
    pairs = ((64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256))
    few, window = [0, 1, 65, 200], (40, 0, 64, 0)
    return [Case(few, few, CAUSAL, 2, 1, dims) for dims in pairs] + [
        Case([130, 70], [130, 70], window, 2, 1, dims, torch.float16, "zigzag", 2) for dims in pairs
    ]


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
        bad = {name: worse for name, worse in result.items() if name != "lse" and worse[0] > 2}
        if bad:
            print(f"FAIL {case}: {bad}")
            failed += 1
        for name, ratio in result.items():
            before = worst.get(name, (0, 0))
            worst[name] = max(before[0], ratio[0]), max(before[1], ratio[1])
    print(f"{len(all_cases)} cases, {failed} failed; worst (row, tensor) error over plain one's:")
    print({name: tuple(f"{x:.3g}" for x in ratio) for name, ratio in worst.items()})
    return failed


def main() -> int:
    verb, library = sys.argv[1], Library(sys.argv[2])
    if verb == "race":
        for case in small_cases():
            launch_only(library, case)
        return 0
    if verb == "check":
        check_far_rows(library)
    return run_checks(library, cases() if verb == "check" else small_cases())


if __name__ == "__main__":
    sys.exit(main())
