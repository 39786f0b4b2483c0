import sys
import types
from importlib import import_module
from importlib.util import find_spec

import torch


def module(name):
    """A module of the package, whose own face would import transformers, too."""
    if "ring_flash_attn" not in sys.modules:
        spec, package = find_spec("ring_flash_attn"), types.ModuleType("ring_flash_attn")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["ring_flash_attn"] = package
    return import_module(f"ring_flash_attn.{name}")


def packs(q, k, v, *, kind, cu_seqlens, longest, window, **settings):
    function = getattr(module(f"{kind}_flash_attn_varlen"), f"{kind}_flash_attn_varlen_func")
    lengths = torch.tensor(cu_seqlens, dtype=torch.int32, device=q.device)
    settings.update(window_size=tuple(window), return_attn_probs=True)
    return function(q, k, v, lengths, longest, **settings)[:2]


def llama3(q, k, v, *, cu_seqlens, window, causal, softmax_scale):
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    llama3 = module("llama3_flash_attn_varlen")
    lengths = torch.tensor(cu_seqlens, dtype=torch.int32, device=q.device)
    prepared = llama3.llama3_flash_attn_prepare_cu_seqlens(lengths, causal, rank, size)
    settings = {"softmax_scale": softmax_scale, "causal": causal, "window_size": tuple(window)}
    *lengths, keys = prepared
    return llama3.llama3_flash_attn_varlen_func(
        q, k, v, *lengths, heads_k_stride=1, local_k_slice=keys, **settings
    )


def batch(q, k, v, *, kind, sequences, window, **settings):
    function = getattr(module(f"{kind}_flash_attn"), f"{kind}_flash_attn_func")
    q, k, v = (x.reshape(sequences, -1, *x.shape[1:]) for x in (q, k, v))
    return function(q, k, v, window_size=tuple(window), **settings).flatten(0, 1)
