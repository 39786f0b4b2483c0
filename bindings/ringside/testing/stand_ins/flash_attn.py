"""FlashAttention 2's functions on torch tensors on the CPU, by the definition.

Signatures, layouts and conventions are those of flash_attn 2.8: masks aligned bottom-right, lse
[heads, rows] of packs and [batch, heads, rows] of dense batches in float32, +inf where a row sees
nothing. Inside is float64, whatever the tensors are; results have their dtype, float32 and float64
included. A backward takes the out and lse that it is given, merged ones of a ring, too.

Source: Dao-AILab/flash-attention, flash_attn/flash_attn_interface.py (argument lists), and
csrc/flash_attn/src/softmax.h (lse of rows that see nothing).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import ringside as rs

__all__ = ["flash_attn_func", "flash_attn_varlen_func"]

OF_RINGS = (  # not public there, but what rings call
    *("_flash_attn_forward", "_flash_attn_backward"),
    *("_flash_attn_varlen_forward", "_flash_attn_varlen_backward"),
)


class _Call:
    """One kernel's worth: the layouts, the mask and the options, as they are passed.

    Args:
        layouts: of q and of k.
        window: (left, right), -1 unbounded.
        options: softmax_scale, softcap, alibi_slopes, dropout_p.
        refused: by name what must be None.
    """

    def __init__(
        self,
        layouts: tuple[rs.PackedLayout, rs.PackedLayout],
        causal: bool,
        window: tuple[int, int],
        options: dict[str, Any],
        refused: dict[str, Any],
    ) -> None:
        for name, value in refused.items():
            if value is not None:
                raise rs.Unsupported(
                    f"the stand-in for flash_attn with {name}. Nearest supported: leave it out"
                )
        if options.pop("dropout_p"):
            raise rs.Unsupported(
                "the stand-in for flash_attn with dropout_p > 0, whose random numbers are the "
                "kernel's. Nearest supported: dropout_p=0.0, or ringside.attention's own dropout"
            )
        left, right = window
        self.mask = rs.Mask(window_size=(left, 0 if causal else right), align="bottom_right")
        self.layouts, self.options = layouts, options

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """(out, lse) of packs: [rows, heads, dim], [heads, rows]."""
        wide = (x.detach().double() for x in (q, k, v))
        out, lse = rs.attention(*wide, *self.layouts, mask=self.mask, **self.options)
        lse = torch.where(lse == -torch.inf, torch.inf, lse)
        return out.to(q.dtype), lse.float()

    def backward(
        self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor
    ) -> tuple[Tensor, ...]:
        """(dq, dk, dv), and delta [heads, rows] in float32."""
        wide = [x.detach().double() for x in (dout, q, k, v, out)]
        lse = torch.where(lse == torch.inf, -torch.inf, lse.double())
        found = rs.attention_backward(*wide, lse, *self.layouts, mask=self.mask, **self.options)
        delta = (wide[0] * wide[4]).sum(dim=-1).T.float()
        return (*(x.to(q.dtype) for x in found[:3]), delta)


def _options(
    softmax_scale: float | None, softcap: float, alibi_slopes: Any, dropout_p: float
) -> dict[str, Any]:
    if isinstance(alibi_slopes, Tensor) and alibi_slopes.ndim != 1:
        raise rs.Unsupported(
            "the stand-in for flash_attn with alibi_slopes for each sequence. Nearest supported: "
            "[num_heads] of them"
        )
    return {
        "softmax_scale": softmax_scale,
        "softcap": softcap,
        "alibi_slopes": alibi_slopes,
        "dropout_p": dropout_p,
    }


def _packed(cu_seqlens: Any, seqused: Any, longest: int, rows: int, name: str) -> rs.PackedLayout:
    for what, x in ((f"cu_seqlens_{name}", cu_seqlens), (f"seqused_{name}", seqused)):
        dtype = getattr(x, "dtype", type(x).__name__)
        if x is not None and dtype != torch.int32:
            raise RuntimeError(
                f"{what} is {dtype}; expected a torch tensor of int32, as kernels read it. Convert "
                "it: a GPU would refuse it"
            )
    layout = rs.PackedLayout.from_flash(cu_seqlens, seqused)
    held = int(layout.padded_lengths.max(initial=0))
    if layout.num_rows != rows or longest < held:
        raise ValueError(
            f"cu_seqlens_{name} ends at {layout.num_rows} of {rows} rows and max_seqlen_{name} is "
            f"{longest} where a sequence has {held}; expected all rows, and at least the longest. "
            "The kernel would leave rows unwritten"
        )
    return layout


def _dense(x: Tensor, name: str) -> rs.PackedLayout:
    if x.ndim != 4:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; expected [batch, seqlen, heads, dim]")
    return rs.PackedLayout.from_lengths([x.shape[1]] * x.shape[0])


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, *x.shape[2:])


def _statistic(x: Tensor, batch: int) -> Tensor:
    """[heads, batch*rows] as [batch, heads, rows]."""
    return x.reshape(x.shape[0], batch, -1).transpose(0, 1).contiguous()


def _nothing(q: Tensor) -> tuple[Tensor, Tensor]:
    """S_dmask and rng_state of a call without dropout."""
    return q.new_empty(0), torch.zeros(2, dtype=torch.int64)


def _flash_attn_varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_softmax: bool = False,
    block_table: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    seqused_k: Tensor | None = None,
    zero_tensors: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(out, softmax_lse, S_dmask, rng_state) of packs."""
    layouts = (
        _packed(cu_seqlens_q, None, max_seqlen_q, q.shape[0], "q"),
        _packed(cu_seqlens_k, seqused_k, max_seqlen_k, k.shape[0], "k"),
    )
    options = _options(softmax_scale, softcap, alibi_slopes, dropout_p)
    refused = {"block_table": block_table, "leftpad_k": leftpad_k}
    call = _Call(layouts, causal, (window_size_left, window_size_right), options, refused)
    return (*call.forward(q, k, v), *_nothing(q))


