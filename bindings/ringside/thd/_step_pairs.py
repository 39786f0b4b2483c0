"""The pairs that step metadata mean, ours or a peer's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._core import arguments

if TYPE_CHECKING:
    from ringside.thd._steps import StepMetadata

Integers = npt.NDArray[np.int64]

PEER_ARRAYS = ("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded")
PEER_MASKS = {  # attn_mask_type: whether it is causal, and whether the diagonal ends bottom right
    "no_mask": (False, True),
    "padding": (False, True),
    "causal": (True, False),
    "padding_causal": (True, False),
    "causal_bottom_right": (True, True),
    "padding_causal_bottom_right": (True, True),
}


class Entries(NamedTuple):
    """Queries in rows q_row and on, keys in rows k_row and on: [entries] each.

    Query i sees keys i + shift - left to i + shift + right of its entry; -1 is unbounded.
    """

    q_row: Integers
    k_row: Integers
    sq: Integers
    sk: Integers
    left: Integers
    right: Integers
    shift: Integers

    def intervals(self, b: int) -> tuple[Integers, Integers]:
        """([sq], [sq]) the key rows that each query of an entry sees: begin and end."""
        diagonal = np.arange(self.sq[b]) + self.shift[b]
        begin, end = np.zeros_like(diagonal), np.full_like(diagonal, self.sk[b])
        if self.left[b] >= 0:
            begin = np.clip(diagonal - self.left[b], 0, self.sk[b])
        if self.right[b] >= 0:
            end = np.clip(diagonal + self.right[b] + 1, 0, self.sk[b])
        return self.k_row[b] + begin, self.k_row[b] + np.maximum(begin, end)

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """(query row, first key row, end) of each query that sees anything."""
        for b in np.flatnonzero((self.sq > 0) & (self.sk > 0)).tolist():
            for i, (begin, end) in enumerate(zip(*self.intervals(b), strict=True)):
                if begin < end:
                    yield int(self.q_row[b]) + i, int(begin), int(end)


def entries_of(step: StepMetadata) -> Entries:
    """Those of a StepMetadata, in which the diagonal ends bottom right."""
    if step.count is not None:
        raise _core.Unsupported(
            "pairs of a step on a device, which only a look at all entries tells. Nearest "
            "supported: the metadata of a PackedLayout, on the host"
        )
    sq, sk = step.seqused_q.astype(np.int64), step.seqused_k.astype(np.int64)
    return Entries(
        step.cu_seqlens_q_padded[:-1].astype(np.int64),
        step.cu_seqlens_kv_padded[:-1].astype(np.int64),
        sq,
        sk,
        step.window_left.astype(np.int64),
        step.window_right.astype(np.int64),
        sk - sq,
    )


def entries_of_peer(step: Mapping[str, Any], name: str) -> Entries:
    """Those of the arguments of a varlen call, in Transformer Engine's words."""
    _refuse_unknown(step, name)
    cu_q, cu_kv = (_offsets(step[key], f"{name}[{key!r}]") for key in PEER_ARRAYS[:2])
    q_rows, k_rows = (
        cu if step.get(key) is None else _offsets(step[key], f"{name}[{key!r}]")
        for key, cu in zip(PEER_ARRAYS[2:], (cu_q, cu_kv), strict=True)
    )
    for key, offsets in zip(PEER_ARRAYS, (cu_q, cu_kv, q_rows, k_rows), strict=True):
        if len(offsets) != len(cu_q):
            raise ValueError(
                f"{name}[{key!r}] has {len(offsets)} offsets; expected {len(cu_q)}, as many as "
                "cu_seqlens_q. Pass one for every sequence and one more"
            )
    sq, sk = np.diff(cu_q), np.diff(cu_kv)
    causal, bottom_right = _mask_type(step, name)
    left, right = _window(step, name)
    ones = np.ones_like(sq)
    return Entries(
        q_rows[:-1],
        k_rows[:-1],
        sq,
        sk,
        left * ones,
        (0 if causal else right) * ones,
        sk - sq if bottom_right else 0 * ones,
    )


def _refuse_unknown(step: Mapping[str, Any], name: str) -> None:
    known = (*PEER_ARRAYS, "attn_mask_type", "window_size")
    unknown = [key for key in step if key not in known]
    missing = [key for key in PEER_ARRAYS[:2] if step.get(key) is None]
    if unknown or missing:
        got = f"{unknown[0]!r}" if unknown else f"no {missing[0]!r}"
        raise ValueError(
            f"{name} has {got}; expected {', '.join(known)}, of which the first two are needed"
        )


def _offsets(x: Any, name: str) -> Integers:
    offsets = arguments.integers(x, name).astype(np.int64)
    if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] < 0 or np.any(np.diff(offsets) < 0):
        raise ValueError(f"{name} is {offsets.tolist()}; expected [sequences+1] that never fall")
    return offsets


def _mask_type(step: Mapping[str, Any], name: str) -> tuple[bool, bool]:
    given = step.get("attn_mask_type", "padding")
    if given not in PEER_MASKS:
        raise ValueError(
            f"{name}['attn_mask_type'] is {given!r}; expected one of {', '.join(PEER_MASKS)}"
        )
    return PEER_MASKS[given]


def _window(step: Mapping[str, Any], name: str) -> tuple[int, int]:
    given = step.get("window_size")
    window = [-1, -1] if given is None else arguments.integers(given, f"{name} window_size")
    if len(window) != 2 or min(window) < -1:
        raise ValueError(f"{name}['window_size'] is {given!r}; expected (left, right), -1 for all")
    return int(window[0]), int(window[1])
