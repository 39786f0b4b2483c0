"""ring-attention-pytorch 0.5.20: ring_attention_pytorch.ring_flash_attn, striped ring, causal.

pip install ring-attention-pytorch==0.5.20 torch==2.15.0
Needs numpy, torch (CPU is enough), and nothing else.
"""

import torch

import torch
from ring_attention_pytorch import ring_flash_attn
from ring_attention_pytorch.zig_zag_attention import zig_zag_attn


def ring(q, k, v, *, sequences, causal, striped, bucket):
    q, k, v = (x.reshape(sequences, -1, *x.shape[1:]) for x in (q, k, v))
    settings = {"ring_reduce_col": True, "striped_ring_attn": striped, "bucket_size": bucket}
    return ring_flash_attn(q, k, v, causal=causal, **settings).flatten(0, 1)


def zigzag(q, k, v, *, sequences, chunk):
    """As its assert_zig_zag.py: the mask comes of the positions of queries and of gathered keys."""
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    chunks = torch.arange(2 * size * chunk).reshape(2 * size, chunk)
    order = [chunks[[r, 2 * size - 1 - r]].flatten() for r in range(size)]
    seen = order[rank][:, None] >= torch.cat(order)[None, :]
    q, k, v = (x.reshape(sequences, -1, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
    return zig_zag_attn(q, k, v, attn_mask=seen).transpose(1, 2).flatten(0, 1)

nan = float('nan')
# The problem: all rows, each rank's rows, who sees whom.
ROWS = [[0], [1]]
SEEN = [[0], [0, 1]]
SCALE = 0.3535533905932738
ARGUMENTS = {'sequences': 1, 'striped': True, 'bucket': 1, 'causal': True}
GRADIENTS = True
DTYPE = torch.float32
CALL = ring
PROBLEM = [([0.1257302165031433, -0.13210485875606537, 0.6404226422309875, 0.10490011423826218, -0.5356693863868713, 0.3615950644016266, 1.3040000200271606, 0.9470809698104858, -0.7037352323532104, -1.2654215097427368, -0.6232744455337524, 0.04132597893476486, -2.32503080368042, -0.218791663646698, -1.2459110021591187, -0.7322673797607422], (2, 1, 8)), ([-0.5442590117454529, -0.3163001537322998, 0.4116305410861969, 1.042513370513916, -0.12853465974330902, 1.3664634227752686, -0.6651946902275085, 0.35151007771492004, 0.9034701585769653, 0.0940122976899147, -0.7434992790222168, -0.9217253923416138, -0.4577258229255676, 0.22019512951374054, -1.0096181631088257, -0.20917557179927826], (2, 1, 8)), ([-0.15922501683235168, 0.5408455729484558, 0.21465912461280823, 0.35537269711494446, -0.6538286209106445, -0.12961363792419434, 0.7839754819869995, 1.4934310913085938, -1.2590655088424683, 1.5139237642288208, 1.3458753824234009, 0.7813113927841187, 0.2644556164741516, -0.31392282247543335, 1.4580206871032715, 1.9602583646774292], (2, 1, 8)), ([1.8016349077224731, 1.3151037693023682, 0.3573804199695587, -1.2083185911178589, -0.004454133100807667, 0.6564749479293823, -1.2883614301681519, 0.39512205123901367, 0.42986369132995605, 0.6960427165031433, -1.1841179132461548, -0.661702573299408, -0.4364352524280548, -1.169801950454712, 1.7393678426742554, -0.49591073393821716], (2, 1, 8))]

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
import tempfile

import torch


def rank_main(rank, size, store, results):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size
    )
    rows = ROWS[rank]
    whole = (torch.tensor(x, dtype=DTYPE).reshape(x_shape) for x, x_shape in PROBLEM)
    q, k, v, dout = (x[rows].requires_grad_() for x in whole)
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    returned = CALL(q, k, v, **ARGUMENTS)
    out = returned[0] if isinstance(returned, tuple) else returned
    found = {"out": out.detach().float().numpy()}
    if GRADIENTS:
        gradients = torch.autograd.grad(out, (q, k, v), dout.detach(), allow_unused=True)
        for name, x, like in zip(("dq", "dk", "dv"), gradients, (q, k, v)):
            x = torch.zeros_like(like) if x is None else x
            found[name] = x.float().numpy()
    torch.save(found, f"{results}/{rank}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        arguments = (len(ROWS), store, folder)
        torch.multiprocessing.spawn(rank_main, arguments, nprocs=len(ROWS))
        parts = [torch.load(f"{folder}/{r}", weights_only=False) for r in range(len(ROWS))]
    got = {}
    for name in parts[0]:
        got[name] = np.zeros((sum(map(len, ROWS)), *parts[0][name].shape[1:]))
        for rows, part in zip(ROWS, parts):
            got[name][rows] = part[name]
    compare(got)


if __name__ == "__main__":
    main()
