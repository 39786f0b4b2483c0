"""Dense batches as packed ones: bshd and sbhd are layouts of equal lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ringside._core import PackedLayout, arguments

QkvFormat = Literal["thd", "bshd", "sbhd"]
Array = npt.NDArray[Any]


def check_format(qkv_format: str) -> None:
    """Raises ValueError for an unknown name, listing the known ones."""
    if arguments.text(qkv_format, "qkv_format") not in ("thd", "bshd", "sbhd"):
        raise ValueError(f'qkv_format="{qkv_format}" is unknown; expected "thd", "bshd" or "sbhd"')


def to_thd(
    x: npt.ArrayLike, name: str, qkv_format: str, layout: PackedLayout | None = None
) -> Array:
    """[b, s, h, d] or [s, b, h, d] to [b*s, h, d]; thd stays as it is.

    Args:
        x: the array.
        name: of the array.
        qkv_format: of the array.
        layout: whose sequences a dense batch must have; None: known to the device only.
    """
    x = (
        x if hasattr(x, "swapaxes") else arguments.array(x, name)
    )  # arrays of other libraries stay theirs
    if qkv_format == "thd":
        return x
    if x.ndim != 4:
        expected = "[batch, seqlen, heads, dim]" if qkv_format == "bshd" else "[seqlen, batch, ...]"
        raise ValueError(f'{name} has shape {x.shape}; expected {expected} for "{qkv_format}"')
    if layout is not None:
        _require_batch(x, name, qkv_format, layout)
    if qkv_format == "sbhd":
        x = x.swapaxes(0, 1)
    return x.reshape(-1, *x.shape[2:])


def all_to_thd(
    named: Mapping[str, npt.ArrayLike],
    qkv_format: str,
    layout_q: PackedLayout | None,
    layout_k: PackedLayout | None,
) -> dict[str, Array]:
    """The arrays of a call: k and v have the rows of layout_k, all others those of layout_q."""
    thd = {
        name: to_thd(x, name, qkv_format, layout_k if name in ("k", "v") else layout_q)
        for name, x in named.items()
        if name != "lse"
    }
    return thd | {"lse": lse_to_thd(named["lse"], qkv_format, layout_q)} if "lse" in named else thd


def _require_batch(x: Array, name: str, qkv_format: str, layout: PackedLayout) -> None:
    """Raises ValueError where a dense batch has other sequences than the layout."""
    seqlens, is_bshd = set(layout.padded_lengths.tolist()), qkv_format == "bshd"
    batch, seqlen = x.shape[:2] if is_bshd else x.shape[1::-1]
    if batch == layout.num_sequences and seqlens <= {seqlen}:
        return
    shape = (
        f'{name} has shape {tuple(x.shape)}, for "{qkv_format}" {batch} sequences of {seqlen} rows'
    )
    whole = f"{name}{'[0]' if is_bshd else '[:, 0]'}"
    fix = f'Pass qkv_format="thd" and [{layout.num_rows}, heads, dim]'
    if batch == 1 and seqlen == layout.num_rows:
        fix = f'Pass qkv_format="thd" and {whole}'
    if len(seqlens) > 1:
        raise ValueError(
            f'{shape}; expected "thd", as the layout\'s sequences have {min(seqlens)} to '
            f"{max(seqlens)} rows, which no dense batch has. {fix}"
        )
    wanted = (layout.num_sequences, *(seqlens or {seqlen}))
    raise ValueError(
        f"{shape}; expected {wanted[0]} of {wanted[1]}, as the layout has: "
        f"{wanted if is_bshd else wanted[::-1]} and heads, dim. {fix}, or another layout"
    )


def from_thd(x: Array, qkv_format: str, batch: int) -> Array:
    """The inverse of to_thd, for results."""
    if qkv_format == "thd":
        return x
    dense = x.reshape(batch, -1 if batch else 0, *x.shape[1:])
    return dense if qkv_format == "bshd" else dense.swapaxes(0, 1)


def lse_to_thd(lse: npt.ArrayLike, qkv_format: str, layout: PackedLayout | None = None) -> Array:
    """[b, h, s] to [h, b*s]; thd's [h, rows] stays. Layout as for to_thd."""
    lse = lse if hasattr(lse, "swapaxes") else arguments.array(lse, "lse")
    if qkv_format == "thd":
        return lse
    alike = layout if layout is not None and layout.num_sequences else None
    wanted: tuple[Any, Any] = ("batch", "seqlen")
    if alike is not None:
        wanted = (alike.num_sequences, alike.num_rows // alike.num_sequences)
    if lse.ndim != 3 or (alike is not None and tuple(lse.shape[::2]) != wanted):
        raise ValueError(
            f"lse has shape {tuple(lse.shape)}; expected [{wanted[0]}, heads, {wanted[1]}]. Pass "
            f'what attention returned for "{qkv_format}"'
        )
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
