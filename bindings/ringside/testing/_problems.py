"""Attention problems with their answers: layouts, masks by name, arrays, the definition's results.

Operands are standard normal, so that every term of a sum is of the order of 1 and an error means
the same everywhere. All padding is NaN: whoever reads it, shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._attention.definition import attention, attention_backward
from ringside.testing._sizes import INT_MAX
from ringside.testing.cases import normal_rows

Array = npt.NDArray[np.float64]
TENSORS = ("out", "lse", "dq", "dk", "dv")


@dataclass(frozen=True)
class NamedMask:
    """A mask with the name that tables print.

    Attributes:
        cross: give keys other lengths than queries, without which alignment means nothing.
    """

    name: str
    mask: _core.Mask
    cross: bool = False


_NAMED = (
    NamedMask("full", _core.Mask.full()),
    NamedMask("causal", _core.Mask.causal()),
    NamedMask("window", _core.Mask.sliding_window(256, 64)),
    NamedMask("chunked", _core.Mask.chunked(512)),
    NamedMask("bottom_right", _core.Mask.sliding_window(512, 0, align="bottom_right"), cross=True),
)
MASKS = {named.name: named for named in _NAMED}


def mask_from(text: str) -> NamedMask:
    """A name of MASKS, or window:LEFT,RIGHT or chunked:N.

    >>> mask_from("window:8,0").mask
    Mask(window_size=(8, 0), chunk_size=0, align="top_left")
    """
    if text in MASKS:
        return MASKS[text]
    kind, _, numbers = text.partition(":")
    try:
        values = [int(number) for number in numbers.split(",")]
        if max(map(abs, values)) > INT_MAX:
            raise ValueError(f"expected numbers of at most {INT_MAX}. Pass -1 for no bound")
        if kind == "window" and len(values) == 2:
            return NamedMask(text, _core.Mask.sliding_window(*values))
        if kind == "chunked" and len(values) == 1:
            return NamedMask(text, _core.Mask.chunked(*values))
    except ValueError as error:
        if numbers.replace(",", "").replace("-", "").isdigit():
            raise ValueError(f'mask="{text}": {error}') from None
    known = ", ".join(MASKS)
    raise ValueError(
        f'mask="{text}" is unknown; expected one of {known}, or window:LEFT,RIGHT, or chunked:N'
    )


def padded_layout(lengths: npt.ArrayLike, pad_to: int) -> _core.PackedLayout:
    """Each document's rows rounded up to a multiple, and one multiple more below every third one.

    >>> padded_layout([5, 7, 8], 4).padded_lengths.tolist()
    [12, 8, 8]
    """
    valid = np.asarray(lengths, dtype=np.int64)
    if pad_to < 0:
        raise ValueError(f"pad_to={pad_to}; expected a number of rows, or 0 for no padding")
    if pad_to == 0:
        return _core.PackedLayout.from_lengths(valid)
    rows = -(-valid // pad_to) * pad_to
    rows[::3] += pad_to
    return _core.PackedLayout(_cumulative(valid), _cumulative(rows))


def cross_layout(layout: _core.PackedLayout, pad_to: int) -> _core.PackedLayout:
    """Keys for the queries of `layout`: half as many again (a cached prefix), half, and as many."""
    lengths = layout.lengths.astype(np.int64)
    lengths[0::3] += lengths[0::3] // 2
    lengths[1::3] //= 2
    return padded_layout(lengths, pad_to)


def _cumulative(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)])


@dataclass(frozen=True)
class Geometry:
    """The shape of a problem: everything but the numbers in it."""

    layout_q: _core.PackedLayout
    layout_k: _core.PackedLayout
    mask: _core.Mask
    num_heads: int
    num_kv_heads: int
    head_dim_qk: int
    head_dim_v: int

    def plan_arguments(self) -> dict[str, Any]:
        """What rs.plan needs to know of it."""
        return {
            "layout_q": self.layout_q,
            "layout_k": self.layout_k,
            "mask": self.mask,
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
        }

    def layout_of(self, tensor: str) -> _core.PackedLayout:
        """Where the rows of a result lie."""
        return self.layout_k if tensor in ("dk", "dv") else self.layout_q


@dataclass(frozen=True)
class SolvedProblem:
    """Operands, and `want`: the results by name, rows first, as the definition gives them."""

    geometry: Geometry
    q: Array  # [rows_q, num_heads, head_dim_qk]
    k: Array  # [rows_k, num_kv_heads, head_dim_qk]
    v: Array  # [rows_k, num_kv_heads, head_dim_v]
    dout: Array  # [rows_q, num_heads, head_dim_v]
    want: dict[str, Array]


def make_problem(geometry: Geometry, rng: np.random.Generator) -> SolvedProblem:
    """Draws the operands and computes the definition once, forward and backward."""
    g = geometry

    q = normal_rows(rng, g.layout_q, g.num_heads, g.head_dim_qk)
    k = normal_rows(rng, g.layout_k, g.num_kv_heads, g.head_dim_qk)
    v = normal_rows(rng, g.layout_k, g.num_kv_heads, g.head_dim_v)
    dout = normal_rows(rng, g.layout_q, g.num_heads, g.head_dim_v)
    layouts = (g.layout_q, g.layout_k)
    out, lse = attention(q, k, v, *layouts, mask=g.mask)
    grads = attention_backward(dout, q, k, v, out, lse, *layouts, mask=g.mask)
    return SolvedProblem(g, q, k, v, dout, results(out, lse, grads))


def results(out: Array, lse: Array, grads: tuple[Array, Array, Array]) -> dict[str, Array]:
    """The five results by name, all of shape [rows, heads, ...]."""
    return dict(zip(TENSORS, (out, lse.T, *grads), strict=True))


def a2a_size(comm: str, cp_size: int) -> int | None:
    """For a2a+p2p, the smallest groups that are no mere ring; None for the others.

    >>> a2a_size("a2a+p2p", 4), a2a_size("a2a+p2p", 9), a2a_size("p2p", 4)
    (2, 3, None)
    """
    if comm != "a2a+p2p":
        return None
    return next((n for n in range(2, cp_size + 1) if cp_size % n == 0), 1)
