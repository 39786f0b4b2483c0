"""Partitions and transports side by side on one pack: what a kernel pays, what moves, who waits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ringside import _core
from ringside._core import Mask, PackedLayout
from ringside._plan import timing
from ringside._plan.estimate import estimate
from ringside._time.model import TimeModel
from ringside.cli.verify import Heads, check_names
from ringside.testing import _sizes
from ringside.testing._problems import a2a_size

PASS_ON = ("p2p", "a2a+p2p")  # rings: a rank sends what it was sent, so all keep step
DIRECTIONS: tuple[timing.Direction, ...] = ("forward", "backward")
CLOSE = 1.05  # choices whose paces differ by less are told apart by what they move


@dataclass(frozen=True)
class Choice:
    """One partition over one transport on so many ranks.

    Attributes:
        imbalance: pairs of the busiest rank over the mean.
        work: blocks of the busiest rank over an equal share of what one rank would pay.
        critical: the same, of the busiest rank of each step, summed, where the transport is a ring,
            whose ranks keep step; else work, as what comes was there from the start.
        fill: pairs over the area of the blocks that hold any.
        mib_in, mib_out: of the busiest rank, both passes.
        messages: that the rank with the most receives, forward.
        rows_kv: resident at once, at most.
        mib_workspace: of the busiest rank, the larger of both passes.
        steps: how often tiles follow an exchange.
        forward_ms, backward_ms: of the slowest rank, by the model; None where it has no such
            kernel or exchange.
        best: nothing else is as good in critical, time, mib_in and rows_kv, and better in one.
    """

    cp_size: int
    partition: str
    comm: str
    a2a_size: int | None
    imbalance: float
    work: float
    critical: float
    fill: float
    mib_in: float
    mib_out: float
    messages: int
    rows_kv: int
    mib_workspace: float
    steps: int
    forward_ms: float | None = None
    backward_ms: float | None = None
    best: bool = False

    @property
    def price(self) -> tuple[float, ...]:
        """What one wants little of."""
        return self.critical, self.ms or 0.0, self.mib_in, self.rows_kv

    @property
    def ms(self) -> float | None:
        """Of both passes."""
        if self.forward_ms is None or self.backward_ms is None:
            return None
        return self.forward_ms + self.backward_ms

    @property
    def pace(self) -> float:
        """What makes a choice slow: its time, or where no model tells, its slowest ranks."""
        return self.critical if self.ms is None else self.ms

    @property
    def name(self) -> str:
        """As people say it."""
        return f"{self.partition} over {self.comm}"


@dataclass(frozen=True)
class Settings:
    """What is compared."""

    layout: PackedLayout
    mask: Mask
    heads: Heads
    cp_sizes: Sequence[int]
    partitions: Sequence[str] = ()
    comms: Sequence[str] = ()
    model: TimeModel | None = None
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        """Fills in all names, refuses unknown ones and more ranks than can be counted."""
        _sizes.require_memory_of_cost(max(self.cp_sizes))
        for what, known in (("partitions", _core.PARTITIONS), ("comms", _core.COMMS)):
            chosen = getattr(self, what) or known
            check_names(what[:-1], chosen, known)
            object.__setattr__(self, what, list(dict.fromkeys(chosen)))

    @property
    def num_choices(self) -> int:
        """How many there are to count."""
        return len(self.cp_sizes) * len(self.partitions) * len(self.comms)


class Comparison:
    """All choices; run() yields what is being counted, choices and refused hold the results."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.choices: list[Choice] = []
        self.refused: list[str] = []

    def run(self) -> Iterator[str]:
        """Yields a line before each choice."""
        of_one_rank = int(self._cost(1, "contiguous", "p2p", None).blocks.sum())
        for cp_size in self.settings.cp_sizes:
            counted: list[Choice] = []
            for partition in self.settings.partitions:
                for comm in self.settings.comms:
                    yield f"cp {cp_size}: {partition} over {comm}"
                    try:
                        counted.append(self._choice(cp_size, partition, comm, of_one_rank))
                    except _core.Unsupported as error:
                        self.refused.append(f"cp {cp_size}, {partition} over {comm}: {error}")
            self.choices += _marked(counted)

    def recommended(self, cp_size: int) -> tuple[Choice, str] | None:
        """The one to take, and why."""
        counted = [choice for choice in self.choices if choice.cp_size == cp_size]
        if not counted:
            return None
        fastest = min(counted, key=_slowness)
        close = [c for c in counted if c.pace <= CLOSE * fastest.pace]
        chosen = min(close, key=lambda choice: (choice.mib_in, choice.rows_kv, choice.pace))
        others = [c for c in counted if c.partition != chosen.partition]
        return chosen, _reason(chosen, close, min(others, key=_slowness, default=None))

    def _choice(self, cp_size: int, partition: str, comm: str, of_one_rank: int) -> Choice:
        group = a2a_size(comm, cp_size)
        cost = self._cost(cp_size, partition, comm, group)
        share, work = max(1.0, of_one_rank / cp_size), cost.blocks.sum(axis=1).max()
        bytes_in = cost.bytes_received.sum(axis=1) + cost.result_bytes_received
        bytes_in = bytes_in + cost.backward_bytes_received.sum(axis=1)
        bytes_out = cost.bytes_sent.sum(axis=1) + cost.result_bytes_sent
        bytes_out = bytes_out + cost.backward_bytes_sent.sum(axis=1)
        workspace = max(cost.workspace_bytes.max(), cost.backward_workspace_bytes.max())
        forward_ms, backward_ms = self._milliseconds(cost, comm, group)
        return Choice(
            cp_size,
            partition,
            comm,
            group,
            cost.imbalance,
            float(work / share),
            float((cost.blocks.max(axis=0).sum() if comm in PASS_ON else work) / share),
            cost.fill,
            float(bytes_in.max() / 2**20),
            float(bytes_out.max() / 2**20),
            int(cost.messages.sum(axis=1).max()),
            int(cost.rows_kv.max()),
            float(workspace / 2**20),
            cost.blocks.shape[1],
            forward_ms,
            backward_ms,
        )

    def _milliseconds(
        self, cost: _core.PlanCost, comm: str, group: int | None
    ) -> tuple[float, float] | tuple[None, None]:
        """Of both passes, where a model tells."""
        model, head_dim = self.settings.model, self.settings.heads.head_dim
        if model is None:
            return None, None
        among = timing.group_of_names(comm, len(cost.blocks), group)
        shape = timing.shape_of(comm, among, head_dim, head_dim, self.settings.dtype)
        passes = (timing.timeline_of(cost, model, shape, way) for way in DIRECTIONS)
        forward, backward = (timeline.total_us / 1e3 for timeline in passes)
        return forward, backward

    def _cost(self, cp_size: int, partition: str, comm: str, group: int | None) -> _core.PlanCost:
        settings, heads = self.settings, self.settings.heads
        block_size = (128, 128)
        if settings.model is not None:
            block_size = settings.model.kernel(heads.head_dim, settings.dtype).block_size
        return estimate(
            settings.layout,
            mask=settings.mask,
            cp_size=cp_size,
            partition=partition,
            comm=comm,
            a2a_size=group,
            num_heads=heads.num_heads,
            num_kv_heads=heads.num_kv_heads,
            head_dim=heads.head_dim,
            block_size=block_size,
        )


