"""Context-parallel packed attention, in the ring with its own definition.

>>> import numpy as np, ringside as rs
>>> layout = rs.PackedLayout.from_lengths([5, 7, 0, 3])
>>> plan = rs.plan(layout, cp_size=4, partition="zigzag", comm="p2p")
>>> plan.verify()
PlanProof(rows=30, messages=9, tiles=34, pairs=49, operations=92)
>>> rng = np.random.default_rng(0)
>>> q, k, v = rng.normal(size=(3, layout.num_rows, 1, 8))
>>> out, lse = plan.attention(q, k, v)
>>> bool(np.allclose(out, rs.attention(q, k, v, layout)[0], rtol=0, atol=1e-14))
True
"""

from ringside import lengths, thd
from ringside._arguments import layouts as _layouts  # noqa: F401  (methods in kind)
from ringside._attention.definition import attention, attention_backward
from ringside._attention.options import Options
from ringside._core import (
    COMMS,
    PARTITIONS,
    InvalidArgument,
    Mask,
    Message,
    PackedLayout,
    PlanCost,
    PlanError,
    PlanProof,
    Segment,
    Step,
    Tile,
    Unsupported,
    __version__,
)
from ringside._group.failure import RankFailure
from ringside._group.from_torch import init_from
from ringside._group.group import Group, init
from ringside._pictures import display as _display  # noqa: F401  (of layouts and masks)
from ringside._pictures.public import draw_layout, draw_mask
from ringside._plan.build import plan
from ringside._plan.device.plan import DevicePlan
from ringside._plan.estimate import estimate
from ringside._plan.partitions import partition
from ringside._plan.plan import Plan
from ringside._plan.ranges import from_ranges
from ringside._plan.timing import TimedCost
from ringside._time.model import TimeModel
from ringside._time.timeline import Event, Timeline
from ringside.flash import flash_attn_varlen_func
from ringside.micro_sequences import MicroSequenceBuffer

__all__ = [
    "COMMS",
    "PARTITIONS",
    "DevicePlan",
    "Event",
    "Group",
    "InvalidArgument",
    "Mask",
    "Message",
    "MicroSequenceBuffer",
    "Options",
    "PackedLayout",
    "Plan",
    "PlanCost",
    "PlanError",
    "PlanProof",
    "RankFailure",
    "Segment",
    "Step",
    "Tile",
    "TimeModel",
    "TimedCost",
    "Timeline",
    "Unsupported",
    "__version__",
    "attention",
    "attention_backward",
    "draw_layout",
    "draw_mask",
    "estimate",
    "flash_attn_varlen_func",
    "from_ranges",
    "init",
    "init_from",
    "lengths",
    "partition",
    "plan",
    "thd",
]
