# flash_attn by the FlashAttention 2 that torch has compiled in, on a GPU.
import sys
import types
from importlib.machinery import ModuleSpec

import torch


def _window(causal, left, right):
    return {"window_size_left": left, "window_size_right": 0 if causal else right}


def _refuse(dropout_p, softcap, alibi_slopes):
    if dropout_p or softcap or alibi_slopes is not None:
        raise NotImplementedError("torch's kernels of packs: no dropout, softcap or alibi_slopes")


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
    _refuse(dropout_p, softcap, alibi_slopes)
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    window = _window(causal, window_size_left, window_size_right)
    out, lse, *_ = torch.ops.aten._flash_attention_forward(
        *(q, k, v, *lengths, 0.0, causal, False), scale=softmax_scale, **window
    )
    return out, lse, None, None


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
    _refuse(dropout_p, softcap, alibi_slopes)
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    state = torch.zeros(2, dtype=torch.uint64, device=q.device)
    found = torch.ops.aten._flash_attention_backward(
        *(dout, q, k, v, out, softmax_lse, *lengths, 0.0, causal, state, q.new_empty(0)),
        **_window(causal, window_size_left, window_size_right),
        scale=softmax_scale,
    )
    for to, x in zip((dq, dk, dv), found):
        to.copy_(x)


def _lengths(q, k):
    """A dense batch is a pack of documents of one length."""
    sizes = [torch.full((len(x),), x.shape[1], device=x.device) for x in (q, k)]
    cu_seqlens = [torch.nn.functional.pad(x.cumsum(0), (1, 0)).int() for x in sizes]
    return (*cu_seqlens, q.shape[1], k.shape[1])


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
    rows = (x.flatten(0, 1) for x in (q, k, v))
    rest = (window_size_left, window_size_right, softcap, alibi_slopes)
    out, lse, *_ = _flash_attn_varlen_forward(
        *rows, *_lengths(q, k), dropout_p, softmax_scale, causal, *rest
    )
    lse = lse.unflatten(1, q.shape[:2]).transpose(0, 1).contiguous()
    return out.unflatten(0, q.shape[:2]), lse, None, None


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
    rows = [x.flatten(0, 1) for x in (dout, q, k, v, out)]
    lse = softmax_lse.transpose(0, 1).flatten(1).contiguous()
    found = [torch.empty_like(x) for x in rows[1:4]]
    rest = (window_size_left, window_size_right, softcap, alibi_slopes, deterministic)
    _flash_attn_varlen_backward(
        *rows, lse, *found, *_lengths(q, k), dropout_p, softmax_scale, causal, *rest
    )
    for to, x in zip((dq, dk, dv), found):
        to.copy_(x.view_as(to))


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
