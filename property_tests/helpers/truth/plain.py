"""Attention as anybody would write it in NumPy, every operation rounded to a type of choice."""

from __future__ import annotations

import dataclasses

import numpy as np
import ringside as rs
from ringside.testing.dtypes import round_to


@dataclasses.dataclass
class Plain:
    """Forward and backward, document by document, with the signature of ringside.attention.

    Args:
        store: the type of operands, results, p and ds.
        sums: the type of every other number; each product and each partial sum is rounded to it.
        blocks: keys are taken in so many blocks, whose partial results are merged in `merge`.
        planted: a relative error added to out.
    """

    store: str = "float32"
    sums: str = "float32"
    blocks: int = 1
    merge: str | None = None
    planted: float = 0.0

    def u(self, x):
        return round_to(x, self.sums)

    def w(self, x):
        return round_to(x, self.store)

    def m(self, x):
        return round_to(x, self.merge or self.sums)

    def matmul(self, a, b):
        """One rounding for each product and each addition, terms in order."""
        total = np.zeros((a.shape[0], b.shape[1]))
        for i in range(a.shape[1]):
            total = self.u(total + self.u(a[:, i, None] * b[None, i]))
        return total

    def total(self, x):
        """Sum over the last axis, in order."""
        total = np.zeros((*x.shape[:-1], 1))
        for i in range(x.shape[-1]):
            total = self.u(total + x[..., i, None])
        return total

    def scores(self, q, k, mask, scale):
        visible = mask.to_dense(len(q), len(k))
        return np.where(visible, self.u(scale * self.matmul(q, k.T)), -np.inf)

    def block(self, s, v):
        """(out, lse) of some keys; rows that see none are 0, -inf."""
        top = s.max(axis=1, keepdims=True, initial=-np.inf)
        safe = np.where(np.isneginf(top), 0.0, top)
        p = self.u(np.exp(self.u(s - safe)))
        z = self.total(p)
        with np.errstate(divide="ignore"):
            lse = np.where(z > 0, self.u(safe + self.u(np.log(z))), -np.inf)
        return self.u(self.matmul(self.w(p), v) / np.where(z > 0, z, 1.0)), lse

    def merged(self, a, b):
        (out_a, lse_a), (out_b, lse_b) = a, b
        top = np.maximum(lse_a, lse_b)
        safe = np.where(np.isneginf(top), 0.0, top)
        with np.errstate(divide="ignore"):
            lse = self.m(safe + np.log(np.exp(lse_a - safe) + np.exp(lse_b - safe)))
        shift = np.where(np.isneginf(lse), 0.0, lse)
        parts = [self.m(np.exp(x - shift)) for x in (lse_a, lse_b)]
        return self.m(self.m(parts[0] * out_a) + self.m(parts[1] * out_b)), lse

    def document(self, q, k, v, mask, scale):
        s = self.scores(q, k, mask, scale)
        cuts = np.array_split(np.arange(len(k)), self.blocks)
        parts = [self.block(s[:, cut], v[cut]) for cut in cuts]
        result = parts[0]
        for part in parts[1:]:
            result = self.merged(result, part)
        return result

    def __call__(self, q, k, v, *, layout_q, layout_k, mask, softmax_scale):
        q, k, v = (x.astype(np.float64) for x in (q, k, v))
        out = np.zeros((*q.shape[:2], v.shape[2]))
        lse = np.full((q.shape[1], q.shape[0]), -np.inf)
        scale = q.shape[2] ** -0.5 if softmax_scale is None else softmax_scale
        for rows, keys in documents(layout_q, layout_k):
            for h in range(q.shape[1]):
                g = h // (q.shape[1] // k.shape[1])
                result = self.document(q[rows, h], k[keys, g], v[keys, g], mask, scale)
                out[rows, h], lse[h, rows] = result[0], result[1][:, 0]
        return self.w(out) * (1 + self.planted), self.u(lse)

    def backward(self, dout, q, k, v, out, lse, *, layout_q, layout_k, mask, softmax_scale):
        dout, q, k, v = (x.astype(np.float64) for x in (dout, q, k, v))
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        scale = q.shape[2] ** -0.5 if softmax_scale is None else softmax_scale
        for rows, keys in documents(layout_q, layout_k):
            for h in range(q.shape[1]):
                g = h // (q.shape[1] // k.shape[1])
                s = self.scores(q[rows, h], k[keys, g], mask, scale)
                base = np.where(np.isneginf(lse[h, rows]), 0.0, lse[h, rows])[:, None]
                p = self.u(np.exp(self.u(s - base)))
                dp = self.matmul(dout[rows, h], v[keys, g].T)
                d = self.total(self.u(dout[rows, h] * out[rows, h]))
                ds = self.w(self.u(p * self.u(dp - d)))
                dq[rows, h] = self.u(scale * self.matmul(ds, k[keys, g]))
                dk[keys, g] = self.u(dk[keys, g] + self.u(scale * self.matmul(ds.T, q[rows, h])))
                dv[keys, g] = self.u(dv[keys, g] + self.matmul(self.w(p).T, dout[rows, h]))
        return self.w(dq), self.w(dk), self.w(dv)


def documents(layout_q: rs.PackedLayout, layout_k: rs.PackedLayout):
    """The valid rows of every document, of q and of k."""
    for s in range(layout_q.num_sequences):
        begin_q, begin_k = int(layout_q.cu_seqlens_padded[s]), int(layout_k.cu_seqlens_padded[s])
        yield (
            slice(begin_q, begin_q + int(layout_q.lengths[s])),
            slice(begin_k, begin_k + int(layout_k.lengths[s])),
        )
