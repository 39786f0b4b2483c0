"""What is said of one feature of one package, and what it rests on."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable
from typing import Any

from ringside.testing.cases import Case

__all__ = ["CPU", "KINDS", "Covered", "Verdict"]

CPU = "CPU"

KINDS = (
    *("agrees", "silently wrong", "refuses", "fails", "hangs", "not drawn", "broken adapter"),
    "absent",
)


@dataclasses.dataclass
class Covered:
    """What the cases that agreed had in them.

    >>> Covered().words()
    'nothing'
    """

    cases: int = 0
    tokens: int = 0
    longest: int = 0
    packs: int = 0
    windows: int = 0
    grouped: int = 0
    padded: int = 0
    ranks: set[int] = dataclasses.field(default_factory=set)

    def add(self, case: Case) -> None:
        """One more."""
        lengths = case.layout_q.lengths
        left, right = case.mask.window_size
        self.cases += 1
        self.tokens += int(lengths.sum())
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        self.packs += len(lengths) > 1
        self.windows += left > 0 or right > 0 or case.mask.chunk_size > 0
        self.grouped += case.num_heads > case.num_kv_heads
        self.padded += case.layout_q.num_rows > int(lengths.sum())
        self.ranks.add(case.cp_size)

    def words(self) -> str:
        """For a table."""
        if not self.cases:
            return "nothing"
        counted = (
            (self.packs, "packs"),
            (self.windows, "windows"),
            (self.grouped, "grouped heads"),
            (self.padded, "padded"),
        )
        of_cases = [f"{count} {what}" for count, what in counted if count]
        ranks = "/".join(map(str, sorted(self.ranks)))
        tokens = f"{self.tokens:,} tokens (documents up to {self.longest})"
        return ", ".join([tokens, *of_cases, f"ranks {ranks}"])


@dataclasses.dataclass
class Verdict:
    """What was seen of one feature; one more for each further fault.

    Attributes:
        kind: of KINDS.
        cases: how many agreed, or were tried until one did not.
        ratio: the largest error over what rounding explains, of those that agreed.
        covered: what these had in them, in words.
        smallest: the smallest case that shows the fault.
        told: what is wrong with it, or what the package said.
        script: Python that shows it without Ringside.
        device: what it ran on, "CPU" or the name of a GPU.
        beside: what it ran with: other packages, and whose kernels.
        date: when, as 2026-01-31.
    """

    package: str
    version: str
    entry: str
    feature: str
    claims: str
    kind: str
    cases: int = 0
    ratio: float = 0.0
    covered: str = ""
    smallest: str = ""
    told: str = ""
    script: str = ""
    link: str = ""
    fault: str = ""
    seconds: float = 0.0
    device: str = CPU
    beside: str = ""
    date: str = dataclasses.field(default_factory=lambda: datetime.date.today().isoformat())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)

    def words(self) -> str:
        """One line.

        >>> Verdict("p", "1", "p.f", "causal", "", "agrees", 3, 0.25, "9 tokens").words()
        'p 1, causal: agrees: 3 cases, largest error 0.25 of the tolerance; 9 tokens'
        """
        where = "" if self.device == CPU else f" on {self.device}"
        head = f"{self.package} {self.version}{where}, {self.feature}: {self.kind}"
        if self.kind == "agrees":
            return (
                f"{head}: {self.cases} cases, largest error {self.ratio:.2g} of the tolerance; "
                f"{self.covered}"
            )
        parts = [head, self.told, self.smallest and f"smallest case: {self.smallest}"]
        return "\n  ".join(part.replace("\n", "\n  ") for part in parts if part)


def worst(verdicts: Iterable[Verdict]) -> str:
    """The kind that counts where a feature has several: a wrong number before all else."""
    order = ("silently wrong", "hangs", "fails", "refuses", "agrees", *KINDS)
    return min((verdict.kind for verdict in verdicts), key=order.index)
