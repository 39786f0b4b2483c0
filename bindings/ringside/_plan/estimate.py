"""ringside.estimate: what a plan would cost, of packs and ranks too many to build one."""

from __future__ import annotations

from typing import Any, SupportsIndex, overload

from ringside import _core
from ringside._arguments.keywords import knows_keywords
from ringside._core import Mask, PackedLayout
from ringside._plan import timing
from ringside._plan.names import Comm
from ringside._plan.partitions import Partition, segments_of_both
from ringside._time.model import as_model


@overload
def estimate(
    layout_q: PackedLayout,
    layout_k: PackedLayout | None = ...,
    *,
    mask: Mask = ...,
    cp_size: SupportsIndex | None = ...,
    partition: Partition = ...,
    partition_k: Partition | None = ...,
    comm: Comm = ...,
    a2a_size: SupportsIndex | None = ...,
    stages: SupportsIndex | None = ...,
    num_heads: SupportsIndex = ...,
    num_kv_heads: SupportsIndex | None = ...,
    head_dim: SupportsIndex = ...,
    head_dim_v: SupportsIndex | None = ...,
    bytes_per_element: SupportsIndex = ...,
    block_size: tuple[SupportsIndex, SupportsIndex] = ...,
    model: None = None,
    dtype: str = ...,
) -> _core.PlanCost: ...
@overload
def estimate(
    layout_q: PackedLayout,
    layout_k: PackedLayout | None = ...,
    *,
    mask: Mask = ...,
    cp_size: SupportsIndex | None = ...,
    partition: Partition = ...,
    partition_k: Partition | None = ...,
    comm: Comm = ...,
    a2a_size: SupportsIndex | None = ...,
    stages: SupportsIndex | None = ...,
    num_heads: SupportsIndex = ...,
    num_kv_heads: SupportsIndex | None = ...,
    head_dim: SupportsIndex = ...,
    head_dim_v: SupportsIndex | None = ...,
    bytes_per_element: SupportsIndex = ...,
    block_size: tuple[SupportsIndex, SupportsIndex] = ...,
    model: Any,
    dtype: str = ...,
) -> timing.TimedCost: ...
@knows_keywords
def estimate(
    layout_q: PackedLayout,
    layout_k: PackedLayout | None = None,
    *,
    mask: Mask = Mask.causal(),  # noqa: B008  (immutable)
    cp_size: SupportsIndex | None = None,
    partition: Partition = "zigzag",
    partition_k: Partition | None = None,
    comm: Comm = "p2p",
    a2a_size: SupportsIndex | None = None,
    stages: SupportsIndex | None = None,
    num_heads: SupportsIndex = 1,
    num_kv_heads: SupportsIndex | None = None,
    head_dim: SupportsIndex = 128,
    head_dim_v: SupportsIndex | None = None,
    bytes_per_element: SupportsIndex = 2,
    block_size: tuple[SupportsIndex, SupportsIndex] = (128, 128),
    model: Any = None,
    dtype: str = "bfloat16",
) -> _core.PlanCost:
    """What `ringside.plan(...).cost(...)` would count, in every number, without building the plan.

    A plan holds a tile for every pair of segments that meet, and steps for every rank: packs of
    thousands of documents on thousands of ranks do not fit into memory. Here segments that a query
    block sees as a whole are counted, not listed, and so are stripes that are seen alike.
    comm="fetch" is built to be counted where keys lie in other stripes than those of "striped".

    Args:
        layout_q, layout_k, mask, cp_size, partition, partition_k, comm, a2a_size, stages,
            num_heads, num_kv_heads: as of ringside.plan.
        head_dim, head_dim_v, bytes_per_element, block_size, model, dtype: as of Plan.cost.

    Returns:
        The counts; with a model also `forward` and `backward`, which are timelines.

    Raises:
        ValueError: as ringside.plan and Plan.cost do; more ranks than memory holds the counts of.
        Unsupported: comm="fetch" that is built to be counted, of about more than 50 million
            tiles; a model that lacks the dtype, the head size or the exchange.

    >>> import ringside as rs
    >>> layout = rs.PackedLayout.from_lengths([5000] + [700] * 40)
    >>> for partition in ("zigzag", "whole_pack_zigzag"):
    ...     cost = rs.estimate(layout, cp_size=64, partition=partition)
    ...     print(f"{cost.imbalance:.2f} {cost.fill:.3f} {cost.blocks.sum(axis=1).max():,}")
    1.06 0.004 5,248
    3.63 0.424 177
    >>> cost = rs.estimate(layout, cp_size=4, comm="all_gather")
    >>> bool((cost.pairs == rs.plan(layout, cp_size=4, comm="all_gather").cost().pairs).all())
    True
    >>> timed = rs.estimate(layout, cp_size=1024, num_heads=16, model="h200")
    >>> timed.forward.total_us < timed.backward.total_us
    True
    """
    if model is not None:
        model = as_model(model)
        shape = timing.shape_of(comm, 1, head_dim, head_dim_v, dtype)
        model.kernel(shape.head_dim, dtype, shape.head_dim_v)
    of_q, of_k = segments_of_both(partition, partition_k, layout_q, layout_k, cp_size)
    cost = _core.estimate(
        layout_q,
        layout_k,
        mask=mask,
        cp_size=cp_size,
        partition=of_q,
        partition_k=of_k,
        comm=comm,
        a2a_size=a2a_size,
        stages=stages,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        head_dim_v=head_dim_v,
        bytes_per_element=bytes_per_element,
        block_size=block_size,
    )
    if model is None:
        return cost
    size = None if a2a_size is None else int(a2a_size)
    group = timing.group_of_names(comm, len(cost.blocks), size)
    return timing.timed(cost, model, shape._replace(group=group), int(bytes_per_element))
