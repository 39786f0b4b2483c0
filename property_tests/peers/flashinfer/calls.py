import functools
import importlib
import sys
import types
from importlib.util import find_spec

import torch


def module():
    """Its parallel attention, without the package's face, which would load kernels."""
    package = types.ModuleType("flashinfer")
    package.__path__ = list(find_spec("flashinfer").submodule_search_locations)
    kernels = types.ModuleType("flashinfer.prefill")
    kernels.fmha_varlen = None  # of its own kernels; flash-attn3 is asked for
    sys.modules.update({"flashinfer": package, "flashinfer.prefill": kernels})
    return importlib.import_module("flashinfer.parallel_attention")


parallel = module()


@functools.cache
def groups(ulysses, ring):
    return parallel.get_parallel_groups(ulysses, ring, device_type="cpu")


def run(q, k, v, *, ulysses, layout, lengths):
    """lengths: of the documents, in the rows that a rank's kernel sees; None for one document."""
    size = torch.distributed.get_world_size()
    ring, heads = groups(size, 1) if ulysses else groups(1, size)
    config = None
    if lengths is not None:
        ends = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        of_ranks = ends if ulysses else torch.stack([ends] * size)
        config = parallel.VarlenCPConfig()
        longest = (max(lengths), max(lengths))
        config.set_varlen_cp_config(of_ranks, of_ranks, *longest, heads, ring)
    attention = parallel.ParallelAttention(
        "flash-attn3", ulysses_group=heads, ring_group=ring, varlen_cp_config=config
    )
    if layout == "HND":
        q, k, v = (x.transpose(0, 1).contiguous() for x in (q, k, v))
    out = attention.run(q, k, v, tensor_layout=layout)
    return out.transpose(0, 1) if layout == "HND" else out
