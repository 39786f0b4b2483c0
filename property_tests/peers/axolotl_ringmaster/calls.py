import torch
from ringmaster.config import RotateMethod
from ringmaster.ring.distflash import distflash_attention
from ringmaster.ring.loop import ring_attention, varlen_ring_attention
from ringmaster.ring.zigzag import zigzag_ring_attention


def batches(q, k, v, sequences=1):
    return (x.reshape(sequences, -1, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))


def loop(q, k, v, *, sequences, rotate, window, **settings):
    settings |= {"provider": "math", "attn_implementation": "math", "dropout": 0.0}
    settings |= {"rotate_method": RotateMethod(rotate), "window": window and tuple(window)}
    settings["group"] = torch.distributed.group.WORLD
    return ring_attention(*batches(q, k, v, sequences), **settings).flatten(0, 1)


def packs(q, k, v, *, kind, cu_seqlens, scaling, **settings):
    function = {"zigzag": zigzag_ring_attention, "distflash": distflash_attention}
    settings |= {"group": torch.distributed.group.WORLD, "scaling": scaling}
    settings["cu_seqlens"] = torch.tensor(cu_seqlens, dtype=torch.int32, device=q.device)
    chosen = function.get(kind, varlen_ring_attention)
    return chosen(*batches(q, k, v), **settings).flatten(0, 1)
