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
