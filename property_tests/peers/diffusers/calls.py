import functools
from types import SimpleNamespace

import flash_attn.flash_attn_interface as kernels
import torch
from diffusers import ContextParallelConfig
from diffusers.models import attention_dispatch
from torch.distributed.device_mesh import init_device_mesh

# It looks for a wheel of flash_attn; these are the two functions that it would import.
attention_dispatch._wrapped_flash_attn_forward = kernels._flash_attn_forward
attention_dispatch._wrapped_flash_attn_backward = kernels._flash_attn_backward


@functools.cache
def config(ring, ulysses):
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    mesh = init_device_mesh("cpu", (ring, ulysses), mesh_dim_names=("ring", "ulysses"))
    made = ContextParallelConfig(ring_degree=ring, ulysses_degree=ulysses)
    made.setup(rank, size, torch.device("cpu"), mesh)
    return SimpleNamespace(context_parallel_config=made)


def parallel(q, k, v, *, sequences, ring, ulysses, kernel, scale):
    q, k, v = (x.reshape(sequences, -1, *x.shape[1:]) for x in (q, k, v))
    out = attention_dispatch._templated_context_parallel_attention(
        *(q, k, v),
        scale=scale,
        forward_op=getattr(attention_dispatch, f"_{kernel}_attention_forward_op"),
        backward_op=getattr(attention_dispatch, f"_{kernel}_attention_backward_op"),
        _parallel_config=config(ring, ulysses),
    )
    return out.flatten(0, 1)
