"""What a process of a group does on its GPU in a test, and what one process with every rank does.

Imported by tests and by the processes they start; torch is imported where it is needed.
"""

import numpy as np
from ringside.testing.dtypes import round_to

ARRAYS = ("out", "lse", "dq", "dk", "dv", "dsink")


def rounded(case, dtype):
    """q, k, v, dout as the GPU sees them; NaN in padding."""
    return [round_to(x, dtype) for x in case.arrays()]


def on_gpu(x, dtype, device):
    import torch

    array = torch.from_numpy(np.ascontiguousarray(x))
    return array.to(f"cuda:{device}", getattr(torch, dtype))


def on_host(x):
    return x.detach().double().cpu().numpy()


def one_or_list(parts):
    return parts[0] if len(parts) == 1 else parts


def listed(x, group):
    return list(x) if len(group.ranks) > 1 else [x]


class Shards:
    """The rows of the ranks that a process hosts, on its GPU."""

    def __init__(self, case, group, dtype, device):
        self.plan, self.group, self.case = case.plan(), group, case
        q, k, v, dout = rounded(case, dtype)
        of = [(q, "q"), (k, "k"), (v, "k"), (dout, "q")]
        self.q, self.k, self.v, self.dout = (
            one_or_list(
                [on_gpu(self.plan.shard(x, rank, side=side), dtype, device) for rank in group.ranks]
            )
            for x, side in of
        )

    def forward(self, exchange, **more):
        return self.plan.attention_rank(
            self.q,
            self.k,
            self.v,
            group=self.group,
            exchange=exchange,
            **more,
            **self.case.options,
        )

    def backward(self, out, lse, exchange, deterministic=True, kept_kv=None):
        return self.plan.attention_backward_rank(
            self.dout,
            self.q,
            self.k,
            self.v,
            out,
            lse,
            group=self.group,
            exchange=exchange,
            deterministic=deterministic,
            kept_kv=kept_kv,
            **self.case.options,
        )


def passes(case, group, dtype, exchange, device, times=1):
    """Lists by hosted rank of out, lse, dq, dk, dv and dsink; and max_logit. Poisoned."""
    from ringside._ranks import calls

    calls.POISON.on = True
    shards = Shards(case, group, dtype, device)
    for _ in range(times):
        out, lse, max_logit = shards.forward(exchange, return_max_logit=True)
        gradients = shards.backward(out, lse, exchange)
    group.synchronize()
    found = [[on_host(x) for x in listed(parts, group)] for parts in (out, lse, *gradients)]
    return dict(zip(ARRAYS, found, strict=False)), on_host(max_logit)


def kept_passes(case, group, dtype, exchange, device):
    """Two layers: forward, forward, backward, backward. By what they differ from layers that fetch.

    Layers share program and workspace, not what they keep. Names of differing arrays, and the bytes
    that a layer keeps.
    """
    import torch
    from ringside._ranks import calls

    calls.POISON.on = True
    layers = [Shards(case, group, dtype, device), Shards(case, group, dtype, device)]
    for x in listed(layers[1].k, group) + listed(layers[1].v, group):
        x.mul_(-0.5)
    want = []
    for layer in layers:
        out, lse = layer.forward(exchange)
        want.append((out, lse, *layer.backward(out, lse, exchange)))
    saved = [layer.forward(exchange, keep_kv=True) for layer in layers]
    got = [()] * 2
    for i in (1, 0):
        out, lse, kept = saved[i]
        got[i] = (out, lse, *layers[i].backward(out, lse, exchange, kept_kv=kept))
    group.synchronize()
    wrong = [
        f"{name} of layer {i}, rank {rank}"
        for i in range(2)
        for name, ours, theirs in zip(ARRAYS, got[i], want[i], strict=False)
        for rank, x, y in zip(group.ranks, listed(ours, group), listed(theirs, group), strict=True)
        if name != "dsink" and not torch.equal(x, y)
    ]
    return wrong, saved[0][2].nbytes


def on_one_gpu(case, dtype, device=0, **more):
    """Arrays of all rows on one GPU, every rank of the plan there; and what more is asked for."""
    plan = case.plan()
    q, k, v, dout = (on_gpu(x, dtype, device) for x in rounded(case, dtype))
    out, lse, *asked = plan.attention(q, k, v, backend="cuda", **more, **case.options)
    gradients = plan.attention_backward(
        dout, q, k, v, out, lse, backend="cuda", deterministic=True, **case.options
    )
    return dict(zip(ARRAYS, (out, lse, *gradients), strict=False)), *asked


def virtual(case, dtype):
    """The same on the host."""
    found, max_logit = on_one_gpu(case, dtype, return_max_logit=True)
    return {name: on_host(x) for name, x in found.items()}, on_host(max_logit)


def captured(both, group, device):
    """What both passes leave after two replays of their graph, over results that were NaN."""
    import torch

    group.synchronize()
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = both()
        for part in (x for parts in found for x in listed(parts, group)):
            part.fill_(float("nan"))
        for _ in range(2):
            graph.replay()
    return found


def difference(case, group, dtype, exchange, device, replayed=False):
    """Where a hosted rank's results are not, bit for bit, those of one GPU; or nothing.

    Compared where they were computed: long packs need not travel. max_logit is not asked for, as
    kernels that give it are others, which round otherwise.
    """
    import torch
    from ringside._ranks import calls

    calls.POISON.on = True
    shards = Shards(case, group, dtype, device)

    def both():
        out, lse = shards.forward(exchange)
        return out, lse, *shards.backward(out, lse, exchange)[:3]

    found = both()
    if replayed:
        found = captured(both, group, device)
    group.synchronize()
    (want,) = on_one_gpu(case, dtype, device)
    for name, parts in zip(ARRAYS[:5], found, strict=True):
        for rank, got in zip(group.ranks, listed(parts, group), strict=True):
            side = "k" if name in ("dk", "dv") else "q"
            rows = torch.from_numpy(shards.plan.row_indices(rank, side=side)).to(got.device)
            own = want[name][:, rows] if name == "lse" else want[name][rows]
            wrong = int((got != own).sum())
            if wrong:
                return f"{name} of rank {rank}: {wrong} of {own.numel()} numbers differ"
    return ""
