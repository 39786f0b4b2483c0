"""Dense batches as packed ones: bshd and sbhd are layouts of equal lengths."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ringside._core import arguments

QkvFormat = Literal["thd", "bshd", "sbhd"]
Array = npt.NDArray[Any]


def check_format(qkv_format: str) -> None:
    """Raises ValueError for an unknown name, listing the known ones."""
    if arguments.text(qkv_format, "qkv_format") not in ("thd", "bshd", "sbhd"):
        raise ValueError(f'qkv_format="{qkv_format}" is unknown; expected "thd", "bshd" or "sbhd"')


def to_thd(x: npt.ArrayLike, name: str, qkv_format: str) -> Array:
    """[b, s, h, d] or [s, b, h, d] to [b*s, h, d]; thd stays as it is."""
    x = (
        x if hasattr(x, "swapaxes") else arguments.array(x, name)
    )  # arrays of other libraries stay theirs
    if qkv_format == "thd":
        return x
    if x.ndim != 4:
        expected = "[batch, seqlen, heads, dim]" if qkv_format == "bshd" else "[seqlen, batch, ...]"
        raise ValueError(f'{name} has shape {x.shape}; expected {expected} for "{qkv_format}"')
    if qkv_format == "sbhd":
        x = x.swapaxes(0, 1)
    return x.reshape(-1, *x.shape[2:])


def from_thd(x: Array, qkv_format: str, batch: int) -> Array:
    """The inverse of to_thd, for results."""
    if qkv_format == "thd":
        return x
    dense = x.reshape(batch, -1 if batch else 0, *x.shape[1:])
    return dense if qkv_format == "bshd" else dense.swapaxes(0, 1)


def lse_to_thd(lse: npt.ArrayLike, qkv_format: str) -> Array:
    """[b, h, s] to [h, b*s]; thd's [h, rows] stays."""
    lse = lse if hasattr(lse, "swapaxes") else arguments.array(lse, "lse")
    if qkv_format == "thd":
        return lse
    if lse.ndim != 3:
        raise ValueError(f"lse has shape {lse.shape}; expected [batch, heads, seqlen]")
    return lse.swapaxes(0, 1).reshape(lse.shape[1], -1)


def lse_from_thd(lse: Array, qkv_format: str, batch: int) -> Array:
    """The inverse of lse_to_thd."""
    if qkv_format == "thd":
        return lse
    return lse.reshape(lse.shape[0], batch, -1 if batch else 0).swapaxes(0, 1)


def batch_and_seqlen(x: npt.ArrayLike, name: str, qkv_format: str) -> tuple[int, int]:
    """Of a dense batch."""
    shape = np.shape(x if hasattr(x, "shape") else arguments.array(x, name))
    if len(shape) != 4:
        raise ValueError(f'{name} has shape {shape}; expected four dimensions for "{qkv_format}"')
    return (shape[0], shape[1]) if qkv_format == "bshd" else (shape[1], shape[0])