def _flash_attn_varlen_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    deterministic: bool,
    rng_state: Tensor | None = None,
    zero_tensors: bool = False,
) -> Tensor:
    """Writes dq, dk and dv in place; delta comes back."""
    layouts = (
        _packed(cu_seqlens_q, None, max_seqlen_q, q.shape[0], "q"),
        _packed(cu_seqlens_k, None, max_seqlen_k, k.shape[0], "k"),
    )
    options = _options(softmax_scale, softcap, alibi_slopes, dropout_p)
    call = _Call(layouts, causal, (window_size_left, window_size_right), options, {})
    *found, delta = call.backward(dout, q, k, v, out, softmax_lse)
    for to, x in zip((dq, dk, dv), found, strict=True):
        if to is not None:
            to.copy_(x)
    return delta


def _flash_attn_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    return_softmax: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(out, softmax_lse, S_dmask, rng_state) of dense batches."""
    layouts = _dense(q, "q"), _dense(k, "k")
    options = _options(softmax_scale, softcap, alibi_slopes, dropout_p)
    call = _Call(layouts, causal, (window_size_left, window_size_right), options, {})
    out, lse = call.forward(*map(_rows, (q, k, v)))
    out = out.reshape(*q.shape[:3], v.shape[-1])
    return (out, _statistic(lse, q.shape[0]), *_nothing(q))


def _flash_attn_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq: Tensor | None,
    dk: Tensor | None,
    dv: Tensor | None,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    deterministic: bool,
    rng_state: Tensor | None = None,
) -> Tensor:
    """Writes dq, dk and dv in place; delta comes back."""
    layouts = _dense(q, "q"), _dense(k, "k")
    options = _options(softmax_scale, softcap, alibi_slopes, dropout_p)
    call = _Call(layouts, causal, (window_size_left, window_size_right), options, {})
    lse = softmax_lse.transpose(0, 1).reshape(q.shape[2], -1)
    *found, delta = call.backward(*map(_rows, (dout, q, k, v, out)), lse)
    for to, x in zip((dq, dk, dv), found, strict=True):
        if to is not None:
            to.copy_(x.reshape(to.shape))
    return _statistic(delta, q.shape[0])


class _Differentiable(torch.autograd.Function):
    """A forward and its backward, which share all arguments behind v."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, kernels: Any, lengths: Any, rest: Any
    ) -> Any:
        run, ctx.differentiate = kernels
        out, lse, *_ = run(q, k, v, *lengths, *rest, False)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.lengths, ctx.rest = lengths, rest
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor, _dlse: Any) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        gradients = [torch.empty_like(x) for x in (q, k, v)]
        ctx.differentiate(
            dout, q, k, v, out, lse, *gradients, *ctx.lengths, *ctx.rest, deterministic=True
        )
        return (*gradients, None, None, None)


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """out [batch, seqlen, heads, dim]; with return_attn_probs (out, softmax_lse, None).

    >>> q = torch.zeros(1, 2, 1, 8, requires_grad=True)
    >>> flash_attn_func(q, q, q, causal=True, return_attn_probs=True)[1].exp().tolist()
    [[[1.0, 2.0]]]
    """
    rest = (dropout_p, softmax_scale, causal, *window_size, softcap, alibi_slopes)
    kernels = (_flash_attn_forward, _flash_attn_backward)
    out, lse = _Differentiable.apply(q, k, v, kernels, (), rest)
    return (out, lse, None) if return_attn_probs else out


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
) -> Any:
    """out [rows, heads, dim]; with return_attn_probs (out, softmax_lse, None).

    >>> q, cu_seqlens = torch.zeros(3, 1, 8), torch.tensor([0, 2, 3], dtype=torch.int32)
    >>> flash_attn_varlen_func(q, q, q, cu_seqlens, cu_seqlens, 2, 2).shape
    torch.Size([3, 1, 8])
    """
    if block_table is not None:
        raise rs.Unsupported(
            "the stand-in for flash_attn with block_table. Nearest supported: leave it out"
        )
    rest = (dropout_p, softmax_scale, causal, *window_size, softcap, alibi_slopes)
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    kernels = (_flash_attn_varlen_forward, _flash_attn_varlen_backward)
    out, lse = _Differentiable.apply(q, k, v, kernels, lengths, rest)
    return (out, lse, None) if return_attn_probs else out
