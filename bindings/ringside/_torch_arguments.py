"""What varlen_attention refuses before it looks at what follows from its arguments."""

from __future__ import annotations

from typing import Any

import torch

from ringside._core import Unsupported, arguments
from ringside._plan.device.plan import DevicePlan
from ringside._plan.plan import Plan

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def require_kinds(plan: Any, q: Any, k: Any, v: Any) -> None:
    """Of what every call takes, before what follows from it is looked at."""
    require_plan(plan)
    where = getattr(q, "device", None)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(
                f"{name} is a {type(x).__module__}.{type(x).__qualname__}; expected a "
                f"torch.Tensor. Pass torch.as_tensor({name}), or call plan.attention or, over a "
                "group, plan.attention_rank, which take arrays of NumPy, JAX and CuPy, too"
            )
        if not (x.is_cuda or x.is_cpu):
            raise Unsupported(
                f"{name} lies on device {x.device}. Nearest supported: cpu or cuda, as by "
                f'torch.empty_like({name}, device="cpu")'
            )
        if x.device != where:
            raise TypeError(
                f"{name} lies on {x.device} and q on {where}; expected one device. Pass "
                f"{name}.to(q.device)"
            )
        if x.dtype not in _DTYPES or (x.dtype == torch.float64 and x.is_cuda):
            raise TypeError(
                f"{name} has dtype {x.dtype}; expected float16, bfloat16, float32 or, on a CPU, "
                f"float64. Pass {name}.bfloat16()"
            )
    if isinstance(plan, DevicePlan) and not q.is_cuda:
        raise TypeError(
            "q lies on the CPU beside a DevicePlan; expected the GPU of its lengths. Pass "
            "q.cuda(), or a Plan, as ringside.plan makes one"
        )


def require_plan(plan: Any) -> None:
    """In words that torch can trace."""
    if isinstance(plan, Plan | DevicePlan):
        return
    kind = type(plan).__name__
    made = "ringside.plan(layout, cp_size=1, num_heads=..., num_kv_heads=...)"
    if isinstance(plan, torch.Tensor | list | tuple):
        made = made.replace("layout", "ringside.PackedLayout(cu_seqlens)")
    raise TypeError(f"plan is a {kind}; expected a Plan or a DevicePlan. Make one: {made}")


def require_flags(flags: dict[str, Any]) -> None:
    """Of the call."""
    for name, x in flags.items():
        arguments.boolean(x, name)


def require_no_gradient(slopes: Any) -> None:
    """In words that torch can trace."""
    if isinstance(slopes, torch.Tensor) and slopes.requires_grad and torch.is_grad_enabled():
        raise Unsupported(
            "alibi_slopes requires a gradient, which no backward pass computes. Nearest supported: "
            "a sink that requires one; or, as a constant, alibi_slopes.detach()"
        )
