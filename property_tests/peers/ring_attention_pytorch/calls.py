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
