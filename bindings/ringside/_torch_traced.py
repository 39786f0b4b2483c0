"""The options of a call that torch.compile traces, as the operator takes them.

All is said in words that torch can trace. What these cannot say is refused, never changed: torch
then runs the call by itself, which has words of its own, but for a whole graph (fullgraph=True).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ringside._core import InvalidArgument, Unsupported


def require_flags(flags: dict[str, Any]) -> None:
    """Those of Python's, which choose what is traced."""
    for name, x in flags.items():
        if not isinstance(x, bool):
            raise TypeError(
                f"{name} is a {type(x).__name__} while torch compiles; expected True or False. "
                f"Pass bool({name})"
            )


def number(name: str, x: Any) -> Any:
    """A number among the options; of the scale also None."""
    if name == "dropout_seed":
        return _seed(x)
    if _is_number(x) or (x is None and name == "softmax_scale"):
        return x
    raise TypeError(
        f"{name} is a {type(x).__name__} while torch compiles; expected a number of Python's. "
        f"Pass float({name})"
    )


def _seed(x: Any) -> int:
    """One of 2**63 and above wraps around, as int64 holds it."""
    if isinstance(x, bool) or not isinstance(x, int):
        raise TypeError(
            f"dropout_seed is a {type(x).__name__} while torch compiles; expected an integer of "
            "Python's. Pass int(dropout_seed)"
        )
    if not 0 <= x < 2**64:
        raise InvalidArgument(f"dropout_seed={x}; expected 0 to 2**64-1")
    return x - 2**64 if x >= 2**63 else x


def per_head(name: str, x: Any, q: torch.Tensor) -> Any:
    """A sink or slopes: a tensor, of float64 where it is made of numbers, or None."""
    if x is None or isinstance(x, torch.Tensor | np.ndarray):
        return x
    if _is_number(x):
        return q.new_tensor(x, dtype=torch.float64)
    if isinstance(x, list | tuple):
        if all(_is_number(item) for item in x):
            return q.new_tensor(x, dtype=torch.float64)
        if all(_is_number(item) or isinstance(item, torch.Tensor) for item in x):
            return torch.stack([_constant(name, item, q) for item in x])
    raise TypeError(
        f"{name} is a {type(x).__name__} that torch cannot compile; expected floats, or a tensor, "
        f"alone or in a list. Pass a tensor [num_heads]"
    )


def _is_number(x: Any) -> bool:
    """Integers beyond 64 bits are none of torch's."""
    if isinstance(x, bool):
        return False
    return isinstance(x, float) or (isinstance(x, int) and -(2**63) <= x < 2**63)


def _constant(name: str, item: Any, q: torch.Tensor) -> torch.Tensor:
    """One of a list, which are constants."""
    if not isinstance(item, torch.Tensor):
        return q.new_tensor(item, dtype=torch.float64)
    if item.requires_grad and torch.is_grad_enabled():
        raise Unsupported(
            f"{name} requires a gradient, which no backward pass computes of a list. Nearest "
            "supported: a sink that is one tensor [num_heads]"
        )
    return item.detach().to(q.device, torch.float64)
