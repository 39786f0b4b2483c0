"""How far from the definition an honest implementation may be: derived from its types, not picked.

The model. u is the roundoff of the sums, w that of stored results (and of operands of the second
matrix product), m that of partial results that are merged, M the number of merges, b that of
partial results as they are stored before that (0 where nothing else rounds them), c that of dk and
dv where they are added up, merge for merge, in another type (else 0). How much n additions amplify
u is g(n) = min(n, 6 sqrt(n)): n at the very worst, 6 sqrt(n) with all but 4e-8 probability (Higham
& Mary, 2019, doi:10.1137/18M1226312, lambda = 6). To first order, row i has

    score    e_ij  = u ((g(d)+2) |scale| sum|q||k| + 2|s_ij| + 2 max|s_i| + 4)   product, max, exp
    sum      r_i   = sum_j p_ij e_ij + (g(n)+2) u + M m (2|lse_i| + 4)           n visible keys
    out      sum_j p_ij |v_j| (e_ij + r_i + w + b + (g(n)+3) u) + m (6 + log(M+1)) V_i + w |out_i|
    lse      r_i + u (|lse_i| + 4)
    p        P_ij  = e_ij + err(lse_i) + 3u                               as backward recomputes it
    dv       sum_i p_ij |dout_i| (P_ij + w + b + (g(n)+2) u + M m + c g(M))
             + w sum_h |dv_hj| + w |dv_j|
    ds       p_ij (P_ij |dp - D| + (g(dv)+1) u sum|dout||v| + err(D_i) + w |dp - D|)
    err(D)   sum |dout| err(out_i) + (g(dv)+1) u sum |dout||out|
    dq       |scale| sum_j (err(ds_ij) + ((g(n)+2) u + M m + b) |ds_ij|) |k_j| + w |dq_i|
    dk       as dq, with c g(M) as dv

dv_hj is the share of query head h, where several share j's kv head: each is stored before they are
added up; so are those of dk.

V_i is how far apart the values that row i sees are, the largest less the smallest of a column. It
is there because partial results may be merged by out - sigmoid(lse_t - lse) (out - out_t), whose
terms are of the partial results' size, not of their share. Both are means of values that the row
sees, so |out - out_t| <= V_i. The difference and the product are rounded, the sigmoid is off by
4 m (exp, sum, quotient), and by m |lse_t - lse| for its argument: a relative m (6 + |log s_t|) of
s_t (out - out_t), s_t the sigmoid. What comes later scales that down; what is left of s_t is the
share w_t of block t in the end. The shares add up to 1 and -log s_t <= -log w_t, so the merges
together, however many, come to m (6 + log(M+1)) V_i at most. b is rounded once, by the share, too.

Where e_ij is not small, exp(e)-1 stands for it. Rounding below the smallest number of a type adds
its absolute term. Softcap, ALiBi, dropout and sinks add theirs. What is never rounded has bound 0:
padding, and rows that see nothing, must be exact. Plain NumPy comes to 0.05 to 0.5 of the bound in
the middle, and hardly ever above 0.8 (property_tests/kit/test_kit_tolerance.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import ringside as rs
from ringside.testing._precision import Precision, growth
from ringside.testing.cases import Arrays, Case, Results

__all__ = ["Model", "Precision", "bounds", "growth"]

Array = npt.NDArray[np.float64]
Numbers = Array | float


class _Rows(NamedTuple):
    """A document's rows and a head, and where they lie."""

    q_rows: slice
    k_rows: slice
    document: int
    head: int
    kv_head: int

    def of_query(self, row: int) -> _Rows:
        """One row of q alone, against the same keys."""
        return self._replace(q_rows=slice(row, row + 1))


class _Softmax(NamedTuple):
    """Per pair, and its bounds; [n_q, n_k] unless said otherwise."""

    p: Array
    """without dropout"""
    w: Array
    """with dropout"""
    e: Array
    """relative error of exp(score - max)"""
    slope: Array
    """d(capped score)/d(score)"""
    slope_error: Array
    r: Array
    """[n_q, 1] relative error of the sum"""
    lse_error: Array
    """[n_q, 1]"""


class _Shares(NamedTuple):
    """Per pair, [n_q, n_k]: dq and dk are sums of ds times rows of k and of q."""

    ds: Array
    error_in_dq: Array
    """of ds, and of the sum, as dq adds them up"""
    error_in_dk: Array


