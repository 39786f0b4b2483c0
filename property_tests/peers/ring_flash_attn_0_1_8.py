"""ring-flash-attn 0.1.8 as published, flash_attn played on a CPU; run in one process a rank.

It asks for sequences whose lengths are multiples of 2 * world size, in zigzag order, in 16 bits.
Its functions take `window_size`.
"""

import os
import sys
import types
from pathlib import Path

import torch
from ringside.testing import stand_ins

PLACE = Path(os.environ.get("RINGSIDE_PEERS", Path(__file__).parents[2] / ".venv" / "peers"))
NAME = "ring_flash_attn"
FOUND = []  # the function, in each process


def is_installed():
    return (PLACE / NAME).is_dir()


def set_up():
    """Imports the module that holds the function: the package's own face needs transformers."""
    package = types.ModuleType(NAME)
    package.__path__ = [str(PLACE / NAME)]
    sys.modules[NAME] = package
    with stand_ins.flash_attn_installed():
        from ring_flash_attn import zigzag_ring_flash_attn_varlen as module
    FOUND.append(module.zigzag_ring_flash_attn_varlen_func)


def zigzag(q, k, v, *, plan, softmax_scale):
    left, right = plan.mask.window_size
    cu_seqlens = plan.layout_q.cu_seqlens_padded // plan.cp_size
    out, lse, _ = FOUND[0](
        *(q, k, v, torch.from_numpy(cu_seqlens), int(plan.layout_q.lengths.max()) // plan.cp_size),
        softmax_scale=softmax_scale,
        causal=True,
        window_size=(left, 0) if left >= 0 else (-1, -1),
        return_attn_probs=True,
    )
    assert right == 0
    return out, lse.detach()
