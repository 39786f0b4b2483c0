"""A TimeModel as JSON; what does not fit is named by its place."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from ringside._core import InvalidArgument
from ringside._json import parsed as parsed_json
from ringside._time.model import EXCHANGES, Kernel, Links, Memory, Rates, Table, TimeModel

VERSION = 1
T = TypeVar("T")
_RATES = {name: f"us_per_{name}" for name in Rates._fields}
_NEEDED: Any = object()
_LARGEST = sys.float_info.max


def text(model: TimeModel) -> str:
    """The file."""
    return json.dumps(to_dict(model), indent=1) + "\n"


def to_dict(model: TimeModel) -> dict[str, Any]:
    """As JSON has it."""
    memory = model.memory
    return {
        "ringside_time_model": VERSION,
        "name": model.name,
        "source": model.source,
        "multiprocessors": model.multiprocessors,
        "kernels": [_of_kernel(kernel) for kernel in model.kernels],
        "links": [_of_links(links) for links in model.links],
        "exchange_multiprocessors": model.exchange_multiprocessors,
        "overlap": model.overlap,
        "memory": {
            "gb_per_s": memory.gb_per_s,
            "per_byte_received": dict(memory.per_byte_received),
            "per_byte_added": memory.per_byte_added,
            "per_merged_element": memory.per_merged_element,
            "source": memory.source,
        },
        "host_us_per_step": model.host_us_per_step,
    }


def _of_kernel(kernel: Kernel) -> dict[str, Any]:
    def rates(of: Rates) -> dict[str, float]:
        return {word: getattr(of, name) for name, word in _RATES.items()}

    return {
        "dtype": kernel.dtype,
        "head_dim": kernel.head_dim,
        "head_dim_v": kernel.head_dim_v,
        "block_size": list(kernel.block_size),
        "forward": rates(kernel.forward),
        "backward": rates(kernel.backward),
        "source": kernel.source,
    }


def _of_links(links: Links) -> dict[str, Any]:
    tables = {
        kind: [list(point) for point in zip(table.bytes, table.us, strict=True)]
        for kind, table in links.us_of_bytes.items()
    }
    return {"ranks": links.ranks, "us_of_bytes": tables, "source": links.source}


def read(path: Path) -> TimeModel:
    """From a file."""
    try:
        found = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"model {path} cannot be read: {error}; expected the path of a JSON file as "
            "TimeModel.save writes it"
        ) from error
    return parsed(found, str(path))


def parsed(found: str, where: str) -> TimeModel:
    """From the text of a file."""
    try:
        data = parsed_json(found)
    except ValueError as error:
        raise InvalidArgument(
            f"{where} is not JSON: {error}; expected a model as TimeModel.save writes it"
        ) from error
    return from_dict(data, where)


def from_dict(data: Any, where: str) -> TimeModel:
    """From what JSON holds."""
    of = _Fields(data, where)
    version = of.take("ringside_time_model", _whole)
    if version != VERSION:
        raise of.refusal("ringside_time_model", version, f"{VERSION}, which this library reads")
    model = TimeModel(
        name=of.take("name", _words),
        source=of.take("source", _words),
        multiprocessors=of.take("multiprocessors", _count),
        kernels=of.each("kernels", _kernel),
        links=of.each("links", _links),
        exchange_multiprocessors=of.take("exchange_multiprocessors", _whole),
        overlap=of.take("overlap", _truth),
        memory=_memory(of.within("memory")),
        host_us_per_step=of.take("host_us_per_step", _amount),
    )
    of.end()
    _check_links(model, of)
    if model.exchange_multiprocessors >= model.multiprocessors:
        raise of.refusal(
            "exchange_multiprocessors",
            model.exchange_multiprocessors,
            f"fewer than the {model.multiprocessors} of the device",
        )
    return model


class _Fields:
    """The fields of an object, taken one by one; what is left over or missing is refused."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise InvalidArgument(
                f"{where} is a {type(data).__name__}; expected an object with named fields"
            )
        self.left, self.where = dict(data), where

    def refusal(self, name: str, got: Any, expected: str) -> InvalidArgument:
        return InvalidArgument(f"{self.where}: {name} is {got!r}; expected {expected}")

    def raw(self, name: str, default: Any = _NEEDED) -> Any:
        if name not in self.left and default is _NEEDED:
            raise InvalidArgument(f"{self.where} has no {name!r}; expected one. Add it")
        return self.left.pop(name, default)

    def take(self, name: str, kind: Callable[[Any], T | str], default: Any = _NEEDED) -> T:
        """The field, if `kind` takes it; a str of it in a _Refused says what it expected."""
        got = self.raw(name, default)
        found = kind(got)
        if isinstance(found, _Expected):
            raise self.refusal(name, got, found)
        return found  # type: ignore[return-value]

    def within(self, name: str) -> _Fields:
        return _Fields(self.raw(name), f"{self.where}: {name}")

    def each(self, name: str, make: Callable[[_Fields], T]) -> tuple[T, ...]:
        """Of a list that holds something."""
        got = self.raw(name)
        if not isinstance(got, list) or not got:
            raise self.refusal(name, got, "a list of at least one object")
        return tuple(make(_Fields(x, f"{self.where}: {name}[{i}]")) for i, x in enumerate(got))

    def end(self) -> None:
        if self.left:
            names = ", ".join(map(repr, self.left))
            raise InvalidArgument(
                f"{self.where} has {names}; expected no such field. Remove it, or mend its name"
            )


