"""What padding holds: a value that the array's dtype holds as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ringside import _core


def fill_value(value: Any, dtype: Any, name: str, arrays: str) -> npt.NDArray[Any]:
    """The value as a 0-d array of the dtype; NumPy would cut off fractions and wrap around.

    Args:
        value: what the caller passed as the argument `name`.
        dtype: of the arrays that get it; a floating type rounds it, as it rounds any number.
        arrays: what the caller calls them.

    Raises:
        TypeError: another kind of value, or a hidden one of numpy.ma.
        ValueError: a value that the dtype would change.

    >>> import numpy as np
    >>> fill_value(-100, np.int64, "fill_value", "x")
    array(-100)
    """
    dtype = np.dtype(dtype)
    given = _core.arguments.array(value, name)
    if given.ndim != 0:
        raise _core.InvalidArgument(f"{name} has shape {given.shape}; expected one value")
    if not _may_become(given.dtype.kind, dtype.kind):
        raise TypeError(
            f"{name} is a {type(value).__name__}; expected a value for {arrays} of dtype {dtype}"
        )
    with np.errstate(all="ignore"):
        held = given.astype(dtype)
        kept = _is_kept(given, held)
    if not kept:
        raise _core.InvalidArgument(
            f"{name}={value} does not fit {arrays} of dtype {dtype}; it would become {held}. "
            f"Pass {arrays} of another dtype, e.g. np.int64 or np.float32, or a {name} that fits"
        )
    return held


def _may_become(from_kind: str, to_kind: str) -> bool:
    """Nothing loses an imaginary part, and numbers are never read out of text or objects."""
    if to_kind in ("O", from_kind):
        return True
    if to_kind in "Mm":  # dates count from 0
        return from_kind in "iu"
    return from_kind in "biuf"


def _is_kept(given: npt.NDArray[Any], held: npt.NDArray[Any]) -> bool:
    if held.dtype.kind in "OVMmT":
        return True
    if held.dtype.kind in "SU":  # written out, not cut off
        return bool(held == given.astype(held.dtype.kind))
    if held.dtype.kind in "fc":  # rounded, but within its range
        return bool(np.isfinite(held)) or not np.isfinite(given)
    return bool(held == given)
