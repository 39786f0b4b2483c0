"""Floating types by name: how they round, and arrays of them.

Values travel as float64 wherever a type has to be emulated: every value of the smaller types is
one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["FLOATS", "Float", "as_dtype", "float_of", "round_to"]


class Float(NamedTuple):
    """What the error model needs to know of a type."""

    bits: int
    """of the significand, the hidden one included"""
    tiny: float
    """the smallest positive value: what is smaller becomes 0 or this"""

    @property
    def roundoff(self) -> float:
        """The largest relative error of rounding to nearest."""
        return 2.0**-self.bits


FLOATS = {
    "float64": Float(53, 2.0**-1074),
    "float32": Float(24, 2.0**-149),
    "float16": Float(11, 2.0**-24),
    "bfloat16": Float(8, 2.0**-133),
    "tf32": Float(11, 2.0**-149),
}
"""float64, float32, float16, bfloat16, and tf32, the operands of NVIDIA's float32 tensor cores."""


def float_of(name: str) -> Float:
    """The type of this name.

    >>> float_of("bfloat16").roundoff
    0.00390625
    """
    if name not in FLOATS:
        raise ValueError(
            f'dtype="{name}" is unknown; expected one of {", ".join(FLOATS)}. Pass one by its name'
        )
    return FLOATS[name]


def round_to(x: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    """float64 values, each rounded to the nearest of the type (ties to even).

    >>> round_to([1.001, 1.004], "bfloat16").tolist()
    [1.0, 1.0078125]
    """
    bits, tiny = float_of(name)
    x = np.asarray(x, dtype=np.float64)
    if name in ("float16", "float32"):
        with np.errstate(over="ignore"):
            return x.astype(name).astype(np.float64)
    if name == "float64":
        return x
    last_bit = np.maximum(np.frexp(x)[1] - bits, np.frexp(tiny)[1] - 1)  # fewer below the normal
    return np.ldexp(np.rint(np.ldexp(x, -last_bit)), last_bit)


def as_dtype(x: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """x as an array of the type; float32 stands in for types that NumPy does not have.

    bfloat16 needs the package ml_dtypes (JAX brings it); without it, and for tf32, float32 arrays
    hold the rounded values.

    >>> as_dtype([1.0], "float16").dtype
    dtype('float16')
    """
    rounded = round_to(x, name)
    if name == "bfloat16":
        try:
            from ml_dtypes import bfloat16
        except ModuleNotFoundError:
            return rounded.astype(np.float32)
        return rounded.astype(bfloat16)
    return rounded.astype("float32" if name == "tf32" else name)
