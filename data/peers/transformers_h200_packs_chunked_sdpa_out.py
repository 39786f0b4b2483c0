"""transformers 5.17.0: transformers.masking_utils.create_chunked_causal_mask, packs, chunked, sdpa.

pip install transformers==5.17.0 torch==2.11.0
Needs numpy, torch (a GPU for each rank), and nothing else.
"""

import torch

from types import SimpleNamespace

import torch
from transformers import LlamaConfig, masking_utils
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.llama.modeling_llama import eager_attention_forward

ATTEND = {"sdpa": sdpa_attention_forward, "eager": eager_attention_forward}


def packed(q, k, v, *, kind, positions, mask, scaling, **settings):
    """position_ids alone say where a document begins; attention_mask is None."""
    config = LlamaConfig(attn_implementation=kind)
    for name, value in settings.items():
        setattr(config, name, value)
    make = getattr(masking_utils, f"create_{mask}_mask")
    ids = torch.tensor(positions, device=q.device)[None]
    made = make(config, torch.zeros(1, len(q), 1, device=q.device), None, None, position_ids=ids)
    groups = q.shape[1] // k.shape[1]
    module = SimpleNamespace(num_key_value_groups=groups, is_causal=True, training=False)
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return ATTEND[kind](module, q, k, v, made, scaling=scaling, dropout=0.0)[0][0]

nan = float('nan')
# The problem: all rows, each rank's rows, who sees whom.
ROWS = [[0, 1, 2]]
SEEN = [[0], [1], [1, 2]]
SCALE = 0.3535533905932738
ARGUMENTS = {'kind': 'sdpa', 'positions': [0, 0, 1], 'scaling': 0.3535533905932738, 'mask': 'chunked_causal', 'attention_chunk_size': 2}
GRADIENTS = True
DTYPE = torch.float32
DEVICE = 'cuda'
CALL = packed
PROBLEM = [([0.1257302165031433, -0.13210485875606537, 0.6404226422309875, 0.10490011423826218, -0.5356693863868713, 0.3615950644016266, 1.3040000200271606, 0.9470809698104858, -0.7037352323532104, -1.2654215097427368, -0.6232744455337524, 0.04132597893476486, -2.32503080368042, -0.218791663646698, -1.2459110021591187, -0.7322673797607422, -0.5442590117454529, -0.3163001537322998, 0.4116305410861969, 1.042513370513916, -0.12853465974330902, 1.3664634227752686, -0.6651946902275085, 0.35151007771492004], (3, 1, 8)), ([0.9034701585769653, 0.0940122976899147, -0.7434992790222168, -0.9217253923416138, -0.4577258229255676, 0.22019512951374054, -1.0096181631088257, -0.20917557179927826, -0.15922501683235168, 0.5408455729484558, 0.21465912461280823, 0.35537269711494446, -0.6538286209106445, -0.12961363792419434, 0.7839754819869995, 1.4934310913085938, -1.2590655088424683, 1.5139237642288208, 1.3458753824234009, 0.7813113927841187, 0.2644556164741516, -0.31392282247543335, 1.4580206871032715, 1.9602583646774292], (3, 1, 8)), ([1.8016349077224731, 1.3151037693023682, 0.3573804199695587, -1.2083185911178589, -0.004454133100807667, 0.6564749479293823, -1.2883614301681519, 0.39512205123901367, 0.42986369132995605, 0.6960427165031433, -1.1841179132461548, -0.661702573299408, -0.4364352524280548, -1.169801950454712, 1.7393678426742554, -0.49591073393821716, 0.3289696276187897, -0.2585725486278534, 1.5834728479385376, 1.3203610181808472, 0.6333526372909546, -2.20350980758667, 0.052028972655534744, 0.6836861968040466], (3, 1, 8)), ([1.0039615631103516, -0.6179070472717285, 1.8220113515853882, -1.3204309940338135, -0.6615280508995056, 0.9350500106811523, 0.04905461519956589, 2.002392530441284, 0.1885191947221756, -0.633194088935852, -0.3775635063648224, -1.0911461114883423, -1.2776801586151123, 0.6304115056991577, 0.5811657905578613, 1.2945587635040283, -0.754605770111084, 1.6891074180603027, -0.2873876988887787, 1.5744082927703857, -0.43278583884239197, -0.7354832887649536, 0.249785378575325, 1.0314531326293945], (3, 1, 8))]

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
