"""torch 2.15.0: torch.nn.functional.scaled_dot_product_attention, is_causal, scale at most 0.

pip install torch==2.15.0
Needs numpy, torch (CPU is enough), and nothing else.
"""

import torch

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def heads_first(x, sequences=1):
    return x.reshape(sequences, -1, *x.shape[1:]).transpose(1, 2)


def rows(x):
    return x.transpose(1, 2).flatten(0, 1)


class Ring(torch.autograd.Function):
    """torch's ring over the CPU's own flash kernel, which it takes no part in choosing."""

    @staticmethod
    def forward(ctx, q, k, v, balance, settings):
        from torch.distributed.tensor.experimental._context_parallel import _attention as cp

        cp._cp_options.enable_load_balance = balance
        cp.set_rotate_method(settings.pop("rotate"))
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        group = torch.distributed.group.WORLD
        out, lse = cp._templated_ring_attention(group, 2, kernel, q, k, v, **settings)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.settings = settings
        return out

    @staticmethod
    def backward(ctx, dout):
        from torch.distributed.tensor.experimental._context_parallel import _attention as cp

        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
        q, k, v, out, lse = ctx.saved_tensors
        given = {"query": q, "key": k, "value": v, "out": out, "logsumexp": lse}
        settings = {"dropout_p": 0.0, **ctx.settings}
        found = cp._templated_ring_attention_backward(
            torch.distributed.group.WORLD, 2, kernel, dout, "grad_out", **given, **settings
        )
        return (*found[:3], None, None)


def ring(q, k, v, *, sequences, balance, **settings):
    return rows(Ring.apply(*(heads_first(x, sequences) for x in (q, k, v)), balance, settings))


def sdpa(q, k, v, *, sequences, **settings):
    q, k, v = (heads_first(x, sequences) for x in (q, k, v))
    return rows(F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **settings))


def masked(q, k, v, *, seen, scale):
    mask = torch.tensor(seen, dtype=torch.bool)
    return sdpa(q, k, v, sequences=1, attn_mask=mask, scale=scale)


def flex(q, k, v, *, documents, left, right, scale):
    document = torch.tensor(documents)

    def visible(b, h, i, j):
        return (document[i] == document[j]) & (j - i <= right) & (i - j <= left)

    blocks = create_block_mask(visible, None, None, len(q), len(k), device="cpu")
    q, k, v = map(heads_first, (q, k, v))
    return rows(flex_attention(q, k, v, block_mask=blocks, scale=scale, enable_gqa=True))

nan = float('nan')
# The problem: all rows, each rank's rows, who sees whom.
ROWS = [[0, 1]]
SEEN = [[0], [0, 1]]
SCALE = 0.0
ARGUMENTS = {'sequences': 1, 'is_causal': True, 'scale': 0.0}
GRADIENTS = True
DTYPE = torch.float32
CALL = sdpa
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
