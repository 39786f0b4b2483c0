"""A machine as data: what blocks, launches, exchanges and bytes take, and who measured it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._core import arguments

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Float64 = npt.NDArray[np.float64]
EXCHANGES = ("hop", "all_gather", "all_to_all", "fetch")


class Rates(NamedTuple):
    """Microseconds of one multiprocessor, or of a launch.

    Attributes:
        block: of a block of queries by keys that holds a visible pair.
        partial_block: more, of one that also holds a hidden pair.
        visit: of a block of queries that meets keys in a step.
        launch: of the device, once a rank and step.
    """

    block: float
    partial_block: float
    visit: float
    launch: float


@dataclass(frozen=True)
class Kernel:
    """What attention kernels of one dtype and head size take."""

    dtype: str
    head_dim: int
    head_dim_v: int
    block_size: tuple[int, int]
    forward: Rates
    backward: Rates
    source: str


@dataclass(frozen=True)
class Table:
    """Microseconds by bytes, as measured: both rise. Straight lines lie between the points.

    Fewer bytes than the first point take its time, more than the last go on at the last rate; no
    bytes take no time.
    """

    bytes: tuple[float, ...]
    us: tuple[float, ...]

    def __call__(self, size: npt.ArrayLike) -> Float64:
        """Microseconds, in the shape of size."""
        x = np.asarray(size, np.float64)
        took = np.interp(x, self.bytes, self.us)
        if len(self.bytes) > 1:
            rate = (self.us[-1] - self.us[-2]) / (self.bytes[-1] - self.bytes[-2])
        else:
            rate = self.us[0] / self.bytes[0]
        took = took + np.maximum(x - self.bytes[-1], 0) * rate
        return np.where(x > 0, took, 0.0)


@dataclass(frozen=True)
class Links:
    """What exchanges take among ranks that are near each other.

    Attributes:
        ranks: how many ranks, one after the other, these links join; None joins all.
        us_of_bytes: a table for each of EXCHANGES, of the bytes that a rank receives or sends,
            whichever is more.
        source: who measured it.
    """

    ranks: int | None
    us_of_bytes: Mapping[str, Table]
    source: str


@dataclass(frozen=True)
class Memory:
    """What bytes that only move take.

    Attributes:
        gb_per_s: read and written.
        per_byte_received: bytes moved for each that an exchange of a kind brought: reorders.
        per_byte_added: bytes moved for each byte of gradients or results that arrives and is added.
        per_merged_element: bytes moved for each element of out of each visit after the first step,
            where partial results are merged apart from the kernel.
        source: who measured it.
    """

    gb_per_s: float
    per_byte_received: Mapping[str, float] = field(default_factory=dict)
    per_byte_added: float = 0.0
    per_merged_element: float = 0.0
    source: str = ""

    def us(self, moved: npt.ArrayLike) -> Float64:
        """Microseconds of so many bytes."""
        return np.asarray(moved, np.float64) / (self.gb_per_s * 1e3)


@dataclass(frozen=True)
class TimeModel:
    """A machine as data, for plan.timeline, plan.cost and ringside.estimate.

    Get one by TimeModel.preset or TimeModel.load; `ringside calibrate` writes one. A step takes

        (block x blocks + partial_block x partial_blocks + visit x visits) / multiprocessors
        + launch

    microseconds, with the counts of plan.cost(), and what merges and reorders take.

    Attributes:
        name: of the model.
        source: what was measured, where and when.
        multiprocessors: of the device.
        kernels: by dtype and head size.
        links: nearest first; an exchange takes the first that joins its ranks.
        exchange_multiprocessors: that an exchange takes from the tiles it travels under; 0 where
            copy engines move the bytes, or nothing travels under tiles.
        overlap: whether exchanges travel under tiles at all; not where these have all
            multiprocessors and an exchange needs some.
        memory: for merges and reorders.
        host_us_per_step: that a step begins late because of the host.

    >>> import ringside as rs
    >>> model = rs.TimeModel.preset("h200")
    >>> model.multiprocessors, model.overlap, model.kernel(128, "bfloat16").block_size
    (132, True, (128, 128))
    """

    name: str
    source: str
    multiprocessors: int
    kernels: tuple[Kernel, ...]
    links: tuple[Links, ...]
    exchange_multiprocessors: int
    overlap: bool
    memory: Memory
    host_us_per_step: float

    @classmethod
    def presets(cls) -> list[str]:
        """Names of the models that travel with the package, sorted.

        >>> import ringside as rs
        >>> "h200" in rs.TimeModel.presets()
        True
        """
        return sorted(_files())

    @classmethod
    def preset(cls, name: str) -> TimeModel:
        """A model that travels with the package; its source says what was measured.

        Args:
            name: one of presets().

        Raises:
            InvalidArgument: another name.

        >>> import ringside as rs
        >>> rs.TimeModel.preset("h200").exchange_multiprocessors
        0
        """
        from ringside._time import model_json

        files = _files()
        if arguments.text(name, "name") not in files:
            raise _core.InvalidArgument(
                f"name={name!r} is no preset; expected one of {', '.join(sorted(files))}. "
                "TimeModel.load reads a file"
            )
        return model_json.parsed(files[name].read_text(encoding="utf-8"), name)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TimeModel:
        """Reads what save() or `ringside calibrate` wrote, or what you wrote yourself.

        Args:
            path: of a JSON file.

        Raises:
            InvalidArgument: no such file, or not such JSON; the message names what is off.

        >>> import ringside as rs, tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "mine.json"
        >>> rs.TimeModel.preset("h200").save(path)
        >>> rs.TimeModel.load(path) == rs.TimeModel.preset("h200")
        True
        """
        from ringside._time import model_json

        return model_json.read(_path(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it as JSON.

        Args:
            path: of the file.

        >>> import ringside as rs, tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "mine.json"
        >>> rs.TimeModel.preset("h200").save(path)
        >>> path.stat().st_size > 500
        True
        """
        from ringside._time import model_json

        _path(path).write_text(model_json.text(self), encoding="utf-8")

    def kernel(self, head_dim: int, dtype: str, head_dim_v: int | None = None) -> Kernel:
        """What kernels of a dtype and head size take.

        Args:
            head_dim: of q and k.
            dtype: "bfloat16", "float16" or "float32".
            head_dim_v: of v; default head_dim.

        Raises:
            Unsupported: the model has none; the message names those it has.

        >>> import ringside as rs
        >>> rs.TimeModel.preset("h200").kernel(128, "bfloat16").forward.block > 0
        True
        """
        dims = [arguments.int32(head_dim, "head_dim")]
        dims.append(dims[0] if head_dim_v is None else arguments.int32(head_dim_v, "head_dim_v"))
        dtype = arguments.text(dtype, "dtype")
        for kernel in self.kernels:
            if [kernel.dtype, kernel.head_dim, kernel.head_dim_v] == [dtype, *dims]:
                return kernel
        here = ", ".join(f"{k.dtype} of {_size(k.head_dim, k.head_dim_v)}" for k in self.kernels)
        raise _core.Unsupported(
            f"dtype={dtype}, head_dim={_size(*dims)}: model {self.name} has no such kernel; "
            f"expected one of {here}. `ringside calibrate` measures others on a GPU"
        )

    def __repr__(self) -> str:
        """Its name and what it has."""
        kernels = ", ".join(f"{k.dtype} {_size(k.head_dim, k.head_dim_v)}" for k in self.kernels)
        return f"<TimeModel {self.name}: {self.multiprocessors} multiprocessors, {kernels}>"


