"""Rows that move, as a function that torch differentiates: rows of a gradient move back.

A row that went nowhere gets zeros, and what padding's gradient holds reaches nobody.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch

from ringside._core import Unsupported


def moved_rows(move: Callable[..., Any], x: Any) -> Any:
    """move(x), differentiable.

    Args:
        move: takes x, or with numbers=True NumPy arrays of numbers of rows in place of it, and
            gives an array or a list, with 0 where nothing moves to.
        x: a tensor or a list of them, of which one requires a gradient.
    """
    tensors = list(x) if isinstance(x, list | tuple) else [x]
    if not all(isinstance(t, torch.Tensor) and t.device.type == "cpu" for t in tensors):
        return move(x)  # which refuses them
    if len(dtypes := {str(t.dtype) for t in tensors}) > 1:
        raise Unsupported(
            f"rows of {' and '.join(sorted(dtypes))}, of which some require a gradient. Nearest "
            "supported: rows of one dtype. Convert them, as by x.float()"
        )
    form = _Form(isinstance(x, list | tuple))
    found = _Moved.apply(move, form, *tensors)
    return list(found) if form.gives_several else found[0]


@dataclasses.dataclass
class _Form:
    takes_several: bool
    gives_several: bool = False


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, move: Callable[..., Any], form: _Form, *tensors: Any) -> Any:
        found = move(list(tensors) if form.takes_several else tensors[0])
        ctx.move, ctx.form, ctx.rows = move, form, [t.shape[0] for t in tensors]
        form.gives_several = isinstance(found, list)
        return tuple(found) if form.gives_several else (found,)

    @staticmethod
    def backward(ctx: Any, *douts: Any) -> Any:
        """In torch's own functions, which torch differentiates again where that is asked for."""
        bounds = list(accumulate(ctx.rows, initial=1))
        numbers = [np.arange(*bound) for bound in pairwise(bounds)]  # 0 is nobody's
        sources = ctx.move(numbers if ctx.form.takes_several else numbers[0], numbers=True)
        summed = douts[0].new_zeros(bounds[-1], *douts[0].shape[1:])
        for dout, source in zip(
            douts, sources if ctx.form.gives_several else [sources], strict=True
        ):
            summed = summed.index_add(0, torch.from_numpy(source), dout)
        return (None, None, *(summed[begin:end] for begin, end in pairwise(bounds)))
