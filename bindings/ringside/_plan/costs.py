"""What a plan counts: pairs, blocks, bytes, rows and memory, with times where there is a model.

A method of Plan; it stands here because it is a concept of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from ringside import _core
from ringside._plan.timing import TimedCost, group_of, shape_of, timed
from ringside._time.model import as_model

if TYPE_CHECKING:
    from ringside._plan.plan import Plan


@overload
def cost(
    self: Plan,
    *,
    head_dim: int = ...,
    head_dim_v: int | None = ...,
    bytes_per_element: int = ...,
    block_size: tuple[int, int] = ...,
    keep_kv: bool = ...,
    model: None = None,
    dtype: str = ...,
) -> _core.PlanCost: ...
@overload
def cost(
    self: Plan,
    *,
    head_dim: int = ...,
    head_dim_v: int | None = ...,
    bytes_per_element: int = ...,
    block_size: tuple[int, int] = ...,
    keep_kv: bool = ...,
    model: Any,
    dtype: str = ...,
) -> TimedCost: ...
def cost(
    self: Plan,
    *,
    head_dim: int = 128,
    head_dim_v: int | None = None,
    bytes_per_element: int = 2,
    block_size: tuple[int, int] = (128, 128),
    keep_kv: bool = False,
    model: Any = None,
    dtype: str = "bfloat16",
) -> _core.PlanCost:
    """Counts both passes: pairs, a kernel's blocks, bytes, rows and memory, by rank and step.

    No count takes time proportional to rows: pairs and blocks follow from the mask. Of a plan
    that is not built, ringside.estimate counts the same.

    Args:
        head_dim: of q and k.
        head_dim_v: of v; default head_dim.
        bytes_per_element: of q, k, v and out; 2 for bfloat16. lse counts 4.
        block_size: (query rows, key rows) of a kernel's block.
        keep_kv: of passes that keep keys and values, see attention_rank: the backward pass
            brings none, and they take kept_bytes meanwhile.
        model: of a machine: a TimeModel, the name of a preset, a path, or a dict as of its
            JSON. Then the answer has `forward` and `backward`, timelines of both passes.
        dtype: of q, k, v and out, by which the model knows its kernels.

    Raises:
        ValueError: a size below 1; no such model; blocks or elements of other sizes than its.
        Unsupported: a model that lacks the dtype, the head size or the exchange.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2, partition="contiguous")
    >>> plan.cost().pairs.sum(axis=1).tolist(), round(plan.cost().imbalance, 3)
    ([10, 26], 1.444)
    >>> plan.cost().backward_bytes_sent.tolist()  # keys there, float32 gradients back
    [[0, 2048], [0, 4096]]
    >>> kept = plan.cost(keep_kv=True)
    >>> kept.kept_bytes.tolist(), kept.backward_bytes_sent.tolist()
    ([0, 2048], [[0, 0], [0, 4096]])
    >>> short = rs.plan(rs.PackedLayout([0, 13, 600]), cp_size=2)
    >>> short.cost().blocks.tolist(), round(short.cost().fill, 2)  # 16,384 pairs a block
    ([[13, 7], [7, 7]], 0.31)
    >>> timed = short.cost(model="h200")
    >>> timed.forward.total_us == short.timeline("h200").total_us
    True
    """
    if model is not None:
        model = as_model(model)
        shape = shape_of(self.comm, group_of(self), head_dim, head_dim_v, dtype)
        model.kernel(shape.head_dim, dtype, shape.head_dim_v)
    cost = self._cost(
        head_dim=head_dim,
        head_dim_v=head_dim_v,
        bytes_per_element=bytes_per_element,
        block_size=block_size,
        keep_kv=keep_kv,
    )
    return cost if model is None else timed(cost, model, shape, bytes_per_element)
