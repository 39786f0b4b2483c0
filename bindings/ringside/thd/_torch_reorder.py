"""Rows reordered on a device as a function that torch differentiates: gradients go back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Reorder = Callable[..., Any]  # (arrays, cu_seqlens_padded, cp_size, *, to_ranks)


def reordered(
    reorder: Reorder, arrays: list[Any], cu_seqlens_padded: Any, cp_size: int, *, to_ranks: bool
) -> list[Any]:
    """What reorder gives, differentiable; rows that offsets leave out have a gradient of zero."""
    return list(_Reordered.apply(reorder, cu_seqlens_padded, cp_size, to_ranks, *arrays))


class _Reordered(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, reorder: Reorder, starts: Any, cp_size: int, to_ranks: bool, *arrays: Any
    ) -> Any:
        ctx.call = (reorder, starts, cp_size, not to_ranks)
        found = tuple(reorder(list(arrays), starts, cp_size, to_ranks=to_ranks))
        ctx.mark_non_differentiable(*(x for x in found if not x.is_floating_point()))
        return found

    @staticmethod
    def backward(ctx: Any, *douts: Any) -> Any:
        """The inverse, which torch differentiates again where that is asked for."""
        floating = [d.contiguous() for d in douts if d is not None and d.is_floating_point()]
        back = iter(_Reordered.apply(*ctx.call, *floating))
        grads = []
        for dout in douts:
            if dout is None or not dout.is_floating_point():
                grads.append(None)
                continue
            dx = next(back)
            left_out = torch.arange(dx.shape[0], device=dx.device) >= ctx.call[1][-1]
            grads.append(dx.masked_fill(left_out.view(-1, *[1] * (dx.ndim - 1)), 0))
        return (None, None, None, None, *grads)
