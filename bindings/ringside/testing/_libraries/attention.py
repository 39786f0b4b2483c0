"""Attention of torch and of JAX: document by document, or of the whole pack."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringside._rows import valid_rows
from ringside.testing._libraries.documents import documents_of, pack_mask


def _refuse(options: dict[str, Any]) -> None:
    """Nothing is silently ignored."""
    if options:
        raise NotImplementedError(f"no {', '.join(sorted(options))} here")


def sdpa(q: Any, k: Any, v: Any, *, layout_q: Any, layout_k: Any, mask: Any, **options: Any) -> Any:
    """torch's function, document by document."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    scale = options.pop("softmax_scale")
    _refuse(options)
    out = q.new_zeros((*q.shape[:2], v.shape[2]))
    for rows, keys in documents_of(layout_q, layout_k):
        visible = torch.from_numpy(mask.to_dense(rows.stop - rows.start, keys.stop - keys.start))
        batch = (x.transpose(0, 1)[None] for x in (q[rows], k[keys], v[keys]))
        grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
        result = scaled_dot_product_attention(*batch, attn_mask=visible, scale=scale, **grouped)
        seen = visible.any(dim=1)[:, None, None]
        out[rows] = torch.where(seen, result[0].transpose(0, 1), 0.0)
    return out


def flex(q: Any, k: Any, v: Any, *, layout_q: Any, layout_k: Any, mask: Any, **options: Any) -> Any:
    """FlexAttention of torch on the whole pack, with a document mask."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    scale, softcap = options.pop("softmax_scale"), options.pop("softcap", 0.0)
    _refuse(options)
    if not len(q) or not len(k):
        return q.new_zeros((*q.shape[:2], v.shape[2]))
    seen = torch.from_numpy(pack_mask(layout_q, layout_k, mask))
    blocks = create_block_mask(
        lambda b, h, i, j: seen[i, j], None, None, len(q), len(k), device="cpu"
    )
    valid = torch.from_numpy(valid_rows(layout_k))[:, None, None]
    k, v = (torch.where(valid, x, 0.0) for x in (k, v))
    out = flex_attention(
        *(x.transpose(0, 1)[None] for x in (q, k, v)),
        score_mod=(lambda s, b, h, i, j: softcap * torch.tanh(s / softcap)) if softcap else None,
        block_mask=blocks,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return torch.where(seen.any(dim=1)[:, None, None], out[0].transpose(0, 1), 0.0)


def dot_product(
    q: Any, k: Any, v: Any, *, layout_q: Any, layout_k: Any, mask: Any, **options: Any
) -> Any:
    """JAX's function, document by document."""
    import jax

    dot_product_attention: Any = jax.nn.dot_product_attention
    scale = options.pop("softmax_scale")
    _refuse(options)
    if q.shape[2] != v.shape[2]:
        raise NotImplementedError("head_dim_v must be head_dim here")
    documents = list(documents_of(layout_q, layout_k))
    masks = [mask.to_dense(q.stop - q.start, k.stop - k.start) for q, k in documents]

    def pack(q: Any, k: Any, v: Any, masks: list[Any]) -> Any:
        out = jax.numpy.zeros((*q.shape[:2], v.shape[2]), q.dtype)
        for (rows, keys), visible in zip(documents, masks, strict=True):
            batch = (x[None] for x in (q[rows], k[keys], v[keys]))
            result = dot_product_attention(*batch, mask=visible[None, None], scale=scale)[0]
            seen = visible.any(axis=1)[:, None, None]
            out = out.at[rows].set(jax.numpy.where(seen, result, 0.0))
        return out

    # Else each operation is compiled by itself; of float16 XLA for CPUs takes no more.
    whole = pack if q.dtype == np.float16 else jax.jit(pack)
    return whole(q, k, v, masks)
