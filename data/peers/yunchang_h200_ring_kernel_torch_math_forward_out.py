"""yunchang 0.6.4: yunchang.ring.ring_flash_attn_func, ring, kernel TORCH_MATH, forward.

pip install yunchang==0.6.4 torch==2.11.0
Needs numpy, torch (a GPU for each rank), and nothing else.
"""

import torch

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

import torch
from yunchang.kernels import AttnType
from yunchang.ring import ring_flash_attn, stripe_flash_attn, zigzag_ring_flash_attn
from yunchang.ring.ring_flash_attn_varlen import ring_flash_attn_varlen_func

FUNCTIONS = {
    "ring": ring_flash_attn.ring_flash_attn_func,
    "zigzag": zigzag_ring_flash_attn.zigzag_ring_flash_attn_func,
    "stripe": stripe_flash_attn.stripe_flash_attn_func,
}


def batch(q, k, v, *, kind, attn_type, sequences, window, **settings):
    q, k, v = (x.reshape(sequences, -1, *x.shape[1:]) for x in (q, k, v))
    settings.update(window_size=tuple(window), attn_type=AttnType.from_string(attn_type))
    settings["group"] = torch.distributed.group.WORLD
    return FUNCTIONS[kind](q, k, v, **settings).flatten(0, 1)


def packs(q, k, v, *, cu_seqlens, longest, **settings):
    lengths = torch.tensor(cu_seqlens, dtype=torch.int32, device=q.device)
    return ring_flash_attn_varlen_func(q, k, v, lengths, longest, **settings)

nan = float('nan')
# The problem: all rows, each rank's rows, who sees whom.
ROWS = [[0], [1]]
SEEN = [[0, 1], [0, 1]]
SCALE = 0.3535533905932738
ARGUMENTS = {'kind': 'ring', 'attn_type': 'torch_math', 'sequences': 1, 'window': (-1, -1), 'causal': False, 'softmax_scale': None}
GRADIENTS = False
DTYPE = torch.bfloat16
DEVICE = 'cuda'
CALL = batch
PROBLEM = [([0.1259765625, -0.1318359375, 0.640625, 0.10498046875, -0.53515625, 0.361328125, 1.3046875, 0.9453125, -0.703125, -1.265625, -0.625, 0.041259765625, -2.328125, -0.21875, -1.2421875, -0.73046875], (2, 1, 8)), ([-0.54296875, -0.31640625, 0.412109375, 1.0390625, -0.12890625, 1.3671875, -0.6640625, 0.3515625, 0.90234375, 0.09423828125, -0.7421875, -0.921875, -0.45703125, 0.2197265625, -1.0078125, -0.208984375], (2, 1, 8)), ([-0.1591796875, 0.5390625, 0.21484375, 0.35546875, -0.65234375, -0.1298828125, 0.78515625, 1.4921875, -1.2578125, 1.515625, 1.34375, 0.78125, 0.263671875, -0.314453125, 1.4609375, 1.9609375], (2, 1, 8)), ([1.8046875, 1.3125, 0.357421875, -1.2109375, -0.00445556640625, 0.65625, -1.2890625, 0.39453125, 0.4296875, 0.6953125, -1.1875, -0.66015625, -0.435546875, -1.171875, 1.7421875, -0.49609375], (2, 1, 8))]

# What it should be: dense, in float64.
import numpy as np


def truth():
    """out, dq, dk, dv of all rows: row i sees key j where SEEN[i] has j."""
    q, k, v, dout = (np.nan_to_num(np.array(x)).reshape(x_shape) for x, x_shape in PROBLEM)
    group = q.shape[1] // k.shape[1]
    wide_k, wide_v = (np.repeat(x, group, axis=1) for x in (k, v))
    seen = np.zeros((len(q), len(k)), bool)
    for row, keys in enumerate(SEEN):
        seen[row, keys] = True
    scores = np.where(seen, np.einsum("qhd,khd->hqk", q, wide_k) * SCALE, -np.inf)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    out = np.einsum("hqk,khd->qhd", weights, wide_v)
    inner = np.einsum("qhd,khd->hqk", dout, wide_v) - (dout * out).sum(-1).T[..., None]
    ds = weights * inner * SCALE
    dk = np.einsum("hqk,qhd->khd", ds, q).reshape(len(k), -1, group, k.shape[2]).sum(2)
    dv = np.einsum("hqk,qhd->khd", weights, dout).reshape(len(v), -1, group, v.shape[2]).sum(2)
    return {"out": out, "dq": np.einsum("hqk,khd->qhd", ds, wide_k), "dk": dk, "dv": dv}


def compare(got):
    """Prints the largest difference of each result, and the row that it is in."""
    for name, want in truth().items():
        if name in got:
            error = np.abs(np.asarray(got[name], np.float64) - want)
            error = np.where(np.isnan(error), np.inf, error)
            row, head, _ = np.unravel_index(error.argmax(), error.shape)
            print(f"{name}: largest error {error.max():.3g}, in row {row}, head {head}")
            print(f"  got      {np.asarray(got[name], np.float64)[row, head].round(4).tolist()}")
            print(f"  expected {want[row, head].round(4).tolist()}")

# The package, one process a rank.
import os
import sys
import tempfile

import torch


def rank_main(rank, size, store, results):
    place = f"cuda:{rank}" if DEVICE == "cuda" else "cpu"
    if DEVICE == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    torch.distributed.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=size
    )
    rows = ROWS[rank]
    whole = (torch.tensor(x, dtype=DTYPE, device=place).reshape(x_shape) for x, x_shape in PROBLEM)
    q, k, v, dout = (x[rows].requires_grad_() for x in whole)
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    returned = CALL(q, k, v, **ARGUMENTS)
    out = returned[0] if isinstance(returned, tuple) else returned
    found = {"out": out.detach().float().cpu().numpy()}
    if GRADIENTS:
        gradients = torch.autograd.grad(out, (q, k, v), dout.detach(), allow_unused=True)
        for name, x, like in zip(("dq", "dk", "dv"), gradients, (q, k, v)):
            x = torch.zeros_like(like) if x is None else x
            found[name] = x.float().cpu().numpy()
    torch.save(found, f"{results}/{rank}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        arguments = (len(ROWS), store, folder)
        start = "fork" if sys.platform == "linux" else "spawn"  # a fork need not import torch again
        torch.multiprocessing.start_processes(rank_main, arguments, len(ROWS), start_method=start)
        parts = [torch.load(f"{folder}/{r}", weights_only=False) for r in range(len(ROWS))]
    got = {}
    for name in parts[0]:
        got[name] = np.zeros((sum(map(len, ROWS)), *parts[0][name].shape[1:]))
        for rows, part in zip(ROWS, parts):
            got[name][rows] = part[name]
    compare(got)


if __name__ == "__main__":
    main()
