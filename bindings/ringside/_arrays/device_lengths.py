"""The lengths of a batch where they are: on the device, never looked at."""

from __future__ import annotations

import dataclasses
from typing import Any

from ringside import _core
from ringside._arrays import cuda as _cuda
from ringside._arrays.layout import DeviceLayout

Given = tuple[Any, Any, int]  # cu_seqlens, or a layout; cu_seqlens_padded; rows


def layouts_of(q: Given, k: Given) -> tuple[DeviceLayout, DeviceLayout]:
    """Of q and of k, which has the lengths of q unless told."""
    if k[0] is None and k[1] is not None:
        raise ValueError("cu_seqlens_k_padded without cu_seqlens_k; pass both")
    of_q = _layout(*q)
    if k[0] is None:
        return of_q, dataclasses.replace(of_q, num_rows=k[2], max_rows=None)
    return of_q, _layout(*k, whose="_k")


def _layout(
    cu_seqlens: Any, cu_seqlens_padded: Any, num_rows: int, whose: str = ""
) -> DeviceLayout:
    """Of a layout, or of its arrays."""
    if not isinstance(cu_seqlens, DeviceLayout):
        _cuda.library_of(cu_seqlens)  # says where arrays have to lie
        return DeviceLayout(cu_seqlens, cu_seqlens_padded, num_rows)
    if cu_seqlens_padded is not None:
        raise _core.InvalidArgument(
            f"cu_seqlens{whose}_padded beside a DeviceLayout; expected none, as it has its own. "
            "Leave it out"
        )
    if cu_seqlens.num_rows != num_rows:
        raise _core.InvalidArgument(
            f"cu_seqlens{whose} is a DeviceLayout of num_rows={cu_seqlens.num_rows}; expected the "
            f"plan's {num_rows}. Pass the rows of the arrays that the plan is called with"
        )
    return cu_seqlens


class DeviceLengths:
    """The layouts of q and of k of one batch, on one device."""

    def __init__(self, max_sequences: int, q: DeviceLayout, k: DeviceLayout) -> None:
        self.num_rows = q.num_rows, k.num_rows
        self.arrays = {
            "cu_seqlens": q.cu_seqlens,
            "cu_seqlens_padded": q.cu_seqlens_padded,
            "cu_seqlens_k": k.cu_seqlens,
            "cu_seqlens_k_padded": k.cu_seqlens_padded,
        }
        first = q.cu_seqlens
        self.library = _cuda.library_of(first)
        self.device = self.library.device(first)
        batch = first.shape[0] - 1 if len(first.shape) == 1 else -1
        for name, x in self.arrays.items():
            if not self.library.owns(x) or self.library.device(x) != self.device:
                raise TypeError(f"{name} is not on cu_seqlens's device or not its kind of array")
            if str(x.dtype).removeprefix("torch.") not in ("int32", "int64"):
                raise TypeError(f"{name} is {x.dtype}; expected int32 or int64. Convert it")
            if tuple(x.shape) != (batch + 1,) or not 0 <= batch <= max_sequences:
                raise ValueError(
                    f"{name} has shape {tuple(x.shape)}; expected [batch+1] for one batch of at "
                    f"most max_sequences={max_sequences}"
                )
        self.arrays = {name: self.library.ready(x) for name, x in self.arrays.items()}

    def require_with(self, library: Any, device: int) -> None:
        """Raises TypeError unless one stream orders these arrays and the library's on a device."""
        if device != self.device or not library.owns(self.arrays["cu_seqlens"]):
            raise TypeError(
                f"cu_seqlens lies on device {self.device} and the other arrays on {device}, or "
                "they are not of one library; expected one library and one device, whose stream "
                "orders them. Convert one"
            )

    def require_on(self, device: int) -> None:
        """Raises TypeError unless they lie on a device."""
        if device != self.device:
            raise TypeError(
                f"cu_seqlens lies on device {self.device}; expected device {device}, where the "
                "plan's ranks compute. Move it there, or make another plan"
            )

    def set(self, program: Any) -> None:
        """Rewrites a program's tables, on the current stream."""
        layout = _cuda.cuda_core().thd.Layout
        valid, padded, valid_k, padded_k = map(self.library.describe, self.arrays.values())
        q, k = (
            layout(valid, padded, self.num_rows[0]),
            layout(valid_k, padded_k, self.num_rows[1]),
        )
        program.set_lengths(q, k, self.library.stream(self.device))

    def fitted(self, program: Any) -> bool:
        """Whether lengths fitted; waits for the device."""
        return program.lengths_fitted(self.library.stream(self.device))
