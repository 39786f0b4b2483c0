"""Rings in NumPy that merge what their steps return by the formulas of the field."""

from __future__ import annotations

import dataclasses

import numpy as np
from plain import Plain, documents
from ringside.testing.dtypes import round_to


@dataclasses.dataclass
class Ring:
    """Attention in blocks of keys, merged one after the other in float32.

    out - sigmoid(block_lse - lse) * (out - block_out) and lse - logsigmoid(lse - block_lse), every
    operation rounded; the blocks' own arithmetic is exact, so that the merges are seen.

    Args:
        blocks: into which the keys of a document are cut.
        partial: the type that blocks' results are stored in.
        store: the type of the result.
        planted: a relative error of every partial result.
    """

    blocks: int = 4
    partial: str = "float32"
    store: str = "float32"
    planted: float = 0.0

    def merged(self, a, b):
        (out, lse), (block_out, block_lse) = a, b
        f = np.float32
        out, lse, block_out, block_lse = (x.astype(f) for x in (out, lse, block_out, block_lse))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            share = f(1) / (f(1) + np.exp(lse - block_lse))
            merged = out - share * (out - block_out)
            lse_merged = lse + np.log1p(np.exp(-np.abs(lse - block_lse)))
            lse_merged = np.where(block_lse > lse, lse_merged + (block_lse - lse), lse_merged)
        none = np.isneginf(block_lse)
        first = np.isneginf(lse)
        merged = np.where(none, out, np.where(first, block_out, merged))
        return merged, np.where(none, lse, np.where(first, block_lse, lse_merged))

    def __call__(self, q, k, v, *, layout_q, layout_k, mask, softmax_scale):
        q, k, v = (x.astype(np.float64) for x in (q, k, v))
        exact = Plain("float64", "float64")
        out = np.zeros((*q.shape[:2], v.shape[2]))
        lse = np.full((q.shape[1], q.shape[0]), -np.inf)
        scale = q.shape[2] ** -0.5 if softmax_scale is None else softmax_scale
        for rows, keys in documents(layout_q, layout_k):
            for h in range(q.shape[1]):
                g = h // (q.shape[1] // k.shape[1])
                s = exact.scores(q[rows, h], k[keys, g], mask, scale)
                cuts = np.array_split(np.arange(s.shape[1]), self.blocks)
                parts = [self.stored(exact.block(s[:, cut], v[keys, g][cut])) for cut in cuts]
                result = parts[0]
                for part in parts[1:]:
                    result = self.merged(result, part)
                out[rows, h], lse[h, rows] = result[0], result[1][:, 0]
        return round_to(out, self.store), lse

    def stored(self, part):
        out, lse = part
        return round_to(out * (1 + self.planted), self.partial), round_to(lse, "float32")
