"""Partial results of a plan's steps, and what is left of them once they are merged in few bits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ringside._core import InvalidArgument, Segment, Step, arguments
from ringside._plan.plan import Plan
from ringside.testing.dtypes import FLOATS, round_to

Array = npt.NDArray[np.float64]


class Partials(NamedTuple):
    """What the steps of a rank return of its rows, in the order of the plan; head 0.

    Attributes:
        shares: [steps, rows] of the whole softmax, 0 where a row sees nothing; they sum to 1.
        outs: [steps, rows, head_dim] softmax(scores of the step) times v.
    """

    shares: Array
    outs: Array

    def merged(self, dtype: str) -> Array:
        """[steps, rows, head_dim] out after each step, where the sum is kept in a type.

        >>> import numpy as np
        >>> from ringside import learn
        >>> parts = learn.Partials(np.full((2, 1), 0.5), np.array([[[1.0]], [[1.01]]]))
        >>> parts.merged("bfloat16").ravel().tolist(), parts.merged("float64").ravel().tolist()
        ([0.5, 1.0078125], [0.5, 1.005])
        """
        if dtype not in FLOATS:
            raise InvalidArgument(f"got dtype {dtype!r}; expected one of {', '.join(FLOATS)}")
        total = np.zeros(self.outs.shape[1:])
        after = np.empty_like(self.outs)
        for step, (share, out) in enumerate(zip(self.shares, self.outs, strict=True)):
            total = after[step] = round_to(total + share[:, None] * out, dtype)
        return after

    def errors(self, dtype: str) -> Array:
        """[steps] the largest error of the sum after each step.

        >>> import numpy as np
        >>> from ringside import learn
        >>> parts = learn.Partials(np.full((2, 1), 0.5), np.array([[[1.0]], [[1.01]]]))
        >>> parts.errors("bfloat16").round(3).tolist()
        [0.0, 0.003]
        """
        off = np.abs(self.merged(dtype) - self.merged("float64"))
        return np.asarray(off.max(axis=(1, 2), initial=0.0))

    def first_rows(self, rows: int) -> Partials:
        """Of the first so many rows of the rank.

        >>> import numpy as np
        >>> from ringside import learn
        >>> learn.Partials(np.ones((1, 3)), np.zeros((1, 3, 2))).first_rows(2).outs.shape
        (1, 2, 2)
        """
        rows = arguments.integer(rows, "rows")
        if not 0 <= rows <= self.shares.shape[1]:
            raise InvalidArgument(
                f"got {rows} rows; expected 0 to {self.shares.shape[1]}, which there are"
            )
        return Partials(self.shares[:, :rows], self.outs[:, :rows])

    def reordered(self, order: npt.ArrayLike) -> Partials:
        """The same steps in another order.

        >>> import numpy as np
        >>> from ringside import learn
        >>> parts = learn.Partials(np.array([[0.1], [0.9]]), np.zeros((2, 1, 1)))
        >>> parts.reordered([1, 0]).shares.ravel().tolist()
        [0.9, 0.1]
        """
        order = arguments.integers(order, "order")
        if sorted(order.tolist()) != list(range(len(self.shares))):
            raise InvalidArgument(
                f"got order {order.tolist()}; expected each of the {len(self.shares)} steps once"
            )
        return Partials(self.shares[order], self.outs[order])


def partials(
    plan: Plan, q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike, rank: int
) -> Partials:
    """What each step of a rank returns for its rows, by the plan's tiles, in float64.

    Args:
        plan: whose ranks keep their rows: comm "p2p", "all_gather" or "fetch".
        q, k, v: [rows, heads, dim] of the pack; head 0 is looked at.
        rank: whose rows.

    Raises:
        InvalidArgument: the plan moves queries, or has no such rank.

    >>> import numpy as np, ringside as rs
    >>> from ringside import learn
    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 8, 1, 4))
    >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
    >>> parts = learn.partials(plan, q, k, v, rank=1)
    >>> out, _ = plan.attention(q, k, v)
    >>> bool(np.allclose(parts.merged("float64")[-1], plan.shard(out, 1)[:, 0]))
    True
    """
    rank = arguments.integer(rank, "rank")
    if not 0 <= rank < plan.cp_size:
        raise InvalidArgument(f"got rank {rank}; expected 0 to {plan.cp_size - 1}")
    if plan.comm.startswith("a2a"):
        raise InvalidArgument(
            f'got a plan over {plan.comm}, whose ranks trade queries; expected one over "p2p", '
            '"all_gather" or "fetch". Build such a plan'
        )
    q, k, v = (arguments.floating(x, name)[:, 0] for x, name in ((q, "q"), (k, "k"), (v, "v")))
    rows = len(plan.row_indices(rank))
    found = [_step(plan, q, k, v, step, rows) for step in plan.steps(rank)]
    lse = np.array([each[0] for each in found]).reshape(len(found), rows)
    total = np.logaddexp.reduce(lse, axis=0, initial=-np.inf)
    shares = np.exp(lse - np.where(np.isneginf(total), 0.0, total))
    return Partials(
        shares, np.array([each[1] for each in found]).reshape(len(found), rows, v.shape[1])
    )


def _step(plan: Plan, q: Array, k: Array, v: Array, step: Step, rows: int) -> tuple[Array, Array]:
    """lse [rows] and out [rows, dim] of one step; -inf and 0 where nothing is seen."""
    resident = sum(segment.len for segment in step.kv)
    scores, values = np.full((rows, resident), -np.inf), np.zeros((resident, v.shape[1]))
    for tile in step.tiles:
        n_q, n_k = (int(x.lengths[tile.q.seq]) for x in (plan.layout_q, plan.layout_k))
        of_q, of_k = tile.q.positions, tile.k.positions
        seen = np.transpose(plan.mask._visible(of_q, n_q, n_k))  # [begin, end)
        here = slice(tile.q.row, tile.q.row + tile.q.len)
        keys = slice(tile.k.row, tile.k.row + tile.k.len)
        of_pack = _rows(plan, tile.k, "k")
        product = q[_rows(plan, tile.q, "q")] @ k[of_pack].T * q.shape[1] ** -0.5
        visible = (of_k >= seen[:, :1]) & (of_k < seen[:, 1:])
        visible &= (of_q < n_q)[:, None] & (of_k < n_k)  # a tile may reach into padding
        scores[here, keys] = np.where(visible, product, -np.inf)
        values[keys] = np.where((of_k < n_k)[:, None], v[of_pack], 0.0)
    top = scores.max(axis=1, keepdims=True, initial=-np.inf)
    top = np.where(np.isneginf(top), 0.0, top)
    weights = np.exp(scores - top)
    total = weights.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[:, 0]
    return lse, weights @ values / np.where(total > 0, total, 1.0)


def _rows(plan: Plan, segment: Segment, side: str) -> npt.NDArray[np.int64]:
    """Of the pack."""
    layout = plan.layout_q if side == "q" else plan.layout_k
    return int(layout.cu_seqlens_padded[segment.seq]) + segment.positions.astype(np.int64)
