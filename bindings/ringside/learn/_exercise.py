"""What an exercise is, and where to find one by the number of its notebook."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ringside._core import InvalidArgument, arguments
from ringside._extras import extra

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy
    from matplotlib.figure import Figure

Answer = Callable[..., Any]


class Wrong(Exception):
    """What an answer returned cannot be read as one: "got ..., expected ...".

    Attributes:
        got: what can be drawn of it all the same; None for nothing.
    """

    def __init__(self, words: str, got: Any = None):
        super().__init__(words)
        self.got = got


def array_of(got: Any, kinds: str, expected: str) -> np.ndarray[Any, Any]:
    """What an answer returned as a NumPy array.

    Args:
        got: what it returned.
        kinds: of the dtype, as NumPy's letters: "iu" integers, "iuf" numbers, "b" Booleans; an
            array of no elements may have any.
        expected: what was asked for, in words.

    Raises:
        Wrong: it is no such array.
    """
    try:
        array = np.asarray(got)
    except ValueError:  # ragged
        array = np.asarray(None)
    if array.dtype.kind not in kinds and not (array.size == 0 and array.dtype.kind in "fiub"):
        raise Wrong(f"got {told(got)}; expected {expected}")
    return array


def told(value: Any) -> str:
    """Of anything that an answer returned: its kind, and its beginning."""
    text = " ".join(repr(value).split())
    return f"{text[:60]}{'...' if len(text) > 60 else ''} ({type(value).__name__})"


@dataclass(frozen=True)
class Exercise:
    """A function to write, and the property that tells whether it is right.

    Attributes:
        stub: what the notebook's cell holds; it defines one function, which returns nothing yet.
        plain: a case that nothing is odd about; an answer of None there is no answer yet.
        cases: draws cases; what is small comes first, so that counterexamples shrink to it. Of
            several strategies each is tried, the first ones first.
        ask: calls the answer about a case, with copies of what may be written to, and returns what
            it got; raises Wrong where that is no answer at all. What the answer raises passes.
        fault: of a case and what ask got, what is wrong ("got ..., expected ..."), or "".
        told: of a case, how it reads.
        drawn: of a case and what ask got, None where it raised without, the picture.
        holds: what has been shown of an answer that holds, in words.
        examples: how many cases are drawn of each strategy.
    """

    stub: str
    plain: Any
    cases: Callable[[], SearchStrategy[Any] | Sequence[SearchStrategy[Any]]]
    ask: Callable[[Answer, Any], Any]
    fault: Callable[[Any, Any], str]
    told: Callable[[Any], str]
    drawn: Callable[[Any, Any], Figure]
    holds: str
    examples: int = 200


def numbers() -> list[int]:
    """Of the notebooks that have an exercise: one module each."""
    package = importlib.import_module("ringside.learn").__path__
    names = [module.name for module in pkgutil.iter_modules(package)]
    return sorted(int(n.removeprefix("exercise_")) for n in names if n.startswith("exercise_"))


def exercise(n: Any) -> Exercise:
    """That of notebook n.

    Raises:
        InvalidArgument: there is no such notebook.
        MissingExtra: Hypothesis or Matplotlib is not installed.
    """
    number, known = arguments.integer(n, "n"), numbers()
    if number not in known:
        raise InvalidArgument(
            f"got exercise {number}; expected one of {', '.join(map(str, known))}. "
            "Pass the number of the notebook"
        )
    with extra("learn", "ringside.learn.check"):
        import hypothesis  # noqa: F401  (named here, before a module of the exercise asks for it)
        import matplotlib  # noqa: F401
    module = importlib.import_module(f"ringside.learn.exercise_{number}")
    found: Exercise = module.EXERCISE
    return found
