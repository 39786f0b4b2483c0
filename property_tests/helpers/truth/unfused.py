"""Attention of 16-bit operands as anybody would write it without fusing: the measure of rounding.

Scores, sums and products are float32; the weights P and the gradients of the scores dS are rounded
to the type before they enter their products, results are rounded to it at the end. That is the
least that 16-bit operands cost whoever feeds them to matrix units; a kernel may err twice as much.
"""

from __future__ import annotations

import numpy as np
from plain import documents
from ringside.testing import Arrays, Case, Results
from ringside.testing.dtypes import round_to


def unfused(
    case: Case, arrays: Arrays, dtype: str, saved: Results, sink: float | np.ndarray | None = None
) -> Results:
    """All five results; backward starts from the out and lse of `saved`, as a kernel's does.

    Of the options it knows sinks (one for all heads, or one a head) and no others.
    """
    q, k, v, dout = (np.nan_to_num(x).astype(np.float32) for x in arrays)
    saved_out, saved_lse = saved.out.astype(np.float32), saved.lse.astype(np.float32)
    out, dq = np.zeros_like(dout), np.zeros_like(q)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    lse = np.full(saved_lse.shape, -np.inf)
    scale = np.float32(case.scale)
    sinks = np.broadcast_to(-np.inf if sink is None else np.asarray(sink), case.num_heads)

    def rounded(x: np.ndarray) -> np.ndarray:
        return round_to(x, dtype).astype(np.float32)

    for rows, keys in documents(case.layout_q, case.keys):
        visible = case.mask.to_dense(rows.stop - rows.start, keys.stop - keys.start)
        for h in range(case.num_heads):
            at, of_q = (keys, h * case.num_kv_heads // case.num_heads), (rows, h)
            scores = np.where(visible, scale * (q[of_q] @ k[at].T), -np.inf)
            top = scores.max(axis=1, keepdims=True, initial=-np.inf)
            top = np.where(np.isneginf(top), np.float32(0), top)
            weights = np.exp(scores - top)
            total = weights.sum(axis=1, keepdims=True) + np.exp(np.float32(sinks[h]) - top)
            seen = total[:, 0] > 0
            out[of_q] = (rounded(weights) @ v[at]) / np.where(total > 0, total, 1)
            lse[h, rows][seen] = (top + np.log(np.where(total > 0, total, 1)))[seen, 0]

            base = np.where(seen, saved_lse[h, rows], 0)[:, None]
            p = np.exp(scores - base)
            delta = (dout[of_q] * saved_out[of_q]).sum(axis=1, keepdims=True)
            ds = rounded(p * (dout[of_q] @ v[at].T - delta))
            dq[of_q] = scale * (ds @ k[at])
            dk[at] += scale * (ds.T @ q[of_q])
            dv[at] += rounded(p).T @ dout[of_q]
    results = (round_to(x, dtype) for x in (out, dq, dk, dv))
    out, *gradients = results
    return Results(out, lse, *gradients)
