"""What a run is asked: how long, on which cases. Needs no Hypothesis."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

__all__ = ["DEVICES", "Axes", "Settings", "settings_from", "settings_to"]


DEVICES = ("cpu", "cuda")


@dataclasses.dataclass(frozen=True)
class Axes:
    """What the command line asks for; None leaves an axis to the adapter.

    >>> Axes(cp=(2,)).masks is None
    True
    """

    cp: tuple[int, ...] | None = None
    masks: tuple[str, ...] | None = None
    heads: tuple[tuple[int, int], ...] | None = None
    unit: str | None = None
    longest: int | None = None
    documents: int | None = None
    equal: bool = False
    head_dim: int | None = None
    scales: tuple[float | None, ...] | None = None
    dtype: str | None = None
    no_nan: bool = False
    no_padding: bool = False


@dataclasses.dataclass(frozen=True)
class Settings:
    """How long and on what.

    >>> Settings(cases=5).budget_s
    120.0

    Args:
        cases: of each feature.
        budget_s: seconds for each feature; then it ends with what it has.
        case_s: seconds for one case; a rank that is silent for longer hangs.
        seed: of the cases.
        axes: what is asked of them.
        demands: arguments of Demands that take the place of a feature's own.
        failures: a folder of failures of earlier runs, which are tried first; None for none.
        device: "cpu" or "cuda".
        here: of the packages that the running interpreter has, whatever their versions.
        share: (i, n): of n processes that share a peer's features this one takes the i-th's.
    """

    cases: int = 40
    budget_s: float = 120.0
    case_s: float = 20.0
    seed: int = 0
    axes: Axes = Axes()
    demands: dict[str, Any] = dataclasses.field(default_factory=dict)
    failures: str | None = None
    device: str = "cpu"
    here: bool = False
    share: tuple[int, int] = (0, 1)


def settings_to(settings: Settings) -> str:
    """As JSON."""
    return json.dumps(dataclasses.asdict(settings))


def settings_from(text: str) -> Settings:
    """What settings_to wrote.

    >>> settings_from(settings_to(Settings(cases=7, axes=Axes(heads=((4, 2),))))).axes.heads
    ((4, 2),)
    """
    given: dict[str, Any] = json.loads(text)
    axes = {name: _tuples(value) for name, value in given.pop("axes", {}).items()}
    given = {name: _tuples(value) for name, value in given.items()}
    return Settings(**given, axes=Axes(**axes))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
