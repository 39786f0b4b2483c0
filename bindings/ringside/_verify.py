"""Every partition, transport and mask on one pack of real lengths, against the definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ringside import _core, lengths
from ringside._compare import TOLERANCE, Comparison, compare
from ringside._plan import Plan
from ringside._problems import (
    MASKS,
    TENSORS,
    Geometry,
    NamedMask,
    Problem,
    cross_layout,
    make_problem,
    mask_from,
    padded_layout,
)

DEFAULT_LENGTHS = "long_tail_pack"
DEFAULT_TOKENS = 6144  # at most, unless more are asked for


@dataclass(frozen=True)
class Pack:
    """Which documents, and how their rows are padded."""

    lengths: str = DEFAULT_LENGTHS
    tokens: int | None = None  # default: all of the trace, but not more than DEFAULT_TOKENS
    pad_to: int = 8

    def layout(self) -> _core.PackedLayout:
        """The documents, packed."""
        documents = lengths.load(self.lengths)
        tokens = self.tokens
        if tokens is None:
            tokens = min(DEFAULT_TOKENS, int(documents.sum()))
        return padded_layout(lengths.pack(documents, tokens), self.pad_to)


@dataclass(frozen=True)
class Heads:
    """How many query and kv heads, and how wide."""

    num_heads: int = 8
    num_kv_heads: int = 2
    head_dim: int = 32


@dataclass(frozen=True)
class Settings:
    """What `ringside verify` checks; no names stand for all of them."""

    pack: Pack = field(default_factory=Pack)
    heads: Heads = field(default_factory=Heads)
    cp_size: int = 4
    partitions: Sequence[str] = ()
    comms: Sequence[str] = ()
    masks: Sequence[str] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        """Fills in all names, refuses unknown ones."""
        for what, known in (("partitions", _core.PARTITIONS), ("comms", _core.COMMS)):
            chosen = getattr(self, what) or known
            check_names(what[:-1], chosen, known)
            object.__setattr__(self, what, list(chosen))
        object.__setattr__(self, "masks", list(self.masks or MASKS))
        if self.cp_size < 1:
            raise ValueError(f"cp_size={self.cp_size}; expected at least 1 rank")


@dataclass
class Row:
    """One partition over one transport: all masks together, and what it costs."""

    partition: str
    comm: str
    imbalance: float
    bytes_received: int
    errors: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TENSORS, 0.0))
    disagreement: str = ""

    def add(self, mask: str, comparison: Comparison) -> None:
        """Takes the worst of what it has and what came of another mask."""
        for tensor, error in comparison.errors.items():
            self.errors[tensor] = max(self.errors[tensor], error)
        if comparison.disagreement and not self.disagreement:
            self.disagreement = f"mask {mask}: {comparison.disagreement}"


def check_names(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Raises ValueError for an unknown name, and lists the known ones."""
    for name in given:
        if name not in known:
            raise ValueError(f'{what}="{name}" is unknown; expected one of {", ".join(known)}')


def a2a_size(comm: str, cp_size: int) -> int | None:
    """For a2a+p2p, the smallest groups that are no mere ring; None for the others.

    >>> a2a_size("a2a+p2p", 4), a2a_size("a2a+p2p", 9), a2a_size("p2p", 4)
    (2, 3, None)
    """
    if comm != "a2a+p2p":
        return None
    return next((n for n in range(2, cp_size + 1) if cp_size % n == 0), 1)


def geometry_of(layout: _core.PackedLayout, named: NamedMask, settings: Settings) -> Geometry:
    """One mask on a layout; keys of other lengths where the mask asks for them."""
    heads = settings.heads
    layout_k = cross_layout(layout, settings.pack.pad_to) if named.cross else layout
    return Geometry(
        layout,
        layout_k,
        named.mask,
        heads.num_heads,
        heads.num_kv_heads,
        heads.head_dim,
        heads.head_dim,
    )


class Verification:
    """The whole job; run() yields what is being done, rows and layout hold the results."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.layout = settings.pack.layout()
        self._masks = [mask_from(name) for name in settings.masks]
        self.rows = [self._new_row(p, c) for p in settings.partitions for c in settings.comms]

    @property
    def num_tasks(self) -> int:
        """How often run() yields."""
        return len(self._masks) * (1 + len(self.rows))

    @property
    def failed(self) -> list[Row]:
        """The rows that disagree somewhere."""
        return [row for row in self.rows if row.disagreement]

    def run(self) -> Iterator[str]:
        """Yields a line before each task."""
        rng = np.random.default_rng(self.settings.seed)
        for named in self._masks:
            yield f"{named.name}: the definition"
            problem = make_problem(geometry_of(self.layout, named, self.settings), rng)
            for row in self.rows:
                yield f"{named.name}: {row.partition} over {row.comm}"
                row.add(named.name, self._compare(row, problem))

    def to_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return {
            "ringside": _core.__version__,
            "settings": asdict(self.settings),
            "documents": self.layout.num_sequences,
            "tokens": self.layout.num_tokens,
            "rows": self.layout.num_rows,
            "masks": {named.name: repr(named.mask) for named in self._masks},
            "tolerance": TOLERANCE,
            "passed": not self.failed,
            "results": [asdict(row) for row in self.rows],
        }

    def _plan(self, row_of: tuple[str, str], geometry: Geometry) -> Plan:
        partition, comm = row_of
        cp_size = self.settings.cp_size
        return Plan(
            **geometry.plan_arguments(),
            cp_size=cp_size,
            partition=partition,
            comm=comm,
            a2a_size=a2a_size(comm, cp_size),
        )

    def _compare(self, row: Row, problem: Problem) -> Comparison:
        return compare(self._plan((row.partition, row.comm), problem.geometry), problem)

    def _new_row(self, partition: str, comm: str) -> Row:
        """With the cost of the causal mask, bfloat16, head_dim 128."""
        geometry = geometry_of(self.layout, MASKS["causal"], self.settings)
        cost = self._plan((partition, comm), geometry).cost()
        received = cost.bytes_received.sum(axis=1) + cost.result_bytes_received
        return Row(partition, comm, cost.imbalance, int(received.max()))
