"""One K/V buffer and one gradient buffer, shared by all micro-sequences of a packed sequence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ringside._arguments.gradients import without_gradients
from ringside._arguments.kinds import STATISTIC, answers_in_kind
from ringside._core import Mask, PackedLayout, Unsupported, arguments
from ringside._plan.build import plan as new_plan

__all__ = ["MicroSequenceBuffer"]

Float64 = npt.NDArray[np.float64]


class MicroSequenceBuffer:
    """Attention over a packed sequence that is processed piece by piece.

    Micro-sequence i holds rows splits[i] up to splits[i+1]. Its queries see the keys of their own
    documents in this and all earlier micro-sequences. Forward runs in order and writes each
    piece's keys and values into one shared buffer; backward runs in reverse, accumulates into one
    shared gradient buffer, and hands each piece the finished gradient of its own rows.

    A document may straddle pieces: the first document of a piece then has more keys than queries
    and is aligned bottom-right. Keys before the first document's beginning are not even passed
    on, so their gradient stays exactly 0. Each piece is an ordinary plan, so every partition and
    transport composes. Dropout drops what it drops in the whole sequence: documents and positions
    are those of the whole.

    Args:
        layout: of the whole packed sequence.
        splits: [micro-sequences + 1] rows, rising from 0 to layout.num_rows.
        mask: what a query sees in its document. Keys ahead of the query would lie in pieces that
            are yet to come, so right must be 0.
        plan_arguments: cp_size, partition, comm, a2a_size, stages, num_heads, num_kv_heads, as
            for ringside.plan; default one rank.

    Raises:
        ValueError: splits that do not rise from 0 to num_rows; pieces out of order.
        Unsupported: a mask with right != 0.

    Source: ServiceNow Fast-LLM, pull request 514.

    >>> import numpy as np, ringside as rs
    >>> layout = rs.PackedLayout([0, 5, 11, 20])
    >>> q = k = np.zeros((20, 1, 2)); v = np.arange(20.0).reshape(20, 1, 1)
    >>> buffer = rs.MicroSequenceBuffer(layout, [0, 8, 14, 20])
    >>> buffer.first_document_begin(1), buffer.layouts(1)[1].cu_seqlens.tolist()
    (5, [0, 6, 9])
    >>> pieces = [buffer.forward(i, q[rows], k[rows], v[rows])[0]
    ...           for i, rows in enumerate(buffer.row_slices)]
    >>> whole = rs.attention(q, k, v, layout)[0]
    >>> bool(np.allclose(np.concatenate(pieces), whole, rtol=0, atol=1e-14))
    True
    """

    def __init__(
        self,
        layout: PackedLayout,
        splits: Sequence[int],
        *,
        mask: Mask = Mask.causal(),  # noqa: B008  (immutable)
        **plan_arguments: Any,
    ) -> None:
        splits = arguments.integers(splits, "splits").tolist()
        layout, mask = arguments.layout(layout, "layout"), arguments.mask(mask, "mask")
        rises = all(a <= b for a, b in pairwise(splits))
        if len(splits) < 2 or splits[0] != 0 or splits[-1] != layout.num_rows or not rises:
            raise ValueError(
                f"splits={splits}; expected rows that rise from 0 to {layout.num_rows}, for "
                f"example [0, {layout.num_rows // 2}, {layout.num_rows}]"
            )
        left, right = mask.window_size
        if right != 0:
            raise Unsupported(
                f"{mask} lets queries see keys ahead of them, which lie in micro-sequences that "
                f"are yet to come. Nearest supported: window_size=({left}, 0)"
            )
        self.layout = layout
        self.mask = Mask(window_size=(left, 0), chunk_size=mask.chunk_size, align="bottom_right")
        self.row_slices = [slice(a, b) for a, b in pairwise(splits)]
        plan_arguments.setdefault("cp_size", 1)
        self.plans = [
            new_plan(*self.layouts(i), mask=self.mask, **plan_arguments)
            for i in range(len(self.row_slices))
        ]
        for i, plan in enumerate(self.plans):
            plan._dropout_origin = self._origin(i)
        self.frontier = 0  # micro-sequences forwarded and not yet taken back
        self.k: Float64 | None = None  # [num_rows, num_kv_heads, head_dim_qk]
        self.v: Float64 | None = None  # [num_rows, num_kv_heads, head_dim_v]
        self.dk: Float64 | None = None  # like k, from the first backward on
        self.dv: Float64 | None = None
        self._keywords: dict[int, dict[str, Any]] = {}

    def first_document_begin(self, i: int) -> int:
        """The row where the first document of micro-sequence i begins: its keys start there.

        >>> import ringside as rs
        >>> rs.MicroSequenceBuffer(rs.PackedLayout([0, 5, 9]), [0, 7, 9]).first_document_begin(1)
        5
        """
        rows = self._rows(i)
        starts = self.layout.cu_seqlens_padded
        if rows.start == rows.stop:
            return rows.start
        return int(starts[np.searchsorted(starts, rows.start, side="right") - 1])

    def layouts(self, i: int) -> tuple[PackedLayout, PackedLayout]:
        """(layout of the queries, layout of the keys) of micro-sequence i.

        Query rows count from the start of the piece, key rows from first_document_begin(i).

        >>> import ringside as rs
        >>> rs.MicroSequenceBuffer(rs.PackedLayout([0, 5, 9]), [0, 7, 9]).layouts(1)
        (PackedLayout(cu_seqlens=[0, 2]), PackedLayout(cu_seqlens=[0, 4]))
        """
        rows, present = self._rows(i), self._documents(i)
        starts, ends = self.layout.cu_seqlens_padded[:-1], self.layout.cu_seqlens_padded[1:]
        valid_ends = starts + self.layout.lengths
        begin = np.maximum(starts[present], rows.start)
        end = np.minimum(ends[present], rows.stop)
        valid_end = np.minimum(valid_ends[present], rows.stop)
        return (
            _layout(valid_end - begin, end - begin),
            _layout(valid_end - starts[present], end - starts[present]),
        )

    @without_gradients("forward() and backward() inside of a torch.autograd.Function")
    @answers_in_kind("q", STATISTIC)
    def forward(
        self, i: int, q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike, **keywords: Any
    ) -> tuple[Float64, Float64]:
        """Writes the piece's keys and values into the buffer and runs its attention.

        Args:
            i: the micro-sequence; they go forward in order.
            q, k, v: its rows, as for Plan.attention.
            keywords: options, or softmax_scale, sink, ..., as for Plan.attention; backward uses the
                same.

        Returns:
            (out, lse) of the piece.

        >>> import numpy as np, ringside as rs
        >>> buffer = rs.MicroSequenceBuffer(rs.PackedLayout([0, 4]), [0, 2, 4])
        >>> q = k = np.zeros((2, 1, 1)); v = np.array([[[1.0]], [[3.0]]])
        >>> [buffer.forward(i, q, k, v)[0].ravel().round(2).tolist() for i in (0, 1)]
        [[1.0, 2.0], [1.67, 2.0]]
        """
        if arguments.int32(i, "i") != self.frontier:
            raise ValueError(
                f"got micro-sequence {i}; expected {self.frontier}: forward is in order"
            )
        if i == 0:  # a new sequence: its gradients start from nothing
            self.dk = self.dv = None
        rows = self.row_slices[i]
        self.k = _write(self.k, k, rows, self.layout.num_rows, "k")
        self.v = _write(self.v, v, rows, self.layout.num_rows, "v")
        seen = self._seen(i)
        result = self.plans[i].attention(q, self.k[seen], self.v[seen], **keywords)
        self._keywords[i] = keywords
        self.frontier += 1
        return result

    @without_gradients("forward() and backward() inside of a torch.autograd.Function")
    @answers_in_kind("q", "q", "q", STATISTIC)
    def backward(
        self,
        i: int,
        dout: npt.ArrayLike,
        q: npt.ArrayLike,
        out: npt.ArrayLike,
        lse: npt.ArrayLike,
    ) -> tuple[Float64, ...]:
        """Accumulates into the gradient buffer and returns what is finished.

        Args:
            i: the micro-sequence; they go backward in reverse order.
            dout: gradient of out; q, out, lse: as forward got and returned them.

        Returns:
            (dq, dk, dv) of the piece's own rows, later pieces' contributions included, and dsink of
            this piece where there is a sink.

        >>> import numpy as np, ringside as rs
        >>> buffer = rs.MicroSequenceBuffer(rs.PackedLayout([0, 4]), [0, 2, 4])
        >>> q = k = v = np.zeros((2, 1, 1)); dout = np.ones((2, 1, 1))
        >>> saved = [buffer.forward(i, q, k, v) for i in (0, 1)]
        >>> dvs = [buffer.backward(i, dout, q, *saved[i])[2] for i in (1, 0)]
        >>> [dv.ravel().round(2).tolist() for dv in dvs]
        [[0.58, 0.25], [2.08, 1.08]]
        """
        if arguments.int32(i, "i") != self.frontier - 1:
            raise ValueError(
                f"got micro-sequence {i}; expected {self.frontier - 1}: backward is in reverse"
            )
        assert self.k is not None and self.v is not None
        if self.dk is None or self.dv is None:
            self.dk, self.dv = np.zeros_like(self.k), np.zeros_like(self.v)
        seen, rows = self._seen(i), self.row_slices[i]
        dq, dk, dv, *dsink = self.plans[i].attention_backward(
            dout, q, self.k[seen], self.v[seen], out, lse, **self._keywords.pop(i)
        )
        self.dk[seen] += dk
        self.dv[seen] += dv
        self.frontier -= 1
        return dq, self.dk[rows].copy(), self.dv[rows].copy(), *dsink

    def _rows(self, i: int) -> slice:
        if not 0 <= arguments.int32(i, "i") < len(self.row_slices):
            raise ValueError(f"i={i}; expected 0 to {len(self.row_slices) - 1}")
        return self.row_slices[i]

    def _documents(self, i: int) -> npt.NDArray[np.int64]:
        """Those that micro-sequence i has rows of, and empty ones between: they follow each other,
        so that document j of the piece is document j + the first one of the whole."""
        rows, starts = self.row_slices[i], self.layout.cu_seqlens_padded
        present = np.maximum(starts[:-1], rows.start) < np.minimum(starts[1:], rows.stop)
        found = present.nonzero()[0]
        return np.arange(found[0], found[-1] + 1) if len(found) else found

    def _origin(self, i: int) -> tuple[int, int]:
        """The first document of micro-sequence i, and which of its tokens is the first one here."""
        documents = self._documents(i)
        if not len(documents):
            return 0, 0
        return int(documents[0]), self.row_slices[i].start - self.first_document_begin(i)

    def _seen(self, i: int) -> slice:
        return slice(self.first_document_begin(i), self.row_slices[i].stop)


def _layout(lengths: npt.NDArray[np.int32], padded: npt.NDArray[np.int32]) -> PackedLayout:
    starts = np.concatenate([[0], np.cumsum(padded)])
    return PackedLayout.from_flash(starts.astype(np.int64), np.maximum(lengths, 0))


def _write(
    buffer: Float64 | None, x: npt.ArrayLike, rows: slice, num_rows: int, name: str
) -> Float64:
    x = arguments.floating(x, name)
    if x.ndim != 3 or x.shape[0] != rows.stop - rows.start:
        raise ValueError(
            f"{name} has shape {x.shape}; expected [{rows.stop - rows.start}, heads, dim], rows "
            f"{rows.start} to {rows.stop} of the packed sequence"
        )
    if buffer is None:
        buffer = np.full((num_rows, *x.shape[1:]), np.nan)
    if buffer.shape[1:] != x.shape[1:]:
        raise ValueError(f"{name} has shape {x.shape}; earlier pieces had {buffer.shape[1:]} a row")
    buffer[rows] = x
    return buffer
