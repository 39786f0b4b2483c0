"""A plan's counts by a model of a machine: what it would take, and when who would work."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ringside import _core
from ringside._core import arguments
from ringside._plan import measured
from ringside._time.loads import ITEMSIZE, Shape, loads
from ringside._time.model import TimeModel, as_model
from ringside._time.timeline import Timeline
from ringside._time.walk import walk

if TYPE_CHECKING:
    from ringside._plan.plan import Plan

Direction = Literal["forward", "backward"]
MEASURED = measured.SOURCE  # instead of a model


class TimedCost(_core.PlanCost):
    """What a plan counts, and when each rank would work and wait, by a model.

    Attributes:
        model: of the machine.

    >>> import ringside as rs
    >>> layout = rs.PackedLayout([0, 131072])
    >>> cost = rs.estimate(layout, cp_size=8, num_heads=16, model="h200")
    >>> cost.forward.total_us < cost.backward.total_us
    True
    >>> cost.forward.work.begin.shape
    (8, 8)
    """

    def __init__(self, counts: _core.PlanCost, model: TimeModel, shape: Shape) -> None:
        super().__init__(counts)
        self.model, self._shape = model, shape

    @cached_property
    def forward(self) -> Timeline:
        """When ranks work and wait in the forward pass."""
        return timeline_of(self, self.model, self._shape, "forward")

    @cached_property
    def backward(self) -> Timeline:
        """When ranks work and wait in the backward pass."""
        return timeline_of(self, self.model, self._shape, "backward")


def timeline_of(
    cost: _core.PlanCost, model: TimeModel, shape: Shape, direction: Direction
) -> Timeline:
    """Of one pass."""
    found = walk(loads(cost, shape, model, direction), model)
    backward = direction == "backward"
    peak = cost.backward_workspace_bytes if backward else cost.workspace_bytes
    return Timeline(direction, model.name, found.work, found.exchange, peak)


def timed(
    cost: _core.PlanCost, model: TimeModel, shape: Shape, bytes_per_element: int
) -> TimedCost:
    """The counts with their times; refuses those of other blocks or elements than the model's."""
    kernel = model.kernel(shape.head_dim, shape.dtype, shape.head_dim_v)
    if cost.block_size != kernel.block_size:
        raise _core.InvalidArgument(
            f"block_size={cost.block_size}; expected {kernel.block_size}, of which model "
            f"{model.name} tells the time. Pass that"
        )
    if bytes_per_element != ITEMSIZE[shape.dtype]:
        raise _core.InvalidArgument(
            f"bytes_per_element={bytes_per_element}; expected {ITEMSIZE[shape.dtype]}, the size "
            f"of {shape.dtype}. Pass that, or another dtype"
        )
    return TimedCost(cost, model, shape)


def timeline(
    self: Plan,
    model: Any = "h200",
    *,
    direction: Literal["forward", "backward"] = "forward",
    head_dim: int = 128,
    head_dim_v: int | None = None,
    dtype: str = "bfloat16",
) -> Timeline:
    """When each rank would work, exchange and wait in one pass, by a model of a machine.

    The operands of a step leave when they have arrived at the sender, both links are free and
    the receiver has room, which it has for one step ahead. Tiles begin when their operands are
    there and the tiles before have ended. Gradients leave behind the tiles they come from.

    Args:
        model: a TimeModel, the name of a preset, a path, or a dict as of its JSON. "measured"
            runs the plan on this machine's processor instead, in float64 on random arrays, all
            ranks in this process, a thread each; merges, copies and sums count as work.
        direction: of the pass.
        head_dim: of q and k.
        head_dim_v: of v; default head_dim.
        dtype: of q, k, v and out.

    Raises:
        ValueError: no such model, direction or dtype.
        Unsupported: a model that lacks the dtype, the head size or the exchange.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 65536]), cp_size=4, num_heads=16)
    >>> timeline = plan.timeline("h200")
    >>> [(e.kind, e.step, e.owners) for e in timeline.events if e.rank == 1][:3]
    [('work', 0, (1,)), ('exchange', 1, (0,)), ('work', 1, (0,))]
    >>> timeline.total_us < plan.timeline("h200", direction="backward").total_us
    True
    """
    if arguments.text(direction, "direction") not in ("forward", "backward"):
        raise _core.InvalidArgument(
            f"direction={direction!r} is unknown; expected forward or backward"
        )
    shape = shape_of(self.comm, group_of(self), head_dim, head_dim_v, dtype)
    if isinstance(model, str) and model == MEASURED:
        dims = shape.head_dim, shape.head_dim_v
        return measured.measured(self, direction, *dims, Owners(self))
    found = as_model(model)
    kernel = found.kernel(shape.head_dim, shape.dtype, shape.head_dim_v)
    cost = self._cost(
        head_dim=shape.head_dim,
        head_dim_v=shape.head_dim_v,
        bytes_per_element=ITEMSIZE[shape.dtype],
        block_size=kernel.block_size,
    )
    made = timeline_of(cost, found, shape, "forward" if direction == "forward" else "backward")
    return made._with_owners(Owners(self))


