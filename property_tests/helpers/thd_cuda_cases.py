"""Arrays of rows on a device, at any address, whose bytes are known on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import ringside as rs
from hypothesis import strategies as st

Bytes = npt.NDArray[np.uint8]
REORDERS = ("sequence_order_to_cp_rank_order", "cp_rank_order_to_sequence_order")

ITEM_BYTES = {
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "bfloat16": 2,
    "float16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
}


class Kind(NamedTuple):
    """How an array lies in memory: elements before its first row, and between two rows."""

    dtype: str
    shape: tuple[int, ...]  # of a row
    before: int
    between: int

    @property
    def row_bytes(self) -> int:
        return ITEM_BYTES[self.dtype] * int(np.prod(self.shape))


KV = Kind("bfloat16", (2, 64), 0, 0)


@st.composite
def kinds(draw: st.DrawFn, dtypes: Sequence[str] = tuple(ITEM_BYTES)) -> Kind:
    """Rows of every width; half of them lie so that wide loads are possible."""
    if draw(st.booleans()):
        shape = (draw(st.integers(1, 4)), 64)
        return Kind(draw(st.sampled_from(dtypes)), shape, 0, 64 * draw(st.integers(0, 2)))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    return Kind(
        draw(st.sampled_from(dtypes)), shape, draw(st.integers(0, 9)), draw(st.integers(0, 9))
    )


class Rows:
    """[rows, *shape] on the device, random bytes; `bytes` [rows, row_bytes] on the host."""

    def __init__(self, rows: int, kind: Kind, seed: int = 0):
        import torch

        item = ITEM_BYTES[kind.dtype]
        elements = int(np.prod(kind.shape))
        pitch = elements + kind.between
        whole = np.random.default_rng(seed).integers(
            0, 256, (kind.before + rows * pitch + 32) * item, dtype=np.uint8
        )
        self.kind = kind
        self.whole = torch.from_numpy(whole).cuda()
        inner = np.cumprod([1, *kind.shape[:0:-1]]).tolist()[::-1] if kind.shape else []
        self.array = torch.as_strided(
            self.whole.view(getattr(torch, kind.dtype)),
            (rows, *kind.shape),
            (max(pitch, 1), *inner),
            kind.before,
        )
        first = kind.before * item + np.arange(rows) * pitch * item
        self.of_rows = first[:, None] + np.arange(elements * item)
        self.before = whole
        self.bytes = whole[self.of_rows]

    def assert_holds(self, bytes_of_rows: Bytes) -> None:
        """The rows do, and every byte around them is as it was."""
        want = self.before.copy()
        want[self.of_rows] = bytes_of_rows
        assert np.array_equal(self.whole.cpu().numpy(), want)


def bytes_of(x: Any) -> Bytes:
    """[rows, row_bytes] of a tensor."""
    import torch

    dense = torch.empty(x.numel(), dtype=x.dtype, device=x.device)  # whatever x's strides are
    dense.view(x.shape).copy_(x)
    row_bytes = int(np.prod(x.shape[1:])) * x.element_size()
    return dense.view(torch.uint8).cpu().numpy().reshape(x.shape[0], row_bytes)


def offsets(values: Any, wide: bool = False) -> Any:
    """On the device, as int64 or int32."""
    import torch

    return torch.tensor(np.asarray(values), dtype=torch.int64 if wide else torch.int32).cuda()


def device_layout(layout: rs.PackedLayout, wide: bool = False) -> rs.thd.DeviceLayout:
    """The same layout, known to the device only."""
    return rs.thd.DeviceLayout(
        offsets(layout.cu_seqlens, wide), offsets(layout.cu_seqlens_padded, wide), layout.num_rows
    )