class _Expected(str):
    """What a field should have been."""

    __slots__ = ()


def _words(x: Any) -> str:
    return x if isinstance(x, str) else _Expected("text")


def _truth(x: Any) -> bool | str:
    return x if isinstance(x, bool) else _Expected("true or false")


def _whole(x: Any) -> int | str:
    good = isinstance(x, int) and not isinstance(x, bool) and 0 <= x < 2**31
    return x if good else _Expected("an integer from 0")


def _count(x: Any) -> int | str:
    return x if isinstance(_whole(x), int) and x > 0 else _Expected("an integer from 1")


def _ranks(x: Any) -> int | None | str:
    good = x is None or isinstance(_count(x), int)
    return x if good else _Expected("an integer from 1, or null, which joins all ranks")


def _amount(x: Any) -> float | str:
    good = isinstance(x, int | float) and not isinstance(x, bool) and 0 <= x <= _LARGEST
    return float(x) if good else _Expected("a finite number from 0")


def _rate(x: Any) -> float | str:
    good = isinstance(_amount(x), float) and x > 0
    return float(x) if good else _Expected("a finite number above 0")


def _dtype(x: Any) -> str:
    known = ("bfloat16", "float16", "float32")
    return x if x in known else _Expected(f"one of {', '.join(known)}")


def _block(x: Any) -> tuple[int, int] | str:
    good = (
        isinstance(x, list | tuple) and len(x) == 2 and all(isinstance(_count(n), int) for n in x)
    )
    return (x[0], x[1]) if good else _Expected("[query rows, key rows], both at least 1")


def _kernel(of: _Fields) -> Kernel:
    kernel = Kernel(
        dtype=of.take("dtype", _dtype),
        head_dim=of.take("head_dim", _count),
        head_dim_v=of.take("head_dim_v", _count),
        block_size=of.take("block_size", _block),
        forward=_rates(of.within("forward")),
        backward=_rates(of.within("backward")),
        source=of.take("source", _words),
    )
    of.end()
    return kernel


def _rates(of: _Fields) -> Rates:
    rates = Rates(**{name: of.take(word, _amount) for name, word in _RATES.items()})
    of.end()
    return rates


def _links(of: _Fields) -> Links:
    tables = of.within("us_of_bytes")
    found = {kind: tables.take(kind, _table) for kind in EXCHANGES if kind in tables.left}
    tables.end()
    links = Links(of.take("ranks", _ranks), found, of.take("source", _words))
    of.end()
    return links


def _table(x: Any) -> Table | str:
    form = "a list of [bytes, microseconds], at least one"
    if not isinstance(x, list | tuple) or not x:
        return _Expected(form)
    for point in x:
        if not isinstance(point, list | tuple) or len(point) != 2:
            return _Expected(form)
        if any(not isinstance(_rate(n), float) for n in point):
            return _Expected(f"{form}, of finite numbers above 0")
    sizes, us = zip(*((float(b), float(t)) for b, t in x), strict=True)
    for column in (sizes, us):
        if any(a >= b for a, b in pairwise(column)):
            return _Expected("bytes and microseconds that rise from point to point. Sort it")
    return Table(sizes, us)


def _memory(of: _Fields) -> Memory:
    received = of.within("per_byte_received")
    memory = Memory(
        gb_per_s=of.take("gb_per_s", _rate),
        per_byte_received={
            kind: received.take(kind, _amount) for kind in EXCHANGES if kind in received.left
        },
        per_byte_added=of.take("per_byte_added", _amount),
        per_merged_element=of.take("per_merged_element", _amount),
        source=of.take("source", _words),
    )
    received.end()
    of.end()
    return memory


def _check_links(model: TimeModel, of: _Fields) -> None:
    joined = 0.0
    for i, links in enumerate(model.links):
        ranks = math.inf if links.ranks is None else links.ranks
        if ranks <= joined:
            raise of.refusal(
                f"links[{i}]: ranks", links.ranks, f"more than the {joined:g} of the level before"
            )
        joined = ranks
