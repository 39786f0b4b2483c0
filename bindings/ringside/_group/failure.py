"""What a rank raises when another one is missing."""

from __future__ import annotations

from collections.abc import Iterable


class RankFailure(RuntimeError):
    """A rank died, left, raised, was silent for too long, or took another path than this one.

    Nothing of the call is returned and the group is of no more use. The processes that are left
    may call ringside.init again, with fewer ranks.

    Attributes:
        ranks: those that are missing, or whose fault it is.
        call: the call of the group in which it was noticed, counted from 1.
        step: the step of the plan at which this process was, or None outside of one.
    """

    def __init__(
        self, why: str, ranks: Iterable[int] = (), call: int = 0, step: int | None = None
    ) -> None:
        self.why, self.ranks, self.call, self.step = why, tuple(ranks), call, step
        place = "outside of a step" if step is None else f"in step {step} of the plan"
        super().__init__(f"{why} (noticed in call {call}, {place})")

    def arguments(self) -> tuple[str, tuple[int, ...], int, int | None]:
        """Those of its constructor."""
        return self.why, self.ranks, self.call, self.step

    def __reduce__(self) -> tuple[type[RankFailure], tuple[object, ...]]:
        """For pickles and copies: the constructor call."""
        return type(self), self.arguments()


def named(ranks: Iterable[int]) -> str:
    """The ranks as a subject.

    >>> named([2]), named([0, 3])
    ('rank 2', 'ranks 0, 3')
    """
    listed = sorted(ranks)
    return f"rank{'s' if len(listed) > 1 else ''} {', '.join(map(str, listed))}"
