"""Drop-in for the varlen functions of FlashAttention 2 and 3, computed by the definition."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from ringside._arguments.flash_positional import takes_positions_of_both
from ringside._attention.definition import attention
from ringside._attention.options import (
    Options,
    ScoreKeywords,
    Unpack,
    is_set,
    options_of,
    takes_options,
)
from ringside._core import InvalidArgument, Mask, PackedLayout, Unsupported, arguments

__all__ = ["flash_attn_varlen_func"]


@takes_positions_of_both
@takes_options
def flash_attn_varlen_func(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    cu_seqlens_q: npt.ArrayLike,
    cu_seqlens_k: npt.ArrayLike,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *positional: Any,
    seqused_q: npt.ArrayLike | None = None,
    seqused_k: npt.ArrayLike | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    qv: None = None,
    q_descale: None = None,
    k_descale: None = None,
    v_descale: None = None,
    block_table: None = None,
    options: Options | None = None,
    **keywords: Unpack[ScoreKeywords],
) -> Any:
    """flash_attn_varlen_func of FlashAttention 2 and 3, by the definition (float64 inside).

    Masks are aligned bottom-right, as there: the last query stands at the last key of its sequence.

    Args:
        q: [rows_q, num_heads, head_dim_qk]; k: [rows_k, num_kv_heads, head_dim_qk]; v: [rows_k,
            num_kv_heads, head_dim_v]; float16, float32 or float64; torch tensors on the CPU and JAX
            arrays there, bfloat16 included, give results of their kind.
        cu_seqlens_q, cu_seqlens_k: [batch+1] integers, where each sequence's rows start.
        max_seqlen_q, max_seqlen_k: at least the valid tokens of the longest sequence; smaller ones
            are refused, where a kernel would silently leave rows out.
        positional: what follows by position, as FlashAttention 2 or 3 order it: told apart by the
            first of them, dropout_p, a number, or seqused_q, an array [batch] or None.
        seqused_q, seqused_k: [batch] valid tokens of each sequence; default all its rows.
        softmax_scale: default 1/sqrt(head_dim_qk).
        causal: hide keys behind the query's position.
        window_size: (left, right), inclusive, -1 unbounded; combines with causal.
        attention_chunk: > 0: only keys of the query's own chunk.
        softcap: > 0: softcap * tanh(score / softcap).
        deterministic: accepted; results are always bit-equal from run to run.
        return_attn_probs: return (out, lse) instead of out; by the positions of FlashAttention 2
            (out, lse, None).
        num_splits, pack_gqa, sm_margin: accepted; they change no result.
        qv, q_descale, k_descale, v_descale, block_table: not supported; anything but None raises
            Unsupported.
        options, keywords: as for ringside.attention; alibi_slopes and dropout_p are FlashAttention
            2's, whose random numbers are other ones than those of dropout_seed.

    Returns:
        out [rows_q, num_heads, head_dim_v] in q's dtype, of torch tensors differentiable; lse
        [num_heads, rows_q] float32, of torch tensors of float64 float64.

    Raises:
        ValueError, TypeError: as ringside.attention; positions of neither.
        Unsupported: what is named above.

    Source: Dao-AILab/flash-attention, flash_attn/flash_attn_interface.py and
    hopper/flash_attn_interface.py (the argument lists).

    >>> import numpy as np, ringside as rs
    >>> q = k = np.zeros((3, 1, 2), np.float32); v = np.array([[[1]], [[3]], [[5]]], np.float32)
    >>> rs.flash_attn_varlen_func(q, k, v, [0, 2, 3], [0, 2, 3], 2, 2, causal=True).ravel().tolist()
    [1.0, 2.0, 5.0]
    >>> alike = (q, k, v, [0, 2, 3], [0, 2, 3], 2, 2)
    >>> two = rs.flash_attn_varlen_func(*alike, 0.0, None, True)
    >>> three = rs.flash_attn_varlen_func(*alike, None, None, None, True)
    >>> two.ravel().tolist() == three.ravel().tolist() == [1.0, 2.0, 5.0]
    True
    """
    own = {"softmax_scale": softmax_scale, "softcap": softcap}
    if options is not None:  # what the defaults here say does not contradict
        own = {name: x for name, x in own.items() if is_set(name, x)}
    options = options_of(flash_attn_varlen_func, options, {**own, **keywords})
    _require_absent(qv=qv, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    _require_absent(block_table=block_table)
    for name, count in (("num_splits", num_splits), ("sm_margin", sm_margin)):
        _integer(count, name, "any: it changes no result. Leave it out")
    for name, value in (
        ("deterministic", deterministic),
        ("pack_gqa", False if pack_gqa is None else pack_gqa),
    ):
        arguments.boolean(value, name)
    with_lse = arguments.boolean(return_attn_probs, "return_attn_probs")
    layout_q = _layout(cu_seqlens_q, seqused_q, max_seqlen_q, "q")
    layout_k = _layout(cu_seqlens_k, seqused_k, max_seqlen_k, "k")
    _require_as_many(layout_q, layout_k)
    left, right = Mask(window_size=window_size).window_size
    if arguments.boolean(causal, "causal"):
        right = 0
    chunk_size = _chunk_size(attention_chunk)
    mask = Mask(window_size=(left, right), chunk_size=chunk_size, align="bottom_right")
    out, lse = attention(q, k, v, layout_q, layout_k, mask=mask, options=options)
    if isinstance(out, np.ndarray):  # other kinds have q's dtype already
        out, lse = out.astype(np.asarray(q).dtype), lse.astype(np.float32)
    return (out, lse) if with_lse else out


_NEAREST = {
    "qv": "q and k of the whole head dimension, and v",
    "block_table": "k and v gathered from their pages, with cu_seqlens_k",
    **dict.fromkeys(("q_descale", "k_descale", "v_descale"), "arrays multiplied by their scales"),
}


def _require_absent(**not_served: object) -> None:
    for name, value in not_served.items():
        if value is not None:
            raise Unsupported(
                f"flash_attn_varlen_func with {name}. Nearest supported: {_NEAREST[name]}"
            )


def _layout(
    cu_seqlens: npt.ArrayLike, seqused: npt.ArrayLike | None, max_seqlen: int, name: str
) -> PackedLayout:
    starts = arguments.integers(cu_seqlens, f"cu_seqlens_{name}")
    used = None if seqused is None else arguments.integers(seqused, f"seqused_{name}")
    try:
        layout = PackedLayout.from_flash(starts, used)
    except InvalidArgument as error:  # which knows of one side only
        words = re.sub(r"\b(cu_seqlens|seqused)\b", rf"\1_{name}", str(error))
        raise InvalidArgument(words) from None
    longest = int(layout.lengths.max(initial=0))
    if _integer(max_seqlen, f"max_seqlen_{name}", f"at least {longest}. Pass {longest}") < longest:
        raise InvalidArgument(
            f"max_seqlen_{name}={max_seqlen} but a sequence has {longest} rows; expected at least "
            f"as many. Pass {longest}"
        )
    return layout


def _require_as_many(layout_q: PackedLayout, layout_k: PackedLayout) -> None:
    """Raises InvalidArgument where the sides have another number of sequences."""
    if layout_q.num_sequences != layout_k.num_sequences:
        raise InvalidArgument(
            f"cu_seqlens_q has {layout_q.num_sequences} sequences and cu_seqlens_k "
            f"{layout_k.num_sequences}; expected the same number, as a sequence sees its own keys. "
            "Repeat an offset where a side has no rows"
        )


def _integer(x: Any, name: str, expected_and_fix: str) -> int:
    """What is no number at all is not told to become one by int()."""
    if not hasattr(x, "__int__"):
        kind = "None" if x is None else f"a {type(x).__name__}"
        raise TypeError(f"{name} is {kind}; expected an integer, {expected_and_fix}")
    return arguments.integer(x, name)


def _chunk_size(attention_chunk: int) -> int:
    _integer(attention_chunk, "attention_chunk", "0 for none. Pass 0")
    size = arguments.int32(attention_chunk, "attention_chunk")
    if size < 0:
        raise InvalidArgument(
            f"attention_chunk={size}; expected 0 (no chunks) or the number of tokens in a chunk. "
            "Pass 0 for none"
        )
    return size
