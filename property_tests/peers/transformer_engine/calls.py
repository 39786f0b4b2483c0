import importlib
import sys
import types
from importlib.util import find_spec

import flash_attn_interface
import torch

PLACE = "transformer_engine.pytorch.attention.dot_product_attention"


def module():
    """Context parallelism, without the package's face, which would look for a GPU and a library."""
    where, parts = find_spec("transformer_engine").submodule_search_locations[0], PLACE.split(".")
    for count in range(1, len(parts) + 1):
        package = types.ModuleType(".".join(parts[:count]))
        package.__path__ = ["/".join([where, *parts[1:count]])]
        sys.modules[package.__name__] = package
    kernels = types.ModuleType(f"{PLACE}.backends")  # it would look for a wheel of flash_attn_3
    kernels._flash_attn_fwd_v3 = flash_attn_interface._flash_attn_forward
    kernels._flash_attn_bwd_v3 = flash_attn_interface._flash_attn_backward
    sys.modules[kernels.__name__] = kernels
    importlib.import_module("transformer_engine.pytorch.module")  # modules import each other
    return importlib.import_module(f"{PLACE}.context_parallel")


context_parallel = module()
communicate = context_parallel.flash_attn_p2p_communicate


class Once:
    """NCCL's requests can be waited for again, as is done; gloo's would wait for one more."""

    def __init__(self, request):
        self.request = request

    def wait(self):
        if self.request is not None:
            self.request.wait()
        self.request = None


context_parallel.flash_attn_p2p_communicate = lambda *given: [Once(x) for x in communicate(*given)]


def call(q, k, v, *, cu_seqlens, cu_seqlens_padded, longest, kernel, balance, window, **settings):
    lengths, padded = (torch.tensor(x, dtype=torch.int32) for x in (cu_seqlens, cu_seqlens_padded))
    return context_parallel.attn_forward_func_with_cp(
        *(True, q, k, v, lengths, lengths, longest, longest, padded, padded, 0.0),
        cp_group=torch.distributed.group.WORLD,
        cp_global_ranks=list(range(torch.distributed.get_world_size())),
        cp_stream=torch.cuda.current_stream(),
        use_fused_attention=kernel == "cuDNN",
        use_flash_attn_3=kernel == "FlashAttention 3",
        pad_between_seqs=cu_seqlens != cu_seqlens_padded,
        load_balancing_strategy=context_parallel.CPLoadBalancingStrategy[balance],
        window_size=tuple(window),
        **settings,
    )


def packs(q, k, v, **settings):
    return call(q, k, v, qkv_format="thd", **settings).reshape(q.shape)


def batch(q, k, v, *, sequences, qkv_format, **settings):
    """[rows, heads, dim], sequence after sequence, as bshd or sbhd and back."""
    order = (1, 0, 2, 3) if qkv_format == "sbhd" else (0, 1, 2, 3)
    given = (x.reshape(sequences, -1, *x.shape[1:]).permute(order).contiguous() for x in (q, k, v))
    q, k, v = given
    out = call(q, k, v, qkv_format=qkv_format, **settings).reshape(q.shape)
    return out.permute(order).flatten(0, 1)
