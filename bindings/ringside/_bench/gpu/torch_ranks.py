"""PyTorch's context_parallel, for `ringside bench cp`: one causal sequence, a process a GPU."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import ringside as rs

ROTATIONS = ("allgather", "alltoall")


class Peer:
    """Both passes over the rank's shard, as PyTorch cuts it; a context in which its calls are made.

    Args:
        group: of a process a GPU.
        arrays: q, k, v, dout of all rows, [rows, heads, dim].
        rotation: one of ROTATIONS, how K and V travel.
        device: "cuda", or "cpu" for tests.
    """

    def __init__(
        self, group: rs.Group, arrays: tuple[Any, ...], rotation: str, device: str = "cuda"
    ) -> None:
        import torch
        from torch.distributed.tensor.experimental import context_parallel
        from torch.distributed.tensor.experimental._attention import set_rotate_method

        set_rotate_method(rotation)
        whole = [x.transpose(0, 1).unsqueeze(0).contiguous() for x in arrays]
        rows = torch.arange(whole[0].shape[2], device=whole[0].device).reshape(1, 1, -1, 1)
        self._open = contextlib.ExitStack()
        self._open.enter_context(
            context_parallel(
                mesh_of(group, device), buffers=[*whole, rows], buffer_seq_dims=[2] * 5
            )
        )
        self.q, self.k, self.v, self.dout = (x.clone() for x in whole)
        self.rows = rows.flatten().clone()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def run(self) -> tuple[Any, ...]:
        """(out, dq, dk, dv) of the rank, [1, heads, rows, dim]."""
        import torch
        from torch.nn import attention, functional

        q, k, v = (x.detach().requires_grad_() for x in (self.q, self.k, self.v))
        with attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION):
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return (out, *torch.autograd.grad(out, (q, k, v), self.dout))

    def fault(self, want: Any, allowed: float) -> str:
        """What differs from `want`, [rows, heads, dim] of all rows; or nothing."""
        for name, got, whole in zip(("out", "dq", "dk", "dv"), self.run(), want, strict=True):
            own = whole[self.rows].transpose(0, 1)
            off = (got[0].float() - own.float()).abs().max().item()
            most = allowed * whole.float().abs().max().item()
            if not off <= most:
                return f"{name} is off by {off:.3g}; at most {most:.3g} was expected"
        return ""


_meshes: dict[int, Any] = {}


def mesh_of(group: rs.Group, device: str = "cuda") -> Any:
    """PyTorch's own group over the same processes, made once."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    if id(group) not in _meshes:
        made = str(Path(tempfile.mkdtemp()) / "store") if group.rank == 0 else ""
        method = f"file://{group._tell_all(made)[0][1]}"
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, init_method=method, rank=group.rank, world_size=group.size)
        _meshes[id(group)] = init_device_mesh(device, (group.size,))
    return _meshes[id(group)]
