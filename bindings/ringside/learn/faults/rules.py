"""Eight rules of a ring, each beside one that people shipped instead.

The names of the functions say what each does; `SilentFault.beside` shows the two, as they stand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ringside.testing.dtypes import round_to

Array = npt.NDArray[np.float64]
Partial = tuple[Array, Array]
"""out [rows, heads, dim] and lse [heads, rows] of one step"""


def chunk_of_rounded_lengths(length: int, padded: int, ranks: int) -> int:
    """Rows of a chunk: lengths divided by their number, and the rest forgotten."""
    return length // (2 * ranks)


def chunk_of_all_rows(length: int, padded: int, ranks: int) -> int:
    """Rows of a chunk: so many that all of them hold every row."""
    return -(-padded // (2 * ranks))


def places_in_shard(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where the window counts from: the first row of the buffer that the kernel was given."""
    return np.arange(len(positions))


def places_in_document(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where the window counts from: the first token of the document."""
    return positions


def values_as_they_are(v: Array, valid: npt.NDArray[np.bool_]) -> Array:
    """Weights are 0 in padding, so what lies there cannot matter; but 0 * NaN is NaN."""
    return v


def values_of_tokens(v: Array, valid: npt.NDArray[np.bool_]) -> Array:
    """Rows of padding are never read."""
    return np.where(valid, v, 0.0)


def chunk_size_of_full_rows(chunk_size: int, length: int, padded: int) -> int:
    """Attention chunks: only the branch without padding knows of them."""
    return chunk_size if length == padded else 0


def chunk_size_of_mask(chunk_size: int, length: int, padded: int) -> int:
    """Attention chunks: with padding as without."""
    return chunk_size


def kv_head_dealt(head: int, num_heads: int, num_kv_heads: int) -> int:
    """The kv heads, repeated as a whole: 0 1 0 1."""
    return head % num_kv_heads


def kv_head_of_group(head: int, num_heads: int, num_kv_heads: int) -> int:
    """Each kv head, repeated in place: 0 0 1 1."""
    return head // (num_heads // num_kv_heads)


def out_of_step(of_step: Array, merged: Array) -> Array:
    """The out that dout * out is summed of in backward: the one that the step at hand returned."""
    return of_step


def out_of_all_steps(of_step: Array, merged: Array) -> Array:
    """The out that dout * out is summed of in backward: the one that the forward pass returned."""
    return merged


def dout_of_sum(dout: Array) -> Array:
    """The gradient of out.sum(), whatever the loss was."""
    return np.ones_like(dout)


def dout_as_given(dout: Array) -> Array:
    """The gradient that came in."""
    return dout


def merged_in_bfloat16(parts: list[Partial]) -> Partial:
    """out is added up in the type of the inputs, and every step rounds it."""
    lse = _lse_of_all(parts)
    out = np.zeros_like(parts[0][0])
    for part, own in parts:
        out = round_to(out + part * _share(own, lse), "bfloat16")
    return out, lse


def merged_in_wide_sums(parts: list[Partial]) -> Partial:
    """out is added up in a wider type, and rounded once at the end."""
    lse = _lse_of_all(parts)
    out = np.zeros_like(parts[0][0])
    for part, own in parts:
        out = out + part * _share(own, lse)
    return out, lse


def _lse_of_all(parts: list[Partial]) -> Array:
    lse = parts[0][1]
    for _, own in parts[1:]:
        lse = np.logaddexp(lse, own)
    return lse


def _share(own: Array, lse: Array) -> Array:
    """[rows, heads, 1] the weight of a step in all of them; 0 where it saw nothing."""
    return np.exp(own - np.where(np.isneginf(lse), 0.0, lse)).T[..., None]


class Rules(NamedTuple):
    """The ring as it should be; one field replaced makes it wrong."""

    chunk_rows: Callable[[int, int, int], int] = chunk_of_all_rows
    places: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]] = places_in_document
    values: Callable[[Array, npt.NDArray[np.bool_]], Array] = values_of_tokens
    chunk_size: Callable[[int, int, int], int] = chunk_size_of_mask
    kv_head: Callable[[int, int, int], int] = kv_head_of_group
    out: Callable[[Array, Array], Array] = out_of_all_steps
    dout: Callable[[Array], Array] = dout_as_given
    merge: Callable[[list[Partial]], Partial] = merged_in_wide_sums
