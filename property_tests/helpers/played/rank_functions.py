"""What processes of ranks run in tests: one right way, and ways to fail."""

import os
import time

import torch
import torch.distributed as dist


class _Gathered(torch.autograd.Function):
    """Everybody's rows, in rank order; gradients go back to their owners, summed."""

    @staticmethod
    def forward(ctx, x, rows):
        parts = [x.new_empty(n, *x.shape[1:]) for n in rows]
        for rank, part in enumerate(parts):
            if rank == dist.get_rank():
                part.copy_(x)
            dist.broadcast(part, rank)
        ctx.rows = rows
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.split(ctx.rows)[dist.get_rank()], None


def gathered(q, k, v, *, plan, softmax_scale, forget=False):
    """Keys of all ranks at once, a row of the mask at a time."""
    rows = [len(plan.row_indices(rank, side="k")) for rank in range(plan.cp_size)]
    k, v = _Gathered.apply(k.nan_to_num(), rows), _Gathered.apply(v.nan_to_num(), rows)
    keys = [row for r in range(plan.cp_size) for row in plan.row_indices(r, side="k").tolist()]
    mine = plan.row_indices(dist.get_rank()).tolist()
    seen = torch.zeros(len(mine), len(keys), dtype=torch.bool)
    place = dict(zip(keys, range(len(keys)), strict=True))
    for s in range(plan.layout_q.num_sequences):
        len_q, len_k = int(plan.layout_q.lengths[s]), int(plan.layout_k.lengths[s])
        begin_q, begin_k = (int(x.cu_seqlens_padded[s]) for x in (plan.layout_q, plan.layout_k))
        for i, row in enumerate(mine):
            if begin_q <= row < begin_q + len_q:
                begin, end = plan.mask.visible(row - begin_q, len_q, len_k)
                for key in range(begin, end - (1 if forget and end > begin + 1 else 0)):
                    seen[i, place[begin_k + key]] = True
    groups = plan.num_heads // plan.num_kv_heads
    heads_k, heads_v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.nan_to_num(), heads_k) * (
        q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    )
    scores = scores.masked_fill(~seen, -torch.inf)
    some = seen.any(dim=1)
    lse = torch.logsumexp(scores, dim=-1)
    weights = torch.where(some[None, :, None], torch.exp(scores - lse[..., None].nan_to_num()), 0.0)
    out = torch.einsum("hqk,khd->qhd", weights, heads_v)
    return torch.where(some[:, None, None], out, 0.0), lse.detach()


def forgetful(q, k, v, **rest):
    """Hides the last key of every row that sees two."""
    return gathered(q, k, v, forget=True, **rest)


def raising(q, k, v, *, plan, softmax_scale):
    if dist.get_rank() == 1:
        raise ValueError("no such window")
    dist.barrier()


def leaving(q, k, v, *, plan, softmax_scale):
    if dist.get_rank() == 1:
        os._exit(7)
    dist.barrier()


def leaving_seen_late(q, k, v, *, plan, softmax_scale):
    """Who talked to it says so before its end is seen."""
    if dist.get_rank() == 1:
        time.sleep(0.5)
        os._exit(7)
    raise RuntimeError("gloo/transport/tcp/pair.cc: Connection reset by peer")


def losing(q, k, v, *, plan, softmax_scale):
    """Says that it lost the other, which is there and well."""
    if dist.get_rank() == 0:
        raise RuntimeError("Connection closed by peer [127.0.0.1]")
    return gathered(q, k, v, plan=plan, softmax_scale=softmax_scale)


def hanging(q, k, v, *, plan, softmax_scale):
    time.sleep(60)


ONCE = []


def set_up():
    ONCE.append(1)


def set_up_once(q, k, v, *, plan, softmax_scale):
    assert ONCE == [1] and not dist.get_backend() == "nccl"
    return gathered(q, k, v, plan=plan, softmax_scale=softmax_scale)


def with_sink(q, k, v, *, plan, softmax_scale, sink):
    """One rank, one document, one head, everything seen."""
    s = softmax_scale * q[:, 0] @ k[:, 0].T
    weights = s.exp() / (s.exp().sum(1) + sink[0].exp())[:, None]
    return (weights @ v[:, 0])[:, None]


def overwriting(q, k, v, *, plan, softmax_scale):
    """Nobody reads k afterwards."""
    out = gathered(q, k, v, plan=plan, softmax_scale=softmax_scale)
    with torch.no_grad():
        k.zero_()
    return out
