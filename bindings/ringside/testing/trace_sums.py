"""Which rows dq and dk add up, where dv says that backward has the right ones.

q and k meet in their first column alone: the others are 0 in one of them. There the other one may
hold codes without changing a score, and its codes, times their shares, come back in the gradient.
"""

from __future__ import annotations

import numpy as np

from ringside.testing._running import Runner
from ringside.testing.cases import Arrays, Case, Results
from ringside.testing.tolerance import Model, Precision
from ringside.testing.trace import Array, Expected, Reading, search, without_nan

__all__ = ["trace_sum"]


def trace_sum(
    runner: Runner, how: tuple[Precision, Results], tensor: str, row: int, head: int
) -> tuple[list[Reading], bool]:
    """The keys of a row of dq, or queries of one of dk, whose share is not the definition's.

    Args:
        runner: runs the function, some more times.
        how: the model of its rounding; the second is not looked at.
        tensor: "dq" or "dk".
        row, head: of it.

    Returns:
        The rows of k or q, and whether these are all; none where a head has one column.
    """
    case, by_key = runner.case, tensor == "dk"
    if case.head_dim == 1:
        return [], True
    arrays = without_nan(case, case.arrays())
    arrays = arrays._replace(q=_first_column(arrays.q), k=_first_column(arrays.k))
    expected = _expected(Sums(case, arrays, how[0]), row, head, by_key)
    coded, rows = ("q", case.layout_q.num_rows) if by_key else ("k", case.keys.num_rows)

    def probe(codes: Array) -> tuple[Array, Array, Array]:
        x = getattr(arrays, coded).copy()
        x[:, :, 1:] = codes[:, None, :]
        given = arrays._replace(**{coded: x})
        gradients = runner.backward(given, runner.forward(given))
        return gradients[1 if by_key else 0][row, head, 1:], *expected(codes)

    return search(probe, rows, case.head_dim - 1, case)


def _first_column(x: Array) -> Array:
    first = np.zeros_like(x)
    first[:, :, 0] = x[:, :, 0]
    return first


class Sums(Model):
    """Shares of pairs by the definition, of arrays that are not the case's own."""

    def __init__(self, case: Case, arrays: Arrays, precision: Precision) -> None:
        """Runs the forward pass of the definition."""
        truth = case.by_definition(arrays, gradients=False)
        truth = truth._replace(dsink=np.zeros(case.num_heads))
        super().__init__(case, arrays, truth, precision)


def _expected(model: Sums, row: int, head: int, by_key: bool) -> Expected:
    """What a row of dq or dk should be for any codes, and its tolerance."""
    case = model.case
    scale, shared = case.scale, case.num_heads > case.num_kv_heads
    parts = []  # rows with codes, their shares and the errors of these
    for rows in model.blocks():
        if by_key and rows.kv_head == head and rows.k_rows.start <= row < rows.k_rows.stop:
            x, key = model.shares(rows), row - rows.k_rows.start
            parts.append((rows.q_rows, x.ds[:, key], x.error_in_dk[:, key]))
        elif not by_key and rows.head == head and rows.q_rows.start <= row < rows.q_rows.stop:
            x = model.shares(rows.of_query(row))
            parts.append((rows.k_rows, x.ds[0], x.error_in_dq[0]))

    def expected(codes: Array) -> tuple[Array, Array]:
        value, error = np.zeros(codes.shape[1]), np.zeros(codes.shape[1])
        for rows, ds, off in parts:
            share = scale * (ds @ codes[rows])
            value, error = value + share, error + abs(scale) * (off @ np.abs(codes[rows]))
            error = error + (model.w * np.abs(share) if by_key and shared else 0.0)
        return value, model.stored(error, value)

    return expected
