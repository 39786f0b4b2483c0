"""Packed attention in torch as people write it, and right: whoever calls it wrong is wrong.

Keys come in blocks, whose results are merged by their log-sum-exp: one block for an attention, one
for each rank of a ring. In 16 bits the weights and the gradients of the scores are rounded before
they enter their products, sums are float32, and backward starts from the rounded out, as in
FlashAttention. The mask is independent's, from window_size, chunk_size and align alone.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from independent import dense_mask

LOW = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def seen_by(layout_q, layout_k, mask):
    """[rows_q, rows_k] of the whole pack."""
    seen = np.zeros((layout_q.num_rows, layout_k.num_rows), bool)
    for s in range(layout_q.num_sequences):
        block = dense_mask(mask, int(layout_q.lengths[s]), int(layout_k.lengths[s]))
        top, left = int(layout_q.cu_seqlens_padded[s]), int(layout_k.cu_seqlens_padded[s])
        seen[top : top + block.shape[0], left : left + block.shape[1]] = block
    return torch.from_numpy(seen)


def tensor(x):
    """float32 without the NaN of the padding."""
    return torch.nan_to_num(torch.from_numpy(np.asarray(x, np.float32).copy()))


@dataclasses.dataclass
class Blocks:
    """Queries, and keys in blocks: (keys, values, seen [rows, keys]) of each.

    Args:
        q: [rows, heads, dim] in float32.
        blocks: of keys.
        scale: of the scores.
        store: the type that operands and results have.
    """

    q: torch.Tensor
    blocks: list
    scale: float
    store: str

    def low(self, x):
        return x.to(LOW[self.store]).float()

    def wide(self, x):
        return x.repeat_interleave(self.q.shape[1] // x.shape[1], dim=1)

    def scores(self, k, seen):
        scores = torch.einsum("qhd,khd->hqk", self.q, self.wide(k)) * self.scale
        return scores.masked_fill(~seen, -torch.inf)

    def block(self, k, v, seen):
        scores = self.scores(k, seen)
        top = (
            scores.amax(-1, keepdim=True) if len(k) else scores.new_full((*scores.shape[:2], 1), 0)
        )
        top = top.masked_fill(top == -torch.inf, 0)
        weights = torch.exp(scores - top)
        total = weights.sum(-1, keepdim=True)
        out = torch.einsum("hqk,khd->hqd", self.low(weights), self.wide(v))
        return out / total.masked_fill(total == 0, 1), top + torch.log(total)

    def forward(self):
        """out [rows, heads, dim] in the type, lse [heads, rows]."""
        out, lse = self.block(*self.blocks[0])
        for block in self.blocks[1:]:
            new_out, new_lse = self.block(*block)
            both = torch.logaddexp(lse, new_lse)
            shift = both.masked_fill(both == -torch.inf, 0)
            out = out * torch.exp(lse - shift) + new_out * torch.exp(new_lse - shift)
            lse = both
        return self.low(out).transpose(0, 1), lse[..., 0]

    def backward(self, dout, out, lse):
        """dq, and (dk, dv) of each block, in float32."""
        shift = lse.masked_fill(lse == -torch.inf, 0)[..., None]
        delta = (dout * out).sum(-1).T[..., None]
        dq, of_blocks = torch.zeros_like(self.q), []
        for k, v, seen in self.blocks:
            weights = torch.exp(self.scores(k, seen) - shift)
            products = torch.einsum("qhd,khd->hqk", dout, self.wide(v))
            ds = self.low(weights * (products - delta))
            dq += self.scale * torch.einsum("hqk,khd->qhd", ds, self.wide(k))
            dk = self.scale * torch.einsum("hqk,qhd->khd", ds, self.q)
            dv = torch.einsum("hqk,qhd->khd", self.low(weights), dout)
            of_blocks.append(
                [x.unflatten(1, (y.shape[1], -1)).sum(2) for x, y in ((dk, k), (dv, v))]
            )
        return dq, of_blocks


@dataclasses.dataclass
class Attention:
    """One rank, for check_attention.

    Args:
        store: "float32" or "bfloat16".
    """

    store: str

    def blocks(self, q, k, v, layout_q, layout_k, mask, softmax_scale):
        scale = q.shape[2] ** -0.5 if softmax_scale is None else softmax_scale
        seen = seen_by(layout_q, layout_k, mask)
        return Blocks(tensor(q), [(tensor(k), tensor(v), seen)], scale, self.store)

    def __call__(self, q, k, v, *, layout_q, layout_k, mask, softmax_scale):
        out, lse = self.blocks(q, k, v, layout_q, layout_k, mask, softmax_scale).forward()
        return out.numpy(), lse.numpy()

    def backward(self, dout, q, k, v, out, lse, *, layout_q, layout_k, mask, softmax_scale):
        blocks = self.blocks(q, k, v, layout_q, layout_k, mask, softmax_scale)
        dq, [(dk, dv)] = blocks.backward(tensor(dout), tensor(out), torch.tensor(lse))
        return tuple(blocks.low(x).numpy() for x in (dq, dk, dv))


@dataclasses.dataclass
class Ring:
    """All ranks of a ring in this process, for check_context_parallel.

    Args:
        store: "float32" or "bfloat16".
    """

    store: str

    def of_rank(self, rank, qs, ks, vs, plan, softmax_scale):
        """The rank's rows, and the keys in the order in which they come to it."""
        scale = qs[0].shape[2] ** -0.5 if softmax_scale is None else softmax_scale
        seen = seen_by(plan.layout_q, plan.layout_k, plan.mask)[plan.row_indices(rank)]
        blocks = []
        for owner in self.order(rank, plan.cp_size):
            rows = plan.row_indices(owner, side="k")
            blocks.append((tensor(ks[owner]), tensor(vs[owner]), seen[:, rows]))
        return Blocks(tensor(qs[rank]), blocks, scale, self.store)

    def order(self, rank, size):
        return [(rank - step) % size for step in range(size)]

    def __call__(self, qs, ks, vs, *, plan, softmax_scale):
        ranks = range(plan.cp_size)
        found = [self.of_rank(r, qs, ks, vs, plan, softmax_scale).forward() for r in ranks]
        return [(out.numpy(), lse.numpy()) for out, lse in found]

    def backward(self, douts, qs, ks, vs, outs, lses, *, plan, softmax_scale):
        found = [[None, *(torch.zeros(x[r].shape) for x in (ks, vs))] for r in range(plan.cp_size)]
        for rank in range(plan.cp_size):
            blocks = self.of_rank(rank, qs, ks, vs, plan, softmax_scale)
            given = tensor(douts[rank]), tensor(outs[rank]), torch.tensor(lses[rank])
            found[rank][0], of_blocks = blocks.backward(*given)
            for owner, (dk, dv) in zip(self.order(rank, plan.cp_size), of_blocks, strict=True):
                found[owner][1] += dk
                found[owner][2] += dv
        return [tuple(blocks.low(x).numpy() for x in results) for results in found]