def _slowness(choice: Choice) -> tuple[float, ...]:
    return (choice.pace, *choice.price)


def _marked(counted: list[Choice]) -> list[Choice]:
    """With best set where no other choice is better in one thing and worse in none."""

    def beats(a: Choice, b: Choice) -> bool:
        return a.price != b.price and all(x <= y for x, y in zip(a.price, b.price, strict=True))

    marked = []
    for choice in counted:
        best = not any(beats(other, choice) for other in counted)
        marked.append(Choice(**{**vars(choice), "best": best}))
    return marked


def _reason(chosen: Choice, close: list[Choice], other: Choice | None) -> str:
    words = f"its slowest rank does {chosen.critical:.2f} times an equal share of one rank's blocks"
    if len(close) > 1:
        words += f", and of {len(close)} choices within {CLOSE - 1:.0%} of that it moves least"
    words += f" ({chosen.mib_in:,.1f} MiB in, both passes, busiest rank)"
    if chosen.ms is not None:
        words += f", {chosen.ms:,.2f} ms predicted"
    if other is not None:
        words += f"; the best of another partition, {other.name}, does {other.critical:.2f}"
        if other.ms is not None:
            words += f" in {other.ms:,.2f} ms"
    return words


def cp_sizes_from(text: str) -> list[int]:
    """What --cp says: a number, numbers between commas, or 2..64, doubling.

    >>> cp_sizes_from("2..16"), cp_sizes_from("3..10"), cp_sizes_from("8,2")
    ([2, 4, 8, 16], [3, 6, 10], [8, 2])
    """
    span = re.fullmatch(r"\s*(\d+)\s*\.\.\s*(\d+)\s*", text)
    if span:
        first, last = (_rank_count(number, text) for number in span.groups())
        if first > last:
            raise ValueError(f"--cp {text}; expected FIRST..LAST that rise. Turn them round")
        sizes = [first]
        while 2 * sizes[-1] <= last:
            sizes.append(2 * sizes[-1])
        return sizes if sizes[-1] == last else [*sizes, last]
    return [_rank_count(word, text) for word in text.split(",")]


def _rank_count(word: str, text: str) -> int:
    if not word.strip().isdecimal():
        raise ValueError(
            f"--cp {text}; expected numbers of ranks: 8, or 2,4,8, or 2..64, which doubles"
        )
    count = int(word)
    _sizes.require_between("--cp", count, 1, "a number of ranks")
    return count


def as_rows(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """For files."""
    return [vars(choice) for choice in choices]
