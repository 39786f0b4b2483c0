"""The lengths of a batch where they are: on the device, never looked at."""

from __future__ import annotations

from typing import Any

from ringside._arrays import cuda as _cuda


class DeviceLengths:
    """cu_seqlens on the device, of q and of k, valid and padded."""

    def __init__(self, max_sequences: int, q: Any, q_padded: Any, k: Any, k_padded: Any) -> None:
        q_padded = q if q_padded is None else q_padded
        if k is None and k_padded is not None:
            raise ValueError("cu_seqlens_k_padded without cu_seqlens_k; pass both")
        k, k_padded = (q, q_padded) if k is None else (k, k if k_padded is None else k_padded)
        self.arrays = {
            "cu_seqlens": q,
            "cu_seqlens_padded": q_padded,
            "cu_seqlens_k": k,
            "cu_seqlens_k_padded": k_padded,
        }
        self.library = _cuda.library_of(q)
        self.device = self.library.device(q)
        self.batch = q.shape[0] - 1 if len(q.shape) == 1 else -1
        for name, x in self.arrays.items():
            if not self.library.owns(x) or self.library.device(x) != self.device:
                raise TypeError(f"{name} is not on cu_seqlens's device or not its kind of array")
            if str(x.dtype).removeprefix("torch.") != "int32":
                raise TypeError(f"{name} is {x.dtype}; expected int32. Convert it")
            if tuple(x.shape) != (self.batch + 1,) or not 0 <= self.batch <= max_sequences:
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

    def set(self, program: Any) -> None:
        """Rewrites a program's tables, on the current stream."""
        pointers = [_cuda.pointer(x) for x in self.arrays.values()]
        program.set_lengths(pointers, self.batch, self.library.stream(self.device))

    def fitted(self, program: Any) -> bool:
        """Whether lengths fitted; waits for the device."""
        return program.lengths_fitted(self.library.stream(self.device))