def bounds(
    case: Case, arrays: Arrays, truth: Results, precision: Precision | None = None
) -> Results:
    """The largest errors that rounding explains, one for each number of the results.

    Args:
        case: gives masks, layouts and options.
        arrays: the inputs; NaN in padding is not looked at.
        truth: by the definition; where it has no gradients, none are bounded.
        precision: default Precision(case.dtype).

    >>> import ringside as rs
    >>> case = Case(rs.PackedLayout([0, 3], [0, 4]), dtype="float32")
    >>> bounds(case, case.arrays(), case.by_definition()).out.max(axis=(1, 2)) < 1e-5
    array([ True,  True,  True,  True])
    """
    model = Model(case, arrays, truth, precision or Precision(case.dtype))
    for rows in model.blocks():
        model.add(rows)
    return model.finish()


class Model:
    """Adds up the bounds, document by document and head by head."""

    def __init__(self, case: Case, arrays: Arrays, truth: Results, precision: Precision) -> None:
        self.case, self.arrays, self.truth = case, arrays, truth
        self.u, self.w, self.m, self.tiny = precision.roundoffs()
        self.merges, self.b = precision.merges, precision.partial_roundoff
        self.summed = precision.gradients_roundoff
        self.result = Results(*(np.zeros_like(x) for x in truth))
        self.has_gradients = truth.dq.shape == arrays.q.shape
        self.kept = _dropped_weights(case, arrays) if case.dropout_p else None

    def blocks(self) -> Iterator[_Rows]:
        """Every document with every query head."""
        case, group = self.case, self.case.num_heads // self.case.num_kv_heads
        starts_q, starts_k = case.layout_q.cu_seqlens_padded, case.keys.cu_seqlens_padded
        for s, (n_q, n_k) in enumerate(zip(case.layout_q.lengths, case.keys.lengths, strict=True)):
            sees = n_k or case.sink is not None  # a sink is in lse even where there is no key
            for head in range(case.num_heads if n_q and sees else 0):
                yield _Rows(
                    slice(starts_q[s], starts_q[s] + n_q),
                    slice(starts_k[s], starts_k[s] + n_k),
                    s,
                    head,
                    head // group,
                )

    def add(self, rows: _Rows) -> None:
        """One document and head."""
        softmax = self.softmax(rows)
        self._forward(rows, softmax)
        if not self.has_gradients:
            return
        self._gradients(rows, softmax, self._ds(rows, softmax))

    def finish(self) -> Results:
        """Rounding of the stored results comes last, once for all heads of a group."""
        for bound, true in zip(self.result, self.truth, strict=True):
            if bound is not self.result.lse:
                bound[...] = self.stored(bound, true)
        self.result.lse[np.isneginf(self.truth.lse)] = 0.0
        return self.result

    def stored(self, error: Array, true: Array) -> Array:
        """The error of a result once it is stored; what is exact is exact then, too."""
        return error + np.where(error > 0, self.w * np.abs(true) + self.tiny, 0.0)

    def softmax(self, rows: _Rows) -> _Softmax:
        """Weights of rows of one document, and their bounds."""
        case, u = self.case, self.u
        q = self.arrays.q[rows.q_rows, rows.head]
        k = self.arrays.k[rows.k_rows, rows.kv_head]
        size = abs(case.scale) * (np.abs(q) @ np.abs(k).T)
        s, e = case.scale * (q @ k.T), u * (growth(case.head_dim) + 2) * size
        slope, slope_error = np.ones_like(s), np.zeros_like(s)
        if case.softcap:
            t = np.tanh(s / case.softcap)
            slope = 1 - t * t
            slope_error = 2 * np.abs(t) * (e / case.softcap + 4 * u)
            s = case.softcap * t
            e = e + 4 * u * np.abs(s)
        positions = self._positions(rows)
        bias = _alibi(case, rows, positions)
        s, e = s + bias, e + 2 * u * np.abs(bias)
        visible = _visible(case, rows, positions)
        s = np.where(visible, s, -np.inf)
        lse = self.truth.lse[rows.head, rows.q_rows][:, None]
        p = np.exp(np.where(visible, s - np.where(np.isneginf(lse), 0.0, lse), -np.inf))
        e = np.where(visible, e + 2 * u * np.abs(np.where(visible, s, 0.0)), 0.0)
        return self._with_sums(rows, p, e, (s, lse, slope, slope_error))

    def _positions(self, rows: _Rows) -> slice:
        """Of the rows in their document."""
        first = int(self.case.layout_q.cu_seqlens_padded[rows.document])
        return slice(rows.q_rows.start - first, rows.q_rows.stop - first)

    def _with_sums(
        self, rows: _Rows, p: Array, e: Array, scores: tuple[Array, Array, Array, Array]
    ) -> _Softmax:
        s, lse, slope, slope_error = scores
        u, sink = self.u, _per_head(self.case.sink, rows.head)
        top = np.where(p > 0, np.abs(s), 0.0).max(axis=1, keepdims=True, initial=0.0)
        top = top if self.case.sink is None else np.maximum(top, abs(sink))
        e = np.where(p > 0, e + u * (2 * top + 4), 0.0)
        size = np.where(np.isneginf(lse), 0.0, np.abs(lse))
        sums = (growth(p.shape[1]) + 2) * u + self.merges * self.m * (2 * size + 4)
        if self.case.sink is not None:
            sums = sums + u * (4 * top + 4)
        r = (p * e).sum(axis=1, keepdims=True) + sums
        w = p if self.kept is None else self.kept[rows.head, rows.q_rows, : p.shape[1]]
        return _Softmax(p, w, e, slope, slope_error, r, r + u * (size + 4))

    def _forward(self, rows: _Rows, x: _Softmax) -> None:
        v = self.arrays.v[rows.k_rows, rows.kv_head]
        self.result.out[rows.q_rows, rows.head] = self.out_error(x, v)
        self.result.lse[rows.head, rows.q_rows] = x.lse_error[:, 0]

    def out_error(self, x: _Softmax, v: Array) -> Array:
        """[n_q, head_dim_v] before the result is stored."""
        relative = _grown(x.e + x.r + self.w + self.b + (growth(x.p.shape[1]) + 3) * self.u)
        seen = (x.p > 0).astype(float)
        error = (x.w * relative) @ np.abs(v) + self.tiny * (seen @ np.abs(v))
        if not self.merges:
            return error
        return error + self.m * (6 + np.log(self.merges + 1)) * self._spread(x.p > 0, v)

    def _spread(self, seen: npt.NDArray[np.bool_], v: Array) -> Array:
        """V of the model, [n_q, head_dim_v]; 0 is among the values where weights may be dropped."""
        none = bool(self.case.dropout_p) or self.case.sink is not None
        ends = (0.0, 0.0) if none else (-np.inf, np.inf)
        most = [np.max(v, axis=0, where=row[:, None], initial=ends[0]) for row in seen]
        least = [np.min(v, axis=0, where=row[:, None], initial=ends[1]) for row in seen]
        spread = (np.array(most) - np.array(least)) / (1 - self.case.dropout_p)
        return np.where(seen.any(axis=1, keepdims=True), spread, 0.0)

    def _ds(self, rows: _Rows, x: _Softmax) -> tuple[Array, Array]:
        """ds and its error."""
        dout = self.arrays.dout[rows.q_rows, rows.head]
        v = self.arrays.v[rows.k_rows, rows.kv_head]
        out = self.truth.out[rows.q_rows, rows.head]
        noise = (growth(v.shape[1]) + 1) * self.u
        out_error = self.result.out[rows.q_rows, rows.head] + self.w * np.abs(out)
        d = (dout * out).sum(axis=1, keepdims=True)
        d_error = (np.abs(dout) * (out_error + noise * np.abs(out))).sum(axis=1, keepdims=True)
        pdp = x.w * (dout @ v.T)  # p times dp, dropped where p is
        size = np.abs(pdp - x.p * d)
        error = _grown(x.e + x.lse_error + 3 * self.u) * size + x.p * d_error
        error += noise * x.w * (np.abs(dout) @ np.abs(v).T)
        error += 2 * self.u * (np.abs(pdp) + x.p * np.abs(d)) + self.w * size
        factor = np.abs(dout @ v.T) / (1 - self.case.dropout_p) + np.abs(
            d
        )  # p itself is off by tiny, too
        error += self.tiny * (x.p > 0) * (1 + factor)
        if self.case.sink is not None:
            self._sink(rows, x, np.abs(d), d_error)
        signed = np.sign(pdp - x.p * d) * size * x.slope
        return signed, error * x.slope + size * (x.slope_error + 4 * self.u)

    def _sink(self, rows: _Rows, x: _Softmax, d: Array, d_error: Array) -> None:
        p = np.clip(1 - x.p.sum(axis=1, keepdims=True), 0, 1)
        logit = abs(_per_head(self.case.sink, rows.head))
        relative = x.lse_error + (growth(self.case.layout_q.num_rows) + 8 + 2 * logit) * self.u
        relative = relative + self.merges * self.m
        self.result.dsink[rows.head] += (p * (d * relative + d_error)).sum()

    def shares(self, rows: _Rows) -> _Shares:
        """What rows of q and k add to each other's gradients, apart from the softmax scale."""
        softmax = self.softmax(rows)
        self._forward(rows, softmax)
        return self._shares(rows, self._ds(rows, softmax))

    def _shares(self, rows: _Rows, of_ds: tuple[Array, Array]) -> _Shares:
        ds, error = of_ds
        group = self.case.num_heads // self.case.num_kv_heads
        merging = self.merges * self.m + self.b
        by_key = (growth(len(ds) * group) + 2) * self.u + merging + self.summed
        by_query = (growth(ds.shape[1]) + 2) * self.u + merging
        return _Shares(ds, error + by_query * np.abs(ds), error + by_key * np.abs(ds))

    def weight_error(self, x: _Softmax, group: int) -> Array:
        """[n_q, n_k] of p where dv sums it up, and of that sum."""
        by_key = (growth(len(x.p) * group) + 2) * self.u + self.merges * self.m + self.b
        by_key += self.summed
        relative = _grown(x.e + x.lse_error + 3 * self.u) + self.w + by_key
        return x.w * relative + self.tiny * (x.p > 0)

    def _gradients(self, rows: _Rows, x: _Softmax, of_ds: tuple[Array, Array]) -> None:
        case, group = self.case, self.case.num_heads // self.case.num_kv_heads
        dout = self.arrays.dout[rows.q_rows, rows.head]
        q = self.arrays.q[rows.q_rows, rows.head]
        k = self.arrays.k[rows.k_rows, rows.kv_head]
        shares = self._shares(rows, of_ds)
        scale, result = abs(case.scale), self.result
        if group > 1:  # each head's share is stored before they are added up
            result.dv[rows.k_rows, rows.kv_head] += self.w * np.abs(x.w.T @ dout)
            result.dk[rows.k_rows, rows.kv_head] += self.w * scale * np.abs(shares.ds.T @ q)
        result.dv[rows.k_rows, rows.kv_head] += self.weight_error(x, group).T @ np.abs(dout)
        result.dk[rows.k_rows, rows.kv_head] += scale * (shares.error_in_dk.T @ np.abs(q))
        result.dq[rows.q_rows, rows.head] += scale * (shares.error_in_dq @ np.abs(k))


