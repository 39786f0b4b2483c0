"""Packed sequences padded to what the peers need; see ringside.thd."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._arguments.fill_value import fill_value
from ringside._arguments.gradients import without_gradients
from ringside._arguments.kinds import answers_in_kind
from ringside._core import arguments
from ringside._rows import positions, valid_rows


class PaddedBatch(NamedTuple):
    """What pad_to_multiple returns.

    Attributes:
        tokens: [rows, ...], pad_token in padding.
        labels: [rows, ...], pad_label in padding; None if none were given.
        position_ids: [rows] int32, from 0 in each sequence, counting on through its padding.
        cu_seqlens_padded: [batch+1] int32, where each sequence's rows start.
    """

    tokens: npt.NDArray[Any]
    labels: npt.NDArray[Any] | None
    position_ids: npt.NDArray[np.int32]
    cu_seqlens_padded: npt.NDArray[np.int32]


@without_gradients("ringside.PackedLayout.pack()")
@answers_in_kind("tokens", "labels")
def pad_to_multiple(
    tokens: npt.ArrayLike,
    labels: npt.ArrayLike | None,
    cu_seqlens: npt.ArrayLike,
    multiple: int,
    *,
    pad_token: Any = 0,
    pad_label: Any = -100,
) -> PaddedBatch:
    """Pads each sequence of a packed batch to a multiple of rows, as the peers need: 2*cp_size.

    Args:
        tokens: [tokens, ...], no padding yet.
        labels: [tokens, ...] or None.
        cu_seqlens: [batch+1] integers, cumulative numbers of tokens.
        multiple: of rows, at least 1.
        pad_token, pad_label: what padding holds; -100 is what cross-entropy losses ignore.

    Raises:
        ValueError: tokens or labels that are not as long as cu_seqlens says, a pad value that their
            dtype cannot hold.

    Source: Transformer Engine's pad_thd_sequences_for_cp and generate_positional_ids_for_cp.

    >>> import ringside as rs
    >>> batch = rs.thd.pad_to_multiple([7, 8, 9, 5], [8, 9, 1, 2], [0, 3, 4], 4)
    >>> batch.tokens.tolist(), batch.labels.tolist()
    ([7, 8, 9, 0, 5, 0, 0, 0], [8, 9, 1, -100, 2, -100, -100, -100])
    >>> batch.position_ids.tolist(), batch.cu_seqlens_padded.tolist()
    ([0, 1, 2, 3, 0, 1, 2, 3], [0, 4, 8])
    """
    packed = _core.PackedLayout(cu_seqlens)
    multiple = arguments.int32(multiple, "multiple")
    layout = _core.PackedLayout.from_lengths(packed.lengths, pad_to_multiple_of=multiple)
    valid = valid_rows(layout)
    return PaddedBatch(
        _spread(tokens, valid, pad_token, "token"),
        None if labels is None else _spread(labels, valid, pad_label, "label"),
        positions(layout),
        layout.cu_seqlens_padded.copy(),  # the caller's, to be written to
    )


def _spread(
    x: npt.ArrayLike, valid: npt.NDArray[np.bool_], pad: Any, name: str
) -> npt.NDArray[Any]:
    """The rows of x in the valid rows of a new array, pad in the others."""
    x = arguments.array(x, f"{name}s")
    count = np.count_nonzero(valid)
    if x.ndim == 0 or x.shape[0] != count:
        raise _core.InvalidArgument(
            f"{name}s has shape {x.shape}; expected {count} rows, as cu_seqlens says. "
            "Pass them without padding, one row a token"
        )
    held = fill_value(pad, x.dtype, f"pad_{name}", f"{name}s")
    rows = np.full((len(valid), *x.shape[1:]), held, dtype=x.dtype)
    rows[valid] = x
    return rows