def as_model(model: Any) -> TimeModel:
    """A model from itself, the name of a preset, a path, or a dict as of its JSON."""
    from ringside._time import model_json

    if isinstance(model, TimeModel):
        return model
    if isinstance(model, Mapping):
        return model_json.from_dict(dict(model), "model")
    if isinstance(model, os.PathLike) or (isinstance(model, str) and _is_path(model)):
        return model_json.read(Path(model))
    if not isinstance(model, str):
        raise TypeError(
            f"model is a {type(model).__name__}; expected a TimeModel, the name of a preset, a "
            "path, or a dict as of its JSON"
        )
    if model not in _files():
        raise _core.InvalidArgument(
            f"model={model!r} is no preset; expected one of {', '.join(TimeModel.presets())}, or "
            "the path of a file, which ends in .json"
        )
    return TimeModel.preset(model)


def _is_path(text: str) -> bool:
    return text.endswith(".json") or "/" in text


def _path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path is a {type(path).__name__}; expected the path of a file")
    return Path(path)


def _size(head_dim: int, head_dim_v: int) -> str:
    return str(head_dim) if head_dim == head_dim_v else f"{head_dim}/{head_dim_v}"


def _files() -> dict[str, Traversable]:
    folder = resources.files("ringside._time") / "presets"
    return {
        path.name.removesuffix(".json"): path
        for path in folder.iterdir()
        if path.name.endswith(".json")
    }
