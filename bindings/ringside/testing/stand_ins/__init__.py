"""Kernels that need a GPU, played by the definition on a CPU: what is built on them can run.

`flash_attn_installed()` makes `import flash_attn` find functions with the signatures and
conventions of FlashAttention 2, on torch tensors on the CPU, in float64 inside: rings and other
packages that call it run as they are published, and what they do around the kernel can be checked.
Needs torch.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec

from ringside.testing.stand_ins import flash_attn

__all__ = ["flash_attn", "flash_attn_installed"]

VERSION = "2.8.3"  # whose signatures and conventions these are


@contextlib.contextmanager
def flash_attn_installed() -> Iterator[types.ModuleType]:
    """Inside, `flash_attn` and `flash_attn.flash_attn_interface` are the stand-in.

    What was imported under these names before comes back in the end. Packages that are imported
    inside keep the stand-in.

    >>> with flash_attn_installed():
    ...     from flash_attn.flash_attn_interface import _flash_attn_varlen_forward
    >>> _flash_attn_varlen_forward is flash_attn._flash_attn_varlen_forward
    True
    """
    package = types.ModuleType("flash_attn", flash_attn.__doc__)
    interface = types.ModuleType("flash_attn.flash_attn_interface", flash_attn.__doc__)
    for name in (*flash_attn.__all__, *flash_attn.OF_RINGS):
        setattr(interface, name, getattr(flash_attn, name))
        setattr(package, name, getattr(flash_attn, name))
    package.__dict__.update(flash_attn_interface=interface, __version__=VERSION, __path__=[])
    modules = {"flash_attn": package, "flash_attn.flash_attn_interface": interface}
    for name, module in modules.items():  # some look for it by importlib.util.find_spec
        module.__spec__ = ModuleSpec(name, None, is_package=module is package)
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield package
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
