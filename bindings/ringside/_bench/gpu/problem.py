"""The tensors of a case on a GPU, and what float64 says about a sample of the results.

A sample is all rows of some documents and of the query heads of one kv head each. Rows are judged
one by one. Kernels for 16-bit types round each weight, each score gradient and each result to the
type; these errors are independent of each other, so the length of a row's error is held to twice

    unit * (root of the sum of squares of what was rounded and summed + length of the row)

Every mask of the benchmark shows a query at least itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from ringside._bench.gpu.cases import Workload, WrongResult

Tensors = dict[str, torch.Tensor]

# Of the last place; float32 sums some 2^12 products, whose errors walk 2^6 times as far.
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-18}
CHUNK = 1_024  # queries whose scores exist at a time


@dataclass(frozen=True)
class Sample:
    """One document and kv head; out and dq are [rows, heads, dim], dk and dv [rows, 1, dim]."""

    rows: slice
    heads: slice
    kv_head: int
    exact: Tensors
    noise: Tensors  # [rows, heads]: roots of sums of squares


class SampledOperands:
    """Random normal q, k, v, dout of a case, and the samples."""

    def __init__(self, case: Workload, device: str = "cuda") -> None:
        self.case = case
        rows, (dim_qk, dim_v) = sum(case.lengths), case.dims
        generator = torch.Generator(device).manual_seed(0)

        def random(heads: int, dim: int) -> torch.Tensor:
            x = torch.randn(rows, heads, dim, generator=generator, device=device)
            return x.to(getattr(torch, case.dtype))

        q, self.dout = random(case.num_heads, dim_qk), random(case.num_heads, dim_v)
        k, v = random(case.num_kv_heads, dim_qk), random(case.num_kv_heads, dim_v)
        self.leaves = [x.requires_grad_() for x in (q, k, v)]
        self.cu_seqlens = np.cumsum([0, *case.lengths]).astype(np.int32)
        self.samples = list(self._samples())

    def _samples(self) -> Iterator[Sample]:
        lengths, rng = np.array(self.case.lengths), np.random.default_rng(0)
        chosen = {int(lengths.argmax()), int(lengths.argmin()), int(rng.integers(len(lengths)))}
        for document in sorted(chosen):
            yield self._sample(document, int(rng.integers(self.case.num_kv_heads)))

    def _sample(self, document: int, kv_head: int) -> Sample:
        begin, end = (int(self.cu_seqlens[document + i]) for i in range(2))
        group = self.case.num_heads // self.case.num_kv_heads
        rows, heads = slice(begin, end), slice(kv_head * group, (kv_head + 1) * group)
        q, k, v, dout = (x.detach()[rows].double() for x in (*self.leaves, self.dout))
        scale = self.case.dims[0] ** -0.5
        visible = [torch.tensor(x, device=q.device) for x in self.case.visible(end - begin)]
        each = [
            head_in_float64(q[:, h], k[:, kv_head], v[:, kv_head], dout[:, h], visible, scale)
            for h in range(heads.start, heads.stop)
        ]
        exact, noise = {}, {}
        for name in ("out", "dq", "dk", "dv"):
            values = torch.stack([x[name] for x, _ in each], 1)
            squares = torch.stack([x[name] for _, x in each], 1)
            if name in ("dk", "dv"):
                values, squares = values.sum(1, keepdim=True), squares.sum(1, keepdim=True)
            exact[name], noise[name] = values, squares.sqrt()
        return Sample(rows, heads, kv_head, exact, noise)

    def check(self, results: Mapping[str, torch.Tensor]) -> float:
        """The largest error over what is allowed.

        Args:
            results: out, dq, dk, dv [rows, heads, dim] of the whole pack.

        Raises:
            WrongResult: it is above 1, or NaN; names the row.
        """
        worst = 0.0
        for sample in self.samples:
            for name, exact in sample.exact.items():
                kv = slice(sample.kv_head, sample.kv_head + 1)
                heads = kv if name in ("dk", "dv") else sample.heads
                got = results[name].detach()[sample.rows, heads].double()
                allowed = sample.noise[name] + exact.norm(dim=-1)
                allowed = allowed * 2 * UNIT[self.case.dtype] + torch.finfo(torch.float32).tiny
                ratio = ((got - exact).norm(dim=-1) / allowed).nan_to_num(nan=torch.inf)
                worst = max(worst, float(ratio.max()))
                if worst > 1:
                    row, head = divmod(int(ratio.argmax()), ratio.shape[1])
                    raise WrongResult(
                        f"{name} of row {sample.rows.start + row}, head {heads.start + head} is "
                        f"off by {worst:.1f} times what rounding may do"
                    )
        return worst


def head_in_float64(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    visible: list[torch.Tensor],
    scale: float,
) -> tuple[Tensors, Tensors]:
    """One head of one document: out, dq, dk, dv [rows, dim], and squares of noise [rows].

    Args:
        q, k, v, dout: [rows, dim] float64.
        visible: first and end of the keys that each query sees, [rows] each.
        scale: of the scores.
    """
    begin, end = visible
    keys = torch.arange(len(k), device=k.device)
    exact = {name: torch.zeros_like(x) for name, x in zip(_NAMES, (v, q, k, v), strict=True)}
    noise = {name: torch.zeros_like(q[:, 0]) for name in _NAMES}
    for first in range(0, len(q), CHUNK):
        rows = slice(first, first + CHUNK)
        seen = (keys >= begin[rows, None]) & (keys < end[rows, None])
        scores = (q[rows] @ k.T * scale).masked_fill(~seen, -torch.inf)
        weights = torch.softmax(scores, -1)
        out, dweights = weights @ v, dout[rows] @ v.T
        delta = (dout[rows] * out).sum(-1, keepdim=True)
        dscores = weights * (dweights - delta) * scale
        exact["out"][rows], exact["dq"][rows] = out, dscores @ k
        exact["dk"] += dscores.T @ q[rows]
        exact["dv"] += weights.T @ dout[rows]
        # The difference may cancel: what was rounded is as large as its terms, and delta is made
        # of rounded results, whose weights were rounded.
        of_delta = (dout[rows] ** 2 * (out**2 + weights**2 @ v**2)).sum(-1, keepdim=True)
        terms = weights**2 * ((dweights.abs() + delta.abs()) ** 2 + of_delta) * scale**2
        noise["out"][rows], noise["dq"][rows] = weights**2 @ _squares(v), terms @ _squares(k)
        noise["dk"] += terms.T @ _squares(q[rows])
        noise["dv"] += (weights**2).T @ _squares(dout[rows])
    return exact, noise


_NAMES = ("out", "dq", "dk", "dv")


def _squares(x: torch.Tensor) -> torch.Tensor:
    return (x**2).sum(-1)
