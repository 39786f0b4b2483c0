"""Arrays that are neither torch's nor CuPy's with backend="cuda": JAX's, and whoever speaks DLPack.

torch or CuPy imports them for the call, without a copy, as DLPack does: `imported` makes one of
their arrays a view, `exported` makes a result the caller's kind where that can be done.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
from typing import Any

from ringside import _core
from ringside._arrays import cuda as _cuda
from ringside._attention.options import PER_HEAD, Options

CUDA_DEVICES = (2, 13)  # kDLCUDA and kDLCUDAManaged of dlpack.h


class Native:
    """torch's and CuPy's own arrays, and what backend="cuda" will refuse."""

    def imported(self, x: Any, name: str) -> Any:
        """x itself."""
        return x

    def exported(self, x: Any) -> Any:
        """x itself."""
        return x


@dataclasses.dataclass
class Foreign:
    """Any object with __dlpack__ or __cuda_array_interface__ on a CUDA device.

    Args:
        host: the module torch or cupy, whose arrays results are.
    """

    host: Any

    def owns(self, x: Any) -> bool:
        """Whether x is such an object."""
        return _on_cuda_device(x)

    def imported(self, x: Any, name: str) -> Any:
        """A view of x as an array of the host's, ordered behind the work that makes x."""
        if not self.owns(x):
            raise TypeError(f"{name} is not on q's device or not q's kind of array; convert it")
        if hasattr(x, "__dlpack__"):
            return self.host.from_dlpack(x)
        if self.host.__name__ == "cupy":
            return self.host.asarray(x)
        return self.host.as_tensor(x, device=_device_of(x))

    def exported(self, x: Any) -> Any:
        """The host's array: a bare object cannot be made."""
        return x


class Jax(Foreign):
    """JAX arrays; results are JAX arrays."""

    def owns(self, x: Any) -> bool:
        """Whether x is such an array, on a GPU."""
        return _is_jax(x) and _on_cuda_device(x)

    def exported(self, x: Any) -> Any:
        """The same memory as a JAX array."""
        return importlib.import_module("jax.dlpack").from_dlpack(x)


Kind = Native | Foreign


def kind_of(q: Any) -> Kind:
    """How to import the arrays of a call, by the first of them."""
    _cuda.require_cuda()
    if _is_jax(q):
        return _jax_kind(q)
    if _is_native(q) or not _on_cuda_device(q):
        return Native()
    return Foreign(host_for(q))


def all_imported(named: dict[str, Any], options: Options) -> tuple[Kind, dict[str, Any], Options]:
    """The kind of q, and all arrays of a call as torch's or CuPy's."""
    kind = kind_of(named["q"])
    if isinstance(kind, Native):
        return kind, named, options
    arrays = {name: kind.imported(x, name) for name, x in named.items()}
    per_head = {name: getattr(options, name) for name in PER_HEAD}
    foreign = {name: kind.imported(x, name) for name, x in per_head.items() if kind.owns(x)}
    return kind, arrays, dataclasses.replace(options, **foreign)


def _device_of(x: Any) -> str:
    """torch's name of the device on which an object with __cuda_array_interface__ lies."""
    pointer = x.__cuda_array_interface__["data"][0]
    number = _cuda.cuda_core().device_of(pointer)
    return "cuda" if number < 0 else f"cuda:{number}"  # an empty one lies nowhere


def _is_native(x: Any) -> bool:
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    return (torch is not None and isinstance(x, torch.Tensor)) or (
        cupy is not None and isinstance(x, cupy.ndarray)
    )


def _is_jax(x: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def _jax_kind(q: Any) -> Kind:
    if isinstance(q, sys.modules["jax"].core.Tracer):
        raise _core.Unsupported(
            'backend="cuda" inside jax.jit or jax.grad, which trace. Nearest supported: a call '
            "with arrays, outside of them, and attention_backward for the gradients"
        )
    if len(q.devices()) != 1 or not _on_cuda_device(q):
        where = ", ".join(sorted(map(str, q.devices())))
        raise TypeError(
            f'a JAX array on {where} with backend="cuda"; expected one GPU. '
            'Pass jax.device_put(x, jax.devices("gpu")[0]), or use backend="reference"'
        )
    return Jax(host_for(q))


def _on_cuda_device(x: Any) -> bool:
    """Whether x says that it lies there."""
    if hasattr(x, "__dlpack_device__"):
        try:
            return int(x.__dlpack_device__()[0]) in CUDA_DEVICES
        except Exception:  # JAX raises where an array has several devices
            return False
    return hasattr(type(x), "__cuda_array_interface__") or hasattr(x, "__cuda_array_interface__")


def host_for(x: Any) -> Any:
    """torch or CuPy: the one that is loaded, else that is installed; bfloat16 needs torch."""
    narrow = "bfloat16" in str(getattr(x, "dtype", ""))
    names = ["torch"] if narrow else ["torch", "cupy"]
    for name in sorted(names, key=lambda name: name not in sys.modules):
        if name in sys.modules or importlib.util.find_spec(name):
            return importlib.import_module(name)
    raise _core.Unsupported(
        f'a {type(x).__module__}.{type(x).__qualname__} with backend="cuda" is lent to '
        f"{' or '.join(names)}, not installed here. Nearest supported: install one, or pass "
        'NumPy arrays to backend="reference"'
    )
