"""What "equal" means here, and messages that say where two results part.

Both sides are float64, so nothing but rounding separates them. Scores, results and gradients are
sums of products of the operands; every product and every partial sum is rounded to 1.1e-16 of its
size, softmax multiplies that by the size of its exponent (below 100 in these cases), and sums have
at most some hundred terms. 1e-12 of the operands' scale covers that with a factor of ten to spare,
and is a billion times smaller than the effect of one wrong key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import ringside as rs
from hypothesis import note
from hypothesis.strategies import SearchStrategy
from ringside.testing import Arrays, Case, Results

TOLERANCE = 1e-12


def noted(cases: SearchStrategy[Case]) -> SearchStrategy[Case]:
    """Prints a pasteable script when a test fails with a case."""

    def note_script(case: Case) -> Case:
        note(case.script())
        return case

    return cases.map(note_script)


def scale_of(*operands: object) -> float:
    """The largest finite magnitude among arrays and numbers, at least 1."""
    largest = 1.0
    for operand in operands:
        values = np.abs(np.asarray(operand, dtype=np.float64))
        largest = max(largest, float(values[np.isfinite(values)].max(initial=0.0)))
    return largest


def place_of(layout: rs.PackedLayout, row: int) -> str:
    """The document and token of a row."""
    for s in range(layout.num_sequences):
        begin = int(layout.cu_seqlens_padded[s])
        if begin <= row < layout.cu_seqlens_padded[s + 1]:
            token = row - begin
            kind = "token" if token < layout.lengths[s] else "padding at"
            return f"document {s}, {kind} {token}"
    return "no document"


def first_wrong(name: str, got: np.ndarray, wanted: np.ndarray, wrong: np.ndarray, where: str):
    """'out[3, 0, 1]=nan, but should be 0.5' for the first place where `wrong` is True."""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{name}{list(index)}={got[index]!r}, but should be {wanted[index]!r}{where}; "
        f"{np.count_nonzero(wrong)} of {wrong.size} are wrong"
    )


def assert_close(
    name: str,
    got: np.ndarray,
    wanted: np.ndarray,
    *,
    operands: Sequence[object] = (),
    layout: rs.PackedLayout | None = None,
    rows_axis: int = 0,
    tolerance: float = TOLERANCE,
) -> None:
    """Equal up to `tolerance` of the scale of the operands; -inf equals -inf, NaN nothing."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.shape == wanted.shape, f"{name} has shape {got.shape}, but should {wanted.shape}"
    with np.errstate(invalid="ignore"):
        wrong = ~(
            (got == wanted) | (np.abs(got - wanted) <= tolerance * scale_of(wanted, *operands))
        )
    if not wrong.any():
        return
    where = ""
    if layout is not None:
        index = np.argwhere(wrong)[0]
        head = f"head {index[1 - rows_axis]}" if wrong.ndim > 1 else ""
        where = f" ({place_of(layout, int(index[rows_axis]))}, {head})"
    raise AssertionError(first_wrong(name, got, wanted, wrong, where))


def error_of(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """|got - wanted|; -inf equals -inf, a stray NaN or infinity is off by infinity."""
    with np.errstate(invalid="ignore"):
        off = np.where(got == wanted, 0.0, np.abs(got - wanted))
    return np.nan_to_num(off, nan=np.inf)


def assert_within(
    name: str,
    got: np.ndarray,
    wanted: np.ndarray,
    allowed: np.ndarray,
    layout: rs.PackedLayout | None = None,
) -> None:
    """Every number as close as `allowed` says for it; rows of `layout` are named."""
    assert got.shape == wanted.shape, f"{name} has shape {got.shape}, but should {wanted.shape}"
    wrong = ~(error_of(got, wanted) <= allowed)
    if not wrong.any():
        return
    where = ""
    if layout is not None:
        index = np.argwhere(wrong)[0]
        row, head = index[:2][::-1] if name == "lse" else index[:2]
        where = f" ({place_of(layout, int(row))}, head {head})"
    raise AssertionError(first_wrong(name, got, wanted, wrong, where))


def assert_same_bits(name: str, got: np.ndarray, wanted: np.ndarray) -> None:
    """Equal bit for bit: the same NaNs and signs too."""
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), (
        f"{name} is {got.dtype}{got.shape}, but should be {wanted.dtype}{wanted.shape}"
    )
    wrong = np.ascontiguousarray(got).view(np.uint64) != np.ascontiguousarray(wanted).view(
        np.uint64
    )
    assert not wrong.any(), first_wrong(name, got, wanted, wrong, "")


def assert_results_close(
    case: Case, got: Results, wanted: Results, arrays: Arrays, *, tolerance: float = TOLERANCE
) -> None:
    """All five results, each against the scale of what it is made of."""
    q, k, v, dout = arrays
    score = case.scale * case.head_dim * scale_of(q) * scale_of(k)
    ds = case.scale * case.head_dim_v * scale_of(dout) * scale_of(v)  # of one pair
    check = [
        ("out", case.layout_q, 0, [v]),
        ("lse", case.layout_q, 1, [score]),
        ("dq", case.layout_q, 0, [ds * scale_of(k)]),
        ("dk", case.keys, 0, [ds * scale_of(q)]),
        ("dv", case.keys, 0, [dout]),
    ]
    for name, layout, axis, operands in check:
        assert_close(
            name,
            getattr(got, name),
            getattr(wanted, name),
            operands=operands,
            layout=layout,
            rows_axis=axis,
            tolerance=tolerance,
        )


def valid_rows(layout: rs.PackedLayout) -> np.ndarray:
    """[rows] True where a token lies, from the prefix sums alone."""
    valid = np.zeros(layout.num_rows, bool)
    for start, length in zip(layout.cu_seqlens_padded[:-1], layout.lengths, strict=True):
        valid[start : start + length] = True
    return valid


def refused(result, *pieces):
    """Exit code 2, nothing answered, and the pieces in the one line of the error."""
    code, out, err = result
    assert (code, out) == (2, ""), (code, out, err)
    assert err.startswith("Error: ") and err.count("\n") == 1
    for piece in pieces:
        assert piece in err
