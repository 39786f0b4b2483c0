"""Every partition, transport and mask on one pack of real lengths, against the definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ringside import _core
from ringside._plan.build import plan as new_plan
from ringside._plan.plan import Plan
from ringside.cli.pack import Pack
from ringside.testing import _sizes
from ringside.testing._compare import TOLERANCE, Comparison, compare
from ringside.testing._problems import (
    MASKS,
    TENSORS,
    Geometry,
    NamedMask,
    SolvedProblem,
    a2a_size,
    cross_layout,
    make_problem,
    mask_from,
)

SMALLER = "Pass smaller ones; --tokens N takes the first N tokens"
NS_OF_DEFINITION, NS_OF_PLAN = 60.0, 12.0  # of one pair of one head of dimension 32, two cores
WIDTH_OF_SOFTMAX = 64  # what is not a product costs as much as products of this head dimension
SECONDS_WORTH_A_WORD = 120


@dataclass(frozen=True)
class Heads:
    """How many query and kv heads, and how wide."""

    num_heads: int = 8
    num_kv_heads: int = 2
    head_dim: int = 32

    def __post_init__(self) -> None:
        """Refuses what no array can have."""
        _sizes.require_between("--heads", self.num_heads, 1, "a number of query heads")
        _sizes.require_between("--kv-heads", self.num_kv_heads, 1, "a number of kv heads")
        _sizes.require_between("--head-dim", self.head_dim, 1, "a dimension of q, k and v")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"--heads {self.num_heads} --kv-heads {self.num_kv_heads}; expected a multiple of "
                "the kv heads. Pass such a number of query heads"
            )


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
        _sizes.require_between("--cp", self.cp_size, 1, "a number of ranks")
        if self.seed < 0:
            raise ValueError(f"--seed {self.seed}; expected 0 or more. Pass such a number")
        _sizes.require_memory_of_plan(self.cp_size)


@dataclass
class Row:
    """One partition over one transport: all masks together, and what it costs."""

    partition: str
    comm: str
    imbalance: float
    fill: float
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


def geometry_of(layout: _core.PackedLayout, named: NamedMask, settings: Settings) -> Geometry:
    """One mask on a layout; keys of other lengths where the mask asks for them."""
    heads = settings.heads
    layout_k = cross_layout(layout, settings.pack.padding) if named.cross else layout
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
        self.layout, self.taken = settings.pack.taken()
        _sizes.require_memory(self.memory(), self._arrays(), SMALLER)
        self._masks = [mask_from(name) for name in settings.masks]
        self.rows = [self._new_row(p, c) for p in settings.partitions for c in settings.comms]

    def memory(self) -> int:
        """About how many bytes are in use at once: operands, results, a plan's buffers."""
        heads, ranks = self.settings.heads, self.settings.cp_size
        rows_of_q, rows_of_kv = 12 * heads.num_heads, 2 * (ranks + 5) * heads.num_kv_heads
        return 8 * self.layout.num_rows * heads.head_dim * (rows_of_q + rows_of_kv)

    def seconds(self) -> float:
        """About how long the whole job takes: all pairs of each document, seen or not."""
        heads = self.settings.heads
        pairs = float((self.layout.lengths.astype(np.float64) ** 2).sum()) * heads.num_heads
        of_pair = NS_OF_DEFINITION + NS_OF_PLAN * len(self.rows)
        widths = (WIDTH_OF_SOFTMAX + heads.head_dim) / (WIDTH_OF_SOFTMAX + 32)
        return 1e-9 * pairs * of_pair * widths * len(self._masks)

    def _arrays(self) -> str:
        heads = self.settings.heads
        return (
            f"float64 arrays of {self.layout.num_rows:,} rows (--tokens), {heads.num_heads} query "
            f"and {heads.num_kv_heads} kv heads (--heads, --kv-heads) of {heads.head_dim} "
            f"(--head-dim), for {self.settings.cp_size} ranks (--cp)"
        )

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
        return new_plan(
            **geometry.plan_arguments(),
            cp_size=cp_size,
            partition=partition,
            comm=comm,
            a2a_size=a2a_size(comm, cp_size),
        )

    def _compare(self, row: Row, problem: SolvedProblem) -> Comparison:
        return compare(self._plan((row.partition, row.comm), problem.geometry), problem)

    def _new_row(self, partition: str, comm: str) -> Row:
        """With the cost of the causal mask, bfloat16, head_dim 128."""
        geometry = geometry_of(self.layout, MASKS["causal"], self.settings)
        cost = self._plan((partition, comm), geometry).cost()
        received = cost.bytes_received.sum(axis=1) + cost.result_bytes_received
        return Row(partition, comm, cost.imbalance, cost.fill, int(received.max()))
