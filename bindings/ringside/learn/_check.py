"""learn.check: an answer to an exercise against its property, on random cases."""

from __future__ import annotations

import base64
import contextlib
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, SupportsIndex

from ringside._core import InvalidArgument, arguments
from ringside.learn._exercise import Answer, Exercise, Wrong, exercise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_YET, REFUTED, HOLDS = "not yet", "refuted", "holds"


@dataclass(frozen=True)
class Verdict:
    """What check found; it prints as words, and Jupyter shows the picture below them.

    Attributes:
        word: "not yet", "refuted" or "holds".
        text: the reason, in a few lines.
        case: the smallest case found that the answer is wrong about; None unless refuted.
        cases: how many cases were judged.
        figure: the case as a matplotlib figure; None unless refuted.
    """

    word: str
    text: str
    case: Any = None
    cases: int = 0
    figure: Figure | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.word}: {self.text}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For Jupyter: the words, and the picture if there is one."""
        text = f"<b>{self.word}</b>: {html.escape(self.text)}"
        words = f'<pre style="white-space: pre-wrap">{text}</pre>'
        if self.figure is None:
            return words
        file = io.BytesIO()
        self.figure.savefig(file, format="png")
        picture = base64.b64encode(file.getvalue()).decode("ascii")
        width = round(self.figure.get_figwidth() * 100)
        return f'{words}<img width="{width}" src="data:image/png;base64,{picture}">'


def check(n: SupportsIndex, answer: Answer | None, *, seed: SupportsIndex = 0) -> Verdict:
    """Whether a function answers the exercise of a notebook.

    Random cases are drawn with Hypothesis, the same ones for the same seed. A case that the answer
    is wrong about is made as small as possible before it is shown.

    Args:
        n: number of the notebook.
        answer: the function that its exercise asks for. None, and a function that returns None or
            raises NotImplementedError, are no answer yet.
        seed: another one draws other cases.

    Returns:
        The verdict: "not yet", "refuted" or "holds", with reason, case and picture.

    Raises:
        InvalidArgument: no notebook has that number, or seed is negative.
        TypeError: answer is no function.
        ImportError: Hypothesis or Matplotlib is missing: pip install hypothesis matplotlib.

    >>> from ringside import learn
    >>> def positions(cu_seqlens, cu_seqlens_padded):
    ...     ...
    >>> learn.check(1, positions)
    not yet: positions returns nothing. Write it, and check again.
    """
    asked = exercise(n)
    number = arguments.integer(seed, "seed")
    if number < 0:
        raise InvalidArgument(f"got seed={number}; expected 0 or more. Pass such a number")
    if answer is None or answer is ...:
        return Verdict(NOT_YET, "there is no answer. Write the function, and check again.")
    if not callable(answer):
        raise TypeError(
            f"got an answer of type {type(answer).__name__}; expected a function. Pass the "
            "function itself, not what it returns"
        )
    return _verdict_on(asked, answer, number)


def _verdict_on(asked: Exercise, answer: Answer, seed: int) -> Verdict:
    name = getattr(answer, "__name__", "the answer")
    if _is_unwritten(asked, answer):
        return Verdict(NOT_YET, f"{name} returns nothing. Write it, and check again.")
    _, first = _asked(asked, answer, asked.plain)
    found, judged = _smallest_fault(asked, answer, seed)
    if found is None and first:
        found = asked.plain, first
    if found is not None:
        case, fault = found
        text = f"{name} is wrong about {asked.told(case)}\n{fault}"
        return Verdict(
            REFUTED, text, case, judged, asked.drawn(case, _asked(asked, answer, case)[0])
        )
    text = f"{asked.holds}, in {judged} random cases (seed {seed}; seed={seed + 1} draws others)."
    return Verdict(HOLDS, text, cases=judged)


def _is_unwritten(asked: Exercise, answer: Answer) -> bool:
    """Whether the first call of all returns nothing."""
    returned: list[Any] = []

    def watched(*args: Any) -> Any:
        try:
            returned.append(answer(*args))
        except NotImplementedError:
            returned.append(None)
        return returned[-1]

    with contextlib.suppress(Exception, SystemExit):
        asked.ask(watched, asked.plain)
    return bool(returned) and (returned[0] is None or returned[0] is ...)


class _Raised(Exception):
    """The answer raised; told apart from a fault of our own."""


def _guarded(answer: Answer) -> Answer:
    """The answer, whose errors are _Raised."""

    def call(*args: Any) -> Any:
        try:
            result = answer(*args)
        except NotImplementedError:
            result = None
        except (Exception, SystemExit) as error:
            raise _Raised(f"raised {type(error).__name__}: {error}") from error
        if result is None or result is ...:
            raise _Raised("got None; expected an answer")
        return result

    return call


def _asked(asked: Exercise, answer: Answer, case: Any) -> tuple[Any, str]:
    """(what the answer said of this case, None where nothing can be read; what is wrong, or "")."""
    try:
        got = asked.ask(_guarded(answer), case)
    except _Raised as error:
        return None, str(error)
    except Wrong as error:
        return error.got, str(error)
    return got, asked.fault(case, got)


def _smallest_fault(
    asked: Exercise, answer: Answer, seed: int
) -> tuple[tuple[Any, str] | None, int]:
    """(the smallest case found and its fault, or None; how many cases were judged)."""
    seen: list[tuple[Any, str]] = []  # the last one is the smallest: Hypothesis ends with it
    judged = 0

    def judge(case: Any) -> None:
        nonlocal judged
        judged += 1
        _, fault = _asked(asked, answer, case)
        if fault:
            seen.append((case, fault))
            raise _Refuted

    given = asked.cases()
    for cases in given if isinstance(given, Sequence) else [given]:
        if not seen:
            _search(judge, cases, asked.examples, seed)
    return (seen[-1] if seen else None), judged


class _Refuted(Exception):
    """A case was found; one kind and one place, so that all faults shrink together."""


def _search(judge: Callable[[Any], None], cases: Any, examples: int, seed: int) -> None:
    """Lets Hypothesis draw cases, and shrink the first that judge refuses."""
    import hypothesis
    from hypothesis import HealthCheck, Phase

    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    try:
        hypothesis.seed(seed)(settings(hypothesis.given(cases)(judge)))()
    except _Refuted:
        pass
    except hypothesis.errors.Flaky:
        pass  # wrong about a case once is wrong; judge has kept it
