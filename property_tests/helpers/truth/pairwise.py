"""Attention with all its options, one query row at a time over the keys it sees, in NumPy.

Written from the documentation of ringside.attention, NaN and infinities included; it shares no code
with the library.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from independent import dense_mask
from philox import dropout_factors
from ringside.testing import Arrays, Case, Results

LEAST = np.finfo(np.float64).tiny  # a finite score's weight is positive, however small


class Options(NamedTuple):
    """Those of ringside.attention, with numbers for None."""

    softmax_scale: float
    softcap: float = 0.0
    sink: Any = None
    alibi_slopes: Any = None
    dropout_p: float = 0.0
    dropout_seed: int = 0

    def of_head(self, name: str, head: int, absent: float) -> float:
        value = getattr(self, name)
        return absent if value is None else float(value if np.ndim(value) == 0 else value[head])


class Row(NamedTuple):
    """One query row of one head and the keys it sees."""

    scores: np.ndarray
    slope: np.ndarray  # of a score by its q.k
    kept: np.ndarray
    sink: float

    def lse(self) -> float:
        logits = np.append(self.scores, self.sink)
        top = logits.max()  # NaN if there is one
        return top if not np.isfinite(top) else top + np.log(np.exp(logits - top).sum())

    def weights(self, lse: float) -> np.ndarray:
        weights = np.maximum(np.exp(self.scores - lse), LEAST)
        return np.where((self.scores == -np.inf) & ~np.isnan(lse), 0.0, weights)


def row_of(q: np.ndarray, k: np.ndarray, distance: np.ndarray, kept: np.ndarray, of_head) -> Row:
    scale, softcap, sink, slope = of_head
    scores = scale * (q * k).sum(axis=1)
    gradient = np.full(scores.shape, scale)
    if softcap:
        tanh = np.tanh(scores / softcap)
        scores, gradient = softcap * tanh, gradient * (1 - tanh**2)
    return Row(scores - slope * distance, gradient, kept, sink)


def rows_of(case: Case, arrays: Arrays, options: Options):
    """(row, seen rows of k, head, kv head, Row) for every row that sees something."""
    for s in range(case.layout_q.num_sequences):
        len_q, len_k = int(case.layout_q.lengths[s]), int(case.keys.lengths[s])
        first_q, first_k = (int(x.cu_seqlens_padded[s]) for x in (case.layout_q, case.keys))
        shift = len_k - len_q if case.mask.align == "bottom_right" else 0
        mask = dense_mask(case.mask, len_q, len_k)
        for head in range(case.num_heads):
            group = head // (case.num_heads // case.num_kv_heads)
            kept = dropout_factors(options.dropout_p, options.dropout_seed, s, head, len_q, len_k)
            of_head = (
                options.softmax_scale,
                options.softcap,
                options.of_head("sink", head, -np.inf),
                options.of_head("alibi_slopes", head, 0.0),
            )
            for i in range(len_q):
                seen = np.flatnonzero(mask[i])
                if not len(seen):
                    yield first_q + i, None, head, group, Row(*np.zeros((3, 0)), of_head[2])
                    continue
                q, k = arrays.q[first_q + i, head], arrays.k[first_k + seen, group]
                distance = np.abs(i + shift - seen)
                row = row_of(q, k, distance, kept[i, seen], of_head)
                yield first_q + i, first_k + seen, head, group, row


def forward(case: Case, arrays: Arrays, options: Options) -> tuple[np.ndarray, ...]:
    """(out, lse, max_logit)."""
    out = np.zeros((len(arrays.q), case.num_heads, arrays.v.shape[2]))
    lse = np.full((case.num_heads, len(arrays.q)), -np.inf)
    max_logit = np.full(case.num_heads, -np.inf)
    for i, seen, head, group, row in rows_of(case, arrays, options):
        lse[head, i] = row.lse()
        if seen is not None:
            weights = row.weights(lse[head, i]) * row.kept
            out[i, head] = (weights[:, None] * arrays.v[seen, group]).sum(axis=0)
            max_logit[head] = np.maximum(max_logit[head], row.scores.max())
    return out, lse, max_logit


def backward(case: Case, arrays: Arrays, options: Options, out, lse) -> tuple[np.ndarray, ...]:
    """(dq, dk, dv, dsink)."""
    q, k, v, dout = arrays
    dq, dk, dv = (np.zeros(x.shape) for x in (q, k, v))
    dsink = np.zeros(0 if options.sink is None else case.num_heads)
    for i, seen, head, group, row in rows_of(case, arrays, options):
        if seen is None:
            continue
        p = row.weights(lse[head, i])
        dp = row.kept * (dout[i, head] * v[seen, group]).sum(axis=1)
        delta = (dout[i, head] * out[i, head]).sum()
        ds = p * (dp - delta) * row.slope
        dq[i, head] = (ds[:, None] * k[seen, group]).sum(axis=0)
        dk[seen, group] += ds[:, None] * q[i, head]
        dv[seen, group] += (p * row.kept)[:, None] * dout[i, head]
        if len(dsink):
            dsink[head] -= np.maximum(np.exp(row.sink - lse[head, i]), LEAST) * delta
    return dq, dk, dv, dsink


def pairwise(case: Case, arrays: Arrays) -> Results:
    """All results of a case, its own options applied."""
    options = Options(**{**case.options, "softmax_scale": case.scale})
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        out, lse, _ = forward(case, arrays, options)
        return Results(out, lse, *backward(case, arrays, options, out, lse))
