"""Attention of 16-bit operands as anybody would write it without fusing: the measure of rounding.

Scores, sums and products are float32; the weights P and the gradients of the scores dS are rounded
to the type before they enter their products, results are rounded to it at the end. That is the
least that 16-bit operands cost whoever feeds them to matrix units; a kernel may err twice as much.
"""

from __future__ import annotations

import numpy as np
import ringside as rs
from philox import dropout_factors
from plain import documents
from ringside.testing import Arrays, Case, Results
from ringside.testing.dtypes import round_to


def unfused(
    case: Case, arrays: Arrays, dtype: str, saved: Results, options: rs.Options | None = None
) -> Results:
    """All five results; backward starts from the out and lse of `saved`, as a kernel's does.

    The scale is the case's, whatever that of the options is.
    """
    options = rs.Options() if options is None else options
    q, k, v, dout = (np.nan_to_num(x).astype(np.float32) for x in arrays)
    saved_out, saved_lse = saved.out.astype(np.float32), saved.lse.astype(np.float32)
    out, dq = np.zeros_like(dout), np.zeros_like(q)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    lse = np.full(saved_lse.shape, -np.inf)
    scale = np.float32(case.scale)
    sinks = of_heads(options.sink, -np.inf, case)
    slopes = of_heads(options.alibi_slopes, 0.0, case)

    def rounded(x: np.ndarray) -> np.ndarray:
        return round_to(x, dtype).astype(np.float32)

    for sequence, (rows, keys) in enumerate(documents(case.layout_q, case.keys)):
        len_q, len_k = rows.stop - rows.start, keys.stop - keys.start
        visible = case.mask.to_dense(len_q, len_k)
        shift = len_k - len_q if case.mask.align == "bottom_right" else 0
        distance = np.abs(np.arange(len_q)[:, None] + shift - np.arange(len_k)).astype(np.float32)
        for h in range(case.num_heads):
            at, of_q = (keys, h * case.num_kv_heads // case.num_heads), (rows, h)
            scores, slope = scale * (q[of_q] @ k[at].T), np.float32(1)
            if options.softcap:
                tanh = np.tanh(scores / np.float32(options.softcap))
                scores, slope = np.float32(options.softcap) * tanh, 1 - tanh**2
            scores = np.where(visible, scores - slopes[h] * distance, -np.inf)
            kept = dropout_factors(
                options.dropout_p, options.dropout_seed, sequence, h, len_q, len_k
            ).astype(np.float32)
            top = scores.max(axis=1, keepdims=True, initial=-np.inf)
            top = np.where(np.isneginf(top), np.float32(0), top)
            weights = np.exp(scores - top)
            total = weights.sum(axis=1, keepdims=True) + np.exp(sinks[h] - top)
            seen = total[:, 0] > 0
            out[of_q] = (rounded(weights * kept) @ v[at]) / np.where(total > 0, total, 1)
            lse[h, rows][seen] = (top + np.log(np.where(total > 0, total, 1)))[seen, 0]

            base = np.where(seen, saved_lse[h, rows], 0)[:, None]
            p = np.exp(scores - base)
            delta = (dout[of_q] * saved_out[of_q]).sum(axis=1, keepdims=True)
            ds = rounded(p * (kept * (dout[of_q] @ v[at].T) - delta) * slope)
            dq[of_q] = scale * (ds @ k[at])
            dk[at] += scale * (ds.T @ q[of_q])
            dv[at] += rounded(p * kept).T @ dout[of_q]
    results = (round_to(x, dtype) for x in (out, dq, dk, dv))
    out, *gradients = results
    return Results(out, lse, *gradients)


def of_heads(number: object, absent: float, case: Case) -> np.ndarray:
    """float32 [num_heads] of an option that is one number for all heads, or one a head."""
    value = absent if number is None else np.asarray(number)
    return np.broadcast_to(value, case.num_heads).astype(np.float32)
