"""Random cases against an implementation of the user's; the command is `ringside fuzz`."""

from __future__ import annotations

import contextlib
import enum
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ringside import _core
from ringside.testing import Case, Disagreement, check_attention, check_context_parallel


class Kind(str, enum.Enum):
    """Which protocol an implementation has."""

    attention = "attention"
    context_parallel = "context-parallel"


CHECKS = {Kind.attention: check_attention, Kind.context_parallel: check_context_parallel}


@dataclass
class Campaign:
    """What happened so far."""

    implementation: str
    kind: Kind
    examples: int
    seed: int
    tried: int = 0
    refused: int = 0
    refusals: set[str] = field(default_factory=set)
    seconds: float = 0.0
    ratios: dict[str, float] = field(default_factory=dict)
    failure: Disagreement | None = None
    shrinking: bool = False

    @property
    def agreed(self) -> int:
        """How many cases were computed, and rightly."""
        return self.tried - self.refused

    def to_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        failure = self.failure
        return {
            "ringside": _core.__version__,
            "implementation": self.implementation,
            "kind": self.kind.value,
            "examples": self.examples,
            "seed": self.seed,
            "tried": self.tried,
            "refused": self.refused,
            "refusals": sorted(self.refusals),
            "seconds": round(self.seconds, 3),
            "largest_error_over_tolerance": self.ratios,
            "passed": failure is None and self.agreed > 0,
            "counterexample": failure and {"case": repr(failure.case), "script": failure.script},
            "report": failure and str(failure),
        }


def load(name: str) -> Callable[..., Any]:
    """The object that "package.module:function" names; the current directory is searched, too.

    >>> load("ringside:attention").__name__
    'attention'
    """
    module_name, colon, path = name.partition(":")
    if not colon or not path:
        raise ValueError(f'implementation="{name}"; expected package.module:function')
    if "" not in sys.path:
        sys.path.insert(0, "")
    found: Any = importlib.import_module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise ValueError(f'implementation="{name}": {found!r} has no "{part}"')
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f'implementation="{name}" is {type(found).__name__}; expected a function')
    return found


@dataclass(frozen=True)
class Subject:
    """What is put in the ring, and with which cases."""

    forward: Callable[..., Any]
    backward: Callable[..., Any] | None
    cases: Any


def cases_for(fn: Callable[..., Any], kind: Kind, dtype: str) -> Any:
    """A strategy: what fn.cases says, or else anything of the dtype."""
    try:
        from hypothesis import strategies as st
    except ModuleNotFoundError as error:
        raise ValueError("no Hypothesis to draw cases with: pip install hypothesis") from error
    from ringside.testing import strategies

    own = getattr(fn, "cases", None)
    if own is not None:
        return own
    if kind is Kind.context_parallel:
        return strategies.cases(dtypes=st.just(dtype))
    alone: dict[str, Any] = {"cp_sizes": st.just(1), "partitions": st.just("zigzag")}
    return strategies.cases(dtypes=st.just(dtype), comms=st.just("p2p"), **alone)


def run(campaign: Campaign, subject: Subject, tell: Callable[[Campaign], None]) -> None:
    """Draws cases until one disagrees, and then smaller ones that do; tell() after each."""
    import hypothesis

    check, begin = CHECKS[campaign.kind], time.monotonic()

    def one(case: Case) -> None:
        try:
            report = check(subject.forward, case, backward=subject.backward)
            for name, ratio in report.ratios.items():
                campaign.ratios[name] = max(campaign.ratios.get(name, 0.0), ratio)
        except (_core.Unsupported, NotImplementedError) as error:
            campaign.refused += 1
            campaign.refusals.add(str(error))
        except Disagreement:
            campaign.shrinking = True
            raise
        finally:
            campaign.tried += 1
            campaign.seconds = time.monotonic() - begin
            tell(campaign)

    settings = hypothesis.settings(
        max_examples=campaign.examples,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    with contextlib.redirect_stdout(sys.stderr):  # Hypothesis says "Falsifying example"
        try:
            hypothesis.seed(campaign.seed)(settings(hypothesis.given(subject.cases)(one)))()
        except Disagreement as failure:
            campaign.failure = failure


@contextlib.contextmanager
def progress_of(examples: int) -> Iterator[Callable[[Campaign], None]]:
    """A bar on standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("random cases", total=examples)

        def tell(campaign: Campaign) -> None:
            words = "wrong; looking for a smaller case" if campaign.shrinking else "random cases"
            total = max(examples, campaign.tried)
            progress.update(task, completed=campaign.tried, total=total, description=words)

        yield tell


def fuzz(
    implementation: Annotated[
        str, typer.Option(help="package.module:function, found from here or installed.")
    ],
    examples: Annotated[int, typer.Option(help="How many random cases.", min=1)] = 200,
    seed: Annotated[int, typer.Option(help="Other seeds draw other cases.")] = 0,
    json_file: Annotated[
        Optional[Path],  # noqa: UP045  typer evaluates it on Python 3.10
        typer.Option("--json", help="Where to write the result."),
    ] = None,
    kind: Annotated[
        Kind, typer.Option(help="Signature: of check_attention or check_context_parallel.")
    ] = Kind.attention,
    dtype: Annotated[
        str, typer.Option(help="Of the inputs: float64, float32, float16, bfloat16.")
    ] = "float32",
    backward: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Its gradients; default its attribute `backward`, if any."),
    ] = None,
) -> None:
    """Fuzz an implementation of your own against the definition.

    Prints the smallest case that disagrees, which keys the wrong row really read, and a script that
    repeats it. An implementation refuses a case by raising NotImplementedError or
    ringside.Unsupported; an attribute `cases`, a Hypothesis strategy, says which cases it claims at
    all. If every case was refused, nothing was checked: exit code 2.

    Example: ringside fuzz --implementation mypackage.attention:varlen --examples 1000
    """
    console = Console(stderr=True)
    try:
        fn = load(implementation)
        gradients = None if backward is None else load(backward)
        subject = Subject(fn, gradients, cases_for(fn, kind, dtype))
    except (ValueError, ImportError) as error:
        console.print(f"Error: {error}", markup=False, style="red")
        raise typer.Exit(2) from error
    campaign = Campaign(implementation, kind, examples, seed)
    with progress_of(examples) as tell:
        run(campaign, subject, tell)
    if json_file is not None:
        json_file.write_text(json.dumps(campaign.to_dict(), indent=2) + "\n", encoding="utf-8")
    typer.echo(summary(campaign))
    if campaign.failure is not None:
        raise typer.Exit(1)
    if not campaign.agreed:
        raise typer.Exit(2)


def summary(campaign: Campaign) -> str:
    """The answer, in words."""
    if campaign.failure is not None:
        return str(campaign.failure)
    lines = [
        f"{campaign.agreed} random cases agree with the definition in {campaign.seconds:.1f} s"
    ]
    if campaign.refused:
        lines.append(
            f"{campaign.refused} cases were refused: {'; '.join(sorted(campaign.refusals))}"
        )
    if not campaign.agreed:
        lines[0] = "Nothing was checked: no random case was computed"
        lines.append("Raise NotImplementedError only for what it cannot do, or name it in `cases`")
    worst = ", ".join(f"{name} {ratio:.2f}" for name, ratio in campaign.ratios.items())
    if worst:
        lines.append(f"largest error as a fraction of the tolerance: {worst}")
    return "\n".join(lines)
