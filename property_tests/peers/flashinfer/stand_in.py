# FlashAttention 3's two functions, forward, in plain torch on a CPU: FlashInfer calls them.
import contextlib
import sys
import types
from importlib.machinery import ModuleSpec
from itertools import pairwise

import torch


def attend(q, k, v, scale, causal):
    """out [rows, heads, dim] and lse [heads, rows] of one document; masks end where keys end."""
    k, v = (x.double().repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k)
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        ahead = torch.arange(len(k))[None, :] - torch.arange(len(q))[:, None]
        scores = scores.masked_fill(ahead > len(k) - len(q), -torch.inf)
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse[..., None].clamp(min=-1e300))
    return torch.einsum("hqk,khd->qhd", weights, v).to(q.dtype), lse.float()


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None,
    causal=False, return_attn_probs=False, **unused,
):  # fmt: skip
    ends = [list(pairwise(x.tolist())) for x in (cu_seqlens_q, cu_seqlens_k)]
    parts = [
        attend(q[a:b], k[c:d], v[c:d], softmax_scale, causal)
        for (a, b), (c, d) in zip(*ends, strict=True)
    ]
    out = torch.zeros(*q.shape[:2], v.shape[2], dtype=q.dtype)  # a kernel leaves the rest unwritten
    lse = torch.zeros(q.shape[1], q.shape[0])
    for (a, b), (of_rows, lse_of_rows) in zip(ends[0], parts, strict=True):
        out[a:b], lse[:, a:b] = of_rows, lse_of_rows
    return (out, lse) if return_attn_probs else out


def flash_attn_func(q, k, v, softmax_scale=None, causal=False, return_attn_probs=False, **unused):
    parts = [attend(*each, softmax_scale, causal) for each in zip(q, k, v, strict=True)]
    out, lse = (torch.stack(x) for x in zip(*parts, strict=True))
    return (out, lse) if return_attn_probs else out


def install():
    """Puts all this where FlashInfer looks for it."""
    kernels = types.ModuleType("flash_attn_interface")
    kernels.flash_attn_func = flash_attn_func
    kernels.flash_attn_varlen_func = flash_attn_varlen_func
    kernels.__spec__ = ModuleSpec("flash_attn_interface", None)
    sys.modules["flash_attn_interface"] = kernels
    torch.cuda.device = lambda _: contextlib.nullcontext()
