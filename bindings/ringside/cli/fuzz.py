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
from typing import TYPE_CHECKING, Annotated, Any, Optional

from ringside import _core
from ringside._extras import extra
from ringside.cli.files import make_room_for
from ringside.cli.outputs import check_outputs
from ringside.testing import Case, Disagreement, check_attention, check_context_parallel

with extra("cli", "the ringside command"):
    import typer
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

if TYPE_CHECKING:
    from ringside.cli.fuzz_cases import Space


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


def cases_for(
    fn: Callable[..., Any],
    kind: Kind,
    dtype: str,
    space: Space | None = None,
    backward: Callable[..., Any] | None = None,
) -> Any:
    """A strategy: what fn.cases says, or else anything of the dtype and the space."""
    from ringside.cli import fuzz_cases as _fuzz_cases

    space = space or _fuzz_cases.Space()
    own = getattr(fn, "cases", None)
    if own is not None and space != _fuzz_cases.Space():
        raise ValueError(f"{fn!r} says by its attribute cases what is drawn; drop the flags")
    if own is not None:
        return own
    gradients = backward or getattr(fn, "backward", None)
    taken = _fuzz_cases.options_of(fn, gradients) if space.options is None else space.options
    return _fuzz_cases.cases(space, dtype, taken, kind is Kind.context_parallel)


def space_from(lists: dict[str, str | None], options: str | None, **numbers: int) -> Space:
    """What the flags say; "" are no options, None are defaults."""
    from ringside.cli import fuzz_cases as _fuzz_cases

    given: dict[str, Any] = dict(numbers)
    for name, text in lists.items():
        if text is not None and name == "masks":
            given[name] = _fuzz_cases.names_from(text, name, _fuzz_cases.MASKS)
        elif text is not None:
            given[name] = _fuzz_cases.numbers_from(text, name)
    if options is not None:
        known = _fuzz_cases.OPTIONS
        given["options"] = _fuzz_cases.names_from(options, "options", known) if options else ()
    return _fuzz_cases.Space(**given)


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
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    )
    with contextlib.redirect_stdout(sys.stderr):  # Hypothesis says "Falsifying example"
        try:
            hypothesis.seed(campaign.seed)(settings(hypothesis.given(subject.cases)(one)))()
        except Disagreement as failure:
            campaign.failure = failure
            print(failure.headline, file=sys.stderr)  # the full report runs the function again


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
    max_documents: Annotated[int, typer.Option(help="In a pack.", min=1)] = 8,
    max_tokens: Annotated[int, typer.Option(help="In a pack.", min=1)] = 512,
    head_dims: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Such as 64,128; default small ones and kernels' ones up to 256."),
    ] = None,
    masks: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Some of full,causal,window,chunked; default all, combined, too."),
    ] = None,
    cp: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Numbers of ranks for context-parallel ones; default 1 to 8."),
    ] = None,
    options: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Some of softcap,sink,alibi_slopes,dropout; default by signature."),
    ] = None,
    no_options: Annotated[bool, typer.Option("--no-options", help="Plain attention.")] = False,
) -> None:
    """Fuzz an implementation of your own against the definition.

    Prints the smallest case that disagrees, which keys the wrong row really read, and a script that
    repeats it. An implementation refuses a case by raising NotImplementedError or
    ringside.Unsupported; an attribute `cases`, a Hypothesis strategy, says which cases it claims at
    all. If every case was refused, nothing was checked: exit code 2.

    Documents reach across blocks of 64, 128 and 256 tokens, head sizes are those of kernels.
    Options that the signature takes are drawn, all of them where it takes **keywords.

    Example: ringside fuzz --implementation mypackage.attention:varlen --examples 1000
    """
    console = Console(stderr=True)
    try:
        check_outputs({"--json": json_file})
        fn = load(implementation)
        gradients = None if backward is None else load(backward)
        space = space_from(
            {"head_dims": head_dims, "masks": masks, "cp_sizes": cp},
            "" if no_options else options,
            max_documents=max_documents,
            max_tokens=max_tokens,
        )
        subject = Subject(fn, gradients, cases_for(fn, kind, dtype, space, gradients))
    except (ValueError, ImportError) as error:
        console.print(f"Error: {error}", markup=False, style="red")
        raise typer.Exit(2) from error
    campaign = Campaign(implementation, kind, examples, seed)
    with progress_of(examples) as tell:
        run(campaign, subject, tell)
    if json_file is not None:
        make_room_for(json_file).write_text(
            json.dumps(campaign.to_dict(), indent=2) + "\n", encoding="utf-8"
        )
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