def shape_of(comm: str, group: int, head_dim: Any, head_dim_v: Any, dtype: Any) -> Shape:
    """What counts do not say."""
    dims = [arguments.int32(head_dim, "head_dim")]
    dims.append(dims[0] if head_dim_v is None else arguments.int32(head_dim_v, "head_dim_v"))
    for name, dim in zip(("head_dim", "head_dim_v"), dims, strict=True):
        if dim < 1:
            raise _core.InvalidArgument(
                f"{name}={dim}; expected the size of a head, at least 1. Leave it out for "
                f"{'128' if name == 'head_dim' else 'that of head_dim'}"
            )
    if arguments.text(dtype, "dtype") not in ITEMSIZE:
        raise _core.InvalidArgument(
            f"dtype={dtype!r} is unknown; expected one of {', '.join(ITEMSIZE)}"
        )
    return Shape(comm, group, dims[0], dims[1], dtype)


def group_of_names(comm: str, cp_size: int, a2a_size: int | None) -> int:
    """Ranks that trade rows for heads."""
    if comm == "a2a":
        return cp_size
    return a2a_size if comm == "a2a+p2p" and a2a_size is not None else 1


def group_of(plan: _core.Plan) -> int:
    """Of a plan, which does not remember what it was asked for: read off its messages.

    The smallest number that they allow. Where they allow several, nothing travels that would tell
    these apart.
    """
    if plan.comm != "a2a+p2p":
        return group_of_names(plan.comm, plan.cp_size, None)
    first: set[tuple[int, int]] = set()
    hops: set[tuple[int, int]] = set()
    for rank in range(plan.cp_size):
        for number, step in enumerate(plan.steps(rank)):
            for message in step.receives:
                if message.peer != rank:
                    pair = (rank, message.peer)
                    (hops if number else first).add(pair)
    for group in range(1, plan.cp_size + 1):
        fits = plan.cp_size % group == 0
        fits = fits and all(a // group == b // group for a, b in first)
        if fits and all((a - b) % plan.cp_size == group % plan.cp_size for a, b in hops):
            return group
    return 1


class Owners:
    """Ranks at home to the keys that a rank holds in a step, counted when somebody asks."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._steps = lru_cache(maxsize=None)(plan.steps)

    def __call__(self, rank: int, step: int) -> tuple[int, ...]:
        steps = self._steps(rank)
        if not 0 <= step < len(steps):
            return ()
        return self._of_segments(tuple(_key(segment) for segment in steps[step].kv))

    @cached_property
    def _homes(self) -> np.ndarray:
        homes = np.full(self._plan.layout_k.num_rows, -1)
        for rank in range(self._plan.cp_size):
            homes[self._plan.row_indices(rank, side="k")] = rank
        return homes

    @cached_property
    def _known(self) -> dict[tuple[tuple[int, ...], ...], tuple[int, ...]]:
        return {}

    def _of_segments(self, segments: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        if segments not in self._known:
            begins, found = self._plan.layout_k.cu_seqlens_padded, set()
            for seq, pos, length, stride in segments:
                first = int(begins[seq]) + pos
                found |= set(self._homes[first : first + length * stride : stride].tolist())
            self._known[segments] = tuple(sorted(found - {-1}))
        return self._known[segments]


def _key(segment: _core.Segment) -> tuple[int, int, int, int]:
    return segment.seq, segment.pos, segment.len, segment.stride
