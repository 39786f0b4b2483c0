"""How far a kernel's results may be from float64, given what its types cost anybody.

The float32 family, whatever the type of the arrays: 2e-6 of the scale of the operands (sums of up
to some hundred products, each rounded at 6e-8, and exp() of scores whose own error is multiplied by
their size), then one rounding of every number to the type.

Families that feed 16-bit weights to matrix units: row by row, at most twice the error of plain
arithmetic in the same types (unfused.py), measured like the kernel's against the CPU plan on the
same rounded inputs. A row's error is its largest. Plain rows may be lucky, hence a floor:

  * what plain arithmetic errs in the tensor's rows on (root mean square) average, and more by
    chance, the fewer numbers a row has (1 + 3 / sqrt(head dimension)) and the fewer errors there
    are to take it from (1 + 3 / sqrt(errors): two tell next to nothing, a thousand all),
  * one step of the type's grid at the row's largest value: errors come in such steps, and where
    plain arithmetic rounds to the right neighbour the kernel may round to the next one, and
  * the float32 tolerance above: where gradients cancel nothing else is left.

An emulation of honest kernels (keys in any order, in blocks and steps, under a maximum that lags)
came to 0.58 of this at most in 5,000 random cases, head dimensions from 1 to 256. Padding, and rows
that see nothing, have no tolerance.
"""

from __future__ import annotations

import numpy as np
import ringside as rs
from assertions import scale_of, valid_rows
from ringside.testing import Arrays, Case, Results
from ringside.testing.dtypes import float_of

FLOAT32_TOLERANCE = 2e-6
NAMES = ("out", "lse", "dq", "dk", "dv", "dsink")


def limits(
    case: Case,
    arrays: Arrays,
    want: Results,
    dtype: str,
    plain: Results | None,
    options: rs.Options,
) -> Results:
    """The largest error of every number; `plain` where weights are 16-bit, None for float32's."""
    scales = scales_of(case, arrays, options)
    u = 0.0 if dtype == "float32" else float_of(dtype).roundoff
    found = {"lse": np.full(want.lse.shape, FLOAT32_TOLERANCE * scales["lse"])}
    for name in ("out", "dq", "dk", "dv"):
        true, inside = getattr(want, name), FLOAT32_TOLERANCE * scales[name]
        if plain is None:
            found[name] = inside + u * (np.abs(true) + inside)
        else:
            found[name] = inside + row_limits(getattr(plain, name), true, u)
    if want.dsink.size:
        found["dsink"] = FLOAT32_TOLERANCE * scales["lse"] * sink_scale(arrays, want, options)
    limit = Results(**found)
    clear_unseen(case, limit, want)
    return limit


def row_limits(plain: np.ndarray, true: np.ndarray, u: float) -> np.ndarray:
    """[rows, heads, 1] from the errors of plain arithmetic."""
    errors = np.abs(plain - true)
    error = errors.max(axis=2, keepdims=True, initial=0.0)
    average = np.sqrt(np.mean(error[error > 0] ** 2)) if (error > 0).any() else 0.0
    average *= 1 + 3 / plain.shape[2] ** 0.5
    average *= 1 + 3 / max(np.count_nonzero(errors), 1) ** 0.5
    step = 2 * u * np.abs(true).max(axis=2, keepdims=True, initial=0.0)
    return np.broadcast_to(2 * np.maximum(error, average) + step, true.shape).copy()


def clear_unseen(case: Case, limit: Results, want: Results) -> None:
    """No tolerance in padding, nor for out and dq of rows that see nothing."""
    q_padding, k_padding = ~valid_rows(case.layout_q), ~valid_rows(case.keys)
    blind = np.isneginf(want.lse).T
    for x in (limit.out, limit.dq):
        x[q_padding] = 0.0
        x[blind] = 0.0
    for x in (limit.dk, limit.dv):
        x[k_padding] = 0.0


def scales_of(case: Case, arrays: Arrays, options: rs.Options) -> dict[str, float]:
    """What each result is a sum of products of: how large float32 numbers get on the way."""
    q, k, v, dout = arrays
    score = 1 + abs(case.scale) * case.head_dim**0.5 * scale_of(q) * scale_of(k)
    if options.alibi_slopes is not None:
        score += scale_of(options.alibi_slopes) * max(case.keys.lengths.max(initial=0), 1)
    ds = max(abs(case.scale), 1e-3) * case.head_dim_v**0.5 * size_of(dout) * size_of(v)
    return {
        "out": score * size_of(v),
        "lse": score,
        "dq": score * ds * size_of(k),
        "dk": score * ds * size_of(q) * group_rows(case),
        "dv": score * size_of(dout) * group_rows(case),
    }


def sink_scale(arrays: Arrays, want: Results, options: rs.Options) -> np.ndarray:
    """[num_heads] the sum over rows of exp(sink - lse) |dout| |out|: dsink without its signs."""
    sink = np.broadcast_to(np.asarray(options.sink, dtype=np.float64), want.dsink.shape)
    weight = np.exp(sink[:, None] - np.where(np.isneginf(want.lse), np.inf, want.lse))
    seen = np.nan_to_num(np.abs(arrays.dout * want.out)).sum(axis=2).T
    return 1e-30 + (weight * seen).sum(axis=1)


def size_of(x: np.ndarray) -> float:
    """The root mean square of what is not padding, at least 1."""
    valid = x[np.isfinite(x)]
    return max(1.0, float(np.sqrt(np.mean(valid**2)))) if valid.size else 1.0


def group_rows(case: Case) -> float:
    """By how much more a sum over all queries of a group may round than a single product."""
    rows = max(int(case.layout_q.lengths.max(initial=0)), 1)
    return max(1.0, (rows * case.num_heads / case.num_kv_heads) ** 0.5 / 4)