def _grown(e: Array) -> Array:
    """exp(e) - 1, for relative errors of exponentials; more than e^50 means nothing."""
    return np.expm1(np.minimum(e, 50.0))


def _per_head(option: object, head: int) -> float:
    """A number for all heads, or one of [num_heads]; 0 for None."""
    values = np.ravel(np.asarray(0.0 if option is None else option, dtype=np.float64))
    return float(values[head] if values.size > 1 else values[0])


def _lengths(case: Case, rows: _Rows) -> tuple[int, int]:
    """Of the rows' document, in q and in k."""
    return int(case.layout_q.lengths[rows.document]), int(case.keys.lengths[rows.document])


def _visible(case: Case, rows: _Rows, positions: slice) -> npt.NDArray[np.bool_]:
    return case.mask.to_dense(*_lengths(case, rows))[positions]


def _alibi(case: Case, rows: _Rows, positions: slice) -> Numbers:
    slope = _per_head(case.alibi_slopes, rows.head)
    if slope == 0:
        return 0.0
    n_q, n_k = _lengths(case, rows)
    shift = n_k - n_q if case.mask.align == "bottom_right" else 0
    distance = np.arange(n_q)[positions, None] + shift - np.arange(n_k)[None, :]
    return -slope * np.abs(distance)


def _dropped_weights(case: Case, arrays: Arrays) -> Array:
    """[num_heads, rows_q, longest] the definition's weights: what it makes of one-hot values."""
    longest = int(case.keys.lengths.max(initial=1))
    one_hot = np.zeros((case.keys.num_rows, case.num_kv_heads, longest))
    for start, n in zip(case.keys.cu_seqlens_padded[:-1], case.keys.lengths, strict=True):
        one_hot[np.arange(start, start + n), :, np.arange(n)] = 1.0
    out, _ = rs.attention(
        arrays.q, arrays.k, one_hot, case.layout_q, case.layout_k, mask=case.mask, **case.options
    )
    return out.swapaxes(0, 1)
