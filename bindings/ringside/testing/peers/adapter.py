"""What an adapter says of a package, and how the folder of one is read.

package.json can be read without the package: what it is called, what goes into its environment.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ringside.testing.check import Demands

__all__ = ["AdapterError", "Feature", "Peer", "Supports", "described", "known", "load"]

MASKS = ("full", "causal", "window", "band", "chunked")
UNITS = ("1", "pack", "cp", "2cp")
STAND_IN = "stand_in.py"


class AdapterError(RuntimeError):
    """An adapter is broken: a fault of ours, not of the package."""


@dataclasses.dataclass(frozen=True)
class Supports:
    """Which cases a feature claims, and so which are drawn.

    >>> from ringside.testing.peers import Supports
    >>> Supports(masks=("full",), reasons={"masks": "README: no causal mask"}).cp
    (2,)

    Args:
        cp: numbers of ranks; 1 for what runs in one process.
        masks: of "full", "causal", "window" (keys behind), "band" (on both sides), "chunked".
        heads: (query heads, kv heads), one of which is drawn.
        head_dim: of q, k and v.
        documents: at most so many in a pack.
        equal: all documents have one length, as in a dense batch.
        unit: lengths are multiples of it: "1", "cp" or "2cp"; "pack": the sum of them is one of cp.
        longest: in units.
        padding: documents may be shorter than their rows, which are whole units.
        nan: padding holds NaN; else zeros.
        partition: who owns which rows.
        dtype: of the arrays.
        scales: of the scores; None is 1/sqrt(head_dim).
        gpus: how many each process takes, where it runs on GPUs.
        reasons: by axis, why it is restricted.
    """

    cp: tuple[int, ...] = (2,)
    masks: tuple[str, ...] = ("causal",)
    heads: tuple[tuple[int, int], ...] = ((1, 1), (2, 2), (4, 2), (4, 1))
    head_dim: int = 8
    documents: int = 4
    equal: bool = False
    unit: str = "1"
    longest: int = 12
    padding: bool = False
    nan: bool = True
    partition: str = "contiguous"
    dtype: str = "float32"
    scales: tuple[float | None, ...] = (None, 0.25)
    gpus: int = 1
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, given, allowed in (
            ("masks", self.masks, MASKS),
            ("unit", (self.unit,), UNITS),
        ):
            if unknown := [x for x in given if x not in allowed]:
                expected = ", ".join(allowed)
                raise ValueError(f"{name} has {unknown[0]!r}; expected some of {expected}")


@dataclasses.dataclass(frozen=True)
class Feature:
    """One thing that a package claims to do.

    Args:
        name: in few words, unique in the peer.
        entry: the function of the package, as one imports it.
        claims: the line of its documentation that says so.
        call: of calls.py: call(q, k, v, **arguments) of a rank's own rows; returns out or
            (out, lse).
        arguments: of adapter.py: arguments(plan, softmax_scale), a dictionary of literals.
        supports: which cases.
        gradients: whether dq, dk and dv are asked for.
        demands: what rounding is due to the type of partial results.
        link: a public issue about what is found, or "".
    """

    name: str
    entry: str
    claims: str
    call: Callable[..., Any]
    arguments: Callable[..., dict[str, Any]]
    supports: Supports = Supports()
    gradients: bool = True
    demands: Demands = Demands()  # noqa: RUF009  (frozen)
    link: str = ""


@dataclasses.dataclass(frozen=True)
class Peer:
    """A package in one version: what package.json says, and the features of adapter.py.

    Args:
        package: its name on PyPI.
        version: exactly which.
        requires: what else goes into its environment, versions fixed.
        without_dependencies: its own dependencies are left out, for they need a GPU.
        stand_in: flash_attn is played on the CPU.
        arrays: "torch", or "jax" for what runs in one process.
        preload: modules that ranks find imported.
        holds: a module that must be there; a package without it is a placeholder, and absent.
        devices: where its calls can run, of "cpu" and "cuda".
        features: what is tried; empty until the adapter is loaded.
    """

    package: str
    version: str
    requires: tuple[str, ...] = ()
    without_dependencies: bool = False
    stand_in: bool = False
    arrays: str = "torch"
    preload: tuple[str, ...] = ("torch",)
    holds: str = ""
    devices: tuple[str, ...] = ("cpu",)
    features: tuple[Feature, ...] = ()

    @property
    def requirements(self) -> list[str]:
        """What is installed.

        >>> from ringside.testing.peers import Peer
        >>> Peer("jax", "0.10.2").requirements
        ['jax==0.10.2']
        """
        own = f"{self.package}=={self.version}"
        return [own, *(x for x in self.requires if x != own)]

    def feature(self, name: str) -> Feature:
        """The feature of this name."""
        return next(feature for feature in self.features if feature.name == name)


def known(folder: Path) -> list[str]:
    """Names of the peers in a folder.

    >>> known(Path("nowhere"))
    []
    """
    return sorted(path.parent.name for path in folder.glob("*/package.json"))


def described(folder: Path) -> Peer:
    """What package.json says; AdapterError where it cannot be read."""
    try:
        given = json.loads((folder / "package.json").read_text(encoding="utf-8"))
        fields: dict[str, Any] = {
            x: tuple(y) if isinstance(y, list) else y for x, y in given.items()
        }
        return Peer(**fields)
    except (OSError, ValueError, TypeError) as error:
        raise _broken(folder, error) from error


@functools.cache
def load(folder: Path) -> Peer:
    """The peer that a folder describes; AdapterError where it does not.

    Modules are named after the folder and kept, so that a process reads them once.
    """
    peer = described(folder)
    try:
        if (folder / STAND_IN).is_file():  # before the package looks for what it plays
            _module(folder / STAND_IN, f"stand_in_of_{folder.name}").install()
        _module(folder / "calls.py", "calls")
        features = _module(folder / "adapter.py", f"adapter_of_{folder.name}").FEATURES
    except Exception as error:
        raise _broken(folder, error) from error
    finally:
        sys.modules.pop("calls", None)  # the next peer's has the same name
    if not features or not all(isinstance(feature, Feature) for feature in features):
        raise AdapterError(f"the adapter {folder} has no FEATURES; it is ours to mend")
    return dataclasses.replace(peer, features=tuple(features))


def _broken(folder: Path, error: Exception) -> AdapterError:
    return AdapterError(
        f"the adapter {folder} cannot be read: {type(error).__name__}: {error}. It is ours: this "
        "says nothing of the package"
    )


def _module(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # a path that ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
