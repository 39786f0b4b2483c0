# flash_attn on a CPU, in plain torch: without this block the script uses the real one on a GPU.
import sys
import types
from importlib.machinery import ModuleSpec

import torch


def _seen(lengths_q, lengths_k, causal, left, right):
    """[rows_q, rows_k]: documents see themselves; masks and windows are aligned at the end."""
    blocks = []
    for n_q, n_k in zip(lengths_q, lengths_k):
        ahead = torch.arange(n_k)[None, :] - (torch.arange(n_q)[:, None] + n_k - n_q)
        seen = torch.ones(n_q, n_k, dtype=torch.bool)
        right_bound = 0 if causal else right
        seen &= (ahead <= right_bound) if right_bound >= 0 else True
        seen &= (ahead >= -left) if left >= 0 else True
        blocks.append(seen)
    return torch.block_diag(*[block.float() for block in blocks]).bool()


def _scores(q, k, seen, scale):
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scores = torch.einsum("qhd,khd->hqk", q.double(), k.double())
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    return scores.masked_fill(~seen, -torch.inf)


def _forward(q, k, v, seen, scale):
    scores = _scores(q, k, seen, scale)
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse[..., None].clamp(min=-1e300))
    wide = v.double().repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    lse = torch.where(lse == -torch.inf, torch.inf, lse).float()
    return torch.einsum("hqk,khd->qhd", weights, wide).to(q.dtype), lse


def _backward(dout, q, k, v, out, lse, seen, scale):
    group = q.shape[1] // k.shape[1]
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    weights = torch.exp(_scores(q, k, seen, scale) - lse.double()[..., None])
    wide_k, wide_v = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    delta = (dout.double() * out.double()).sum(-1).T[..., None]
    ds = weights * (torch.einsum("qhd,khd->hqk", dout.double(), wide_v) - delta) * factor
    dq = torch.einsum("hqk,khd->qhd", ds, wide_k)
    dk = torch.einsum("hqk,qhd->khd", ds, q.double())
    dv = torch.einsum("hqk,qhd->khd", weights, dout.double())
    dk, dv = (x.unflatten(1, (-1, group)).sum(2) for x in (dk, dv))
    return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)


def _lengths(cu_seqlens):
    return (cu_seqlens[1:] - cu_seqlens[:-1]).tolist()


def _flash_attn_varlen_forward(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left=-1,
    window_size_right=-1,
    softcap=0.0,
    alibi_slopes=None,
    return_softmax=False,
    block_table=None,
    leftpad_k=None,
    seqused_k=None,
    zero_tensors=False,
):
    lengths = _lengths(cu_seqlens_q), _lengths(cu_seqlens_k)
    seen = _seen(*lengths, causal, window_size_left, window_size_right)
    return (*_forward(q, k, v, seen, softmax_scale), None, None)


def _flash_attn_varlen_backward(
    dout,
    q,
    k,
    v,
    out,
    softmax_lse,
    dq,
    dk,
    dv,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left,
    window_size_right,
    softcap,
    alibi_slopes,
    deterministic,
    rng_state=None,
    zero_tensors=False,
):
    lengths = _lengths(cu_seqlens_q), _lengths(cu_seqlens_k)
    seen = _seen(*lengths, causal, window_size_left, window_size_right)
    found = _backward(dout, q, k, v, out, softmax_lse, seen, softmax_scale)
    for to, x in zip((dq, dk, dv), found):
        to.copy_(x)


def _flash_attn_forward(
    q,
    k,
    v,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left,
    window_size_right,
    softcap,
    alibi_slopes,
    return_softmax,
):
    seen = _seen([q.shape[1]], [k.shape[1]], causal, window_size_left, window_size_right)
    found = [_forward(*each, seen, softmax_scale) for each in zip(q, k, v)]
    out, lse = (torch.stack(x) for x in zip(*found))
    return out, lse, None, None


def _flash_attn_backward(
    dout,
    q,
    k,
    v,
    out,
    softmax_lse,
    dq,
    dk,
    dv,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left,
    window_size_right,
    softcap,
    alibi_slopes,
    deterministic,
    rng_state=None,
):
    seen = _seen([q.shape[1]], [k.shape[1]], causal, window_size_left, window_size_right)
    given = zip(dout, q, k, v, out, softmax_lse)
    found = [_backward(*each, seen, softmax_scale) for each in given]
    for to, x in zip((dq, dk, dv), zip(*found)):
        to.copy_(torch.stack(x))


def _unused(*arguments, **keywords):
    raise NotImplementedError("rings call the functions that start with _flash_attn")


_package = types.ModuleType("flash_attn")
_package.flash_attn_func = _package.flash_attn_varlen_func = _unused
for _function in (
    *(_flash_attn_varlen_forward, _flash_attn_varlen_backward),
    *(_flash_attn_forward, _flash_attn_backward),
):
    setattr(_package, _function.__name__, _function)
_package.__spec__ = ModuleSpec("flash_attn", None, is_package=True)
_package.flash_attn_interface, _package.__path__, _package.__version__ = _package, [], "2.8.3"
sys.modules["flash_attn"] = sys.modules["flash_attn.flash_attn_interface"] = _package
