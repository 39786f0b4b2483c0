"""Exercise 9: how large an error rounding explains, after many merges."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from matplotlib.figure import Figure

from ringside.learn._exercise import Answer, Exercise, Wrong, array_of
from ringside.learn._merging import Partials
from ringside.learn.figures.digits import figure_of_bound
from ringside.testing.dtypes import FLOATS

STUB = '''
def bound(merges, unit_roundoff, largest):
    """A number: the largest error of out after that many merges that rounding explains."""
'''
COLUMNS = 32  # of head_dim
COARSE = "bfloat16"


class Merges(NamedTuple):
    """Partial results of one row, and the type that they are merged in."""

    merges: int
    dtype: str
    unlucky: bool
    """each step adds a little less than would be seen, so that all roundings go one way"""
    scale: float
    seed: int

    @property
    def parts(self) -> Partials:
        """Of random values and shares, or of equal ones that are lost in the sum."""
        if self.unlucky:
            small = 0.45 * self.unit_roundoff
            shares = np.full((self.merges, 1), small)
            shares[0] = 1 - small * (self.merges - 1)
            return Partials(shares, np.full((self.merges, 1, COLUMNS), self.scale))
        rng = np.random.default_rng(self.seed)
        weights = np.exp(rng.normal(size=(self.merges, 1)))
        outs = rng.normal(size=(self.merges, 1, COLUMNS)) * self.scale
        return Partials(weights / weights.sum(), outs)

    @property
    def unit_roundoff(self) -> float:
        """The largest relative error of one rounding."""
        return FLOATS[self.dtype].roundoff

    @property
    def largest(self) -> float:
        """Of the partial results, in size."""
        return float(np.abs(self.parts.outs).max())


def ask(bound: Answer, merges: Merges) -> Any:
    """The bound, a number."""
    expected = "a number, 0 or more"
    got = array_of(bound(merges.merges, merges.unit_roundoff, merges.largest), "iuf", expected)
    if got.shape != () or not got >= 0:
        raise Wrong(f"got {got}; expected {expected}")
    return float(got)


def fault(merges: Merges, got: Any) -> str:
    """An error above the bound, or one of another type below it."""
    error = merges.parts.errors(merges.dtype)[-1]
    if error > got:
        return f"got a bound of {got:.3g}; expected at least {error:.3g}, which is the error"
    if merges.dtype == COARSE or merges.unlucky or merges.merges < 2:
        return ""
    coarse = merges.parts.errors(COARSE)[-1]
    if coarse <= got:
        return (
            f"got a bound of {got:.3g}; expected less than {coarse:.3g}, the error of the same "
            f"merges in {COARSE}: a check with this bound does not see it"
        )
    return ""


def told(merges: Merges) -> str:
    """How many, of what."""
    kind = "that are all rounded down" if merges.unlucky else f"at random (seed {merges.seed})"
    count = f"{merges.merges} merge{'s' if merges.merges > 1 else ''}"
    return f"{count} in {merges.dtype}, of values up to {merges.largest:.3g}, {kind}"


def drawn(merges: Merges, got: Any) -> Figure:
    """The error after each merge, and the bound."""
    names = (merges.dtype,) if merges.unlucky else (merges.dtype, COARSE)
    errors = {name: merges.parts.errors(name) for name in dict.fromkeys(names)}
    return figure_of_bound(errors, got)


def cases() -> Any:
    """One merge to 64, in float32 and in bfloat16, of values of any size."""
    return st.builds(
        Merges,
        merges=st.one_of(st.integers(1, 64), st.sampled_from([2, 64])),
        dtype=st.sampled_from(["float32", COARSE]),
        unlucky=st.booleans(),
        scale=st.sampled_from([1.0, 0.01, 100.0]),
        seed=st.integers(0, 999),
    )


EXERCISE = Exercise(
    stub=STUB,
    plain=Merges(4, "float32", False, 1.0, 0),
    cases=cases,
    ask=ask,
    fault=fault,
    told=told,
    drawn=drawn,
    holds="no error was above the bound, and merges in bfloat16 were above that of float32",
)
