"""What a plan moves and holds beside what its tiles need, for `ringside bench cp`: counted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ringside as rs

MIB = 2**20


class Traffic(NamedTuple):
    """Of both passes, the busiest rank's; NaN where nobody counts.

    Attributes:
        received_mib: what it receives.
        over_needed: keys and values that all ranks receive before the tiles of the forward pass,
            over those of them that some tile sees.
        memory_mib: what it holds beside its own arrays.
    """

    received_mib: float = math.nan
    over_needed: float = math.nan
    memory_mib: float = math.nan


def traffic_of(plan: rs.Plan, *, keep_kv: bool = False, head_dim: int = 128) -> Traffic:
    """Of a plan with 16-bit elements.

    >>> import ringside as rs
    >>> ring = rs.plan(rs.PackedLayout([0, 16_384]), cp_size=2, num_heads=16)
    >>> traffic_of(ring)  # the second rank sees half of what comes round
    Traffic(received_mib=256.0, over_needed=1.33, memory_mib=512.0)
    >>> fetch = rs.plan(rs.PackedLayout([0, 16_384]), cp_size=2, num_heads=16, comm="fetch")
    >>> traffic_of(fetch).over_needed
    1.0
    """
    cost = plan.cost(head_dim=head_dim, keep_kv=keep_kv)
    both = cost.bytes_received.sum(axis=1) + cost.result_bytes_received
    both = both + cost.backward_bytes_received.sum(axis=1)
    heads, kv_heads = plan.num_heads, plan.num_kv_heads
    received, share = cost.bytes_received.sum(), 1.0
    if plan.comm == "a2a":  # of some heads, and q moves, too
        received, share = received * 2 * kv_heads / (2 * kv_heads + heads), 1 / plan.cp_size
    needed = cost.rows_needed.sum() * kv_heads * share * 2 * head_dim * 2
    held = [*cost.workspace_bytes, *cost.backward_workspace_bytes]
    return Traffic(
        round(float(both.max()) / MIB, 1),
        round(float(received / needed), 2) if needed else math.nan,
        round(float(max(held) + cost.kept_bytes.max()) / MIB, 1),
    )
