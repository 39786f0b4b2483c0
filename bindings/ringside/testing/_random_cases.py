"""Small random problems, one plan each, against the definition; reproducible one by one.

By a number, without Hypothesis, and every partition and transport in turn: ringside verify counts
them. strategies draws cases that shrink, and cli/fuzz_cases chooses among these by flags.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringside import _core
from ringside._plan.build import plan as new_plan
from ringside.testing._compare import Comparison, compare
from ringside.testing._problems import Geometry, make_problem


@dataclass(frozen=True)
class NumberedCase:
    """A problem and how to plan it; the seed and number draw it again."""

    seed: int
    number: int
    geometry: Geometry
    plan_by: dict[str, Any]

    def run(self) -> Comparison:
        """The plan of this case against the definition."""
        problem = make_problem(self.geometry, np.random.default_rng([self.seed, self.number, 1]))
        return compare(new_plan(**self.geometry.plan_arguments(), **self.plan_by), problem)

    def __str__(self) -> str:
        """Python that builds the plan."""
        arguments = self.geometry.plan_arguments() | self.plan_by
        return f"rs.plan({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def cases(seed: int, numbers: range) -> Iterator[NumberedCase]:
    """The cases of these numbers; every partition and transport takes its turn.

    >>> case = next(cases(seed=0, numbers=range(7, 8)))
    >>> case.plan_by["partition"], case.plan_by["comm"], case.run().disagreement
    ('zigzag', 'all_gather', '')
    """
    for number in numbers:
        rng = np.random.default_rng([seed, number])
        yield NumberedCase(seed, number, random_geometry(rng), _random_plan(rng, number))


def random_geometry(rng: np.random.Generator) -> Geometry:
    """Up to five documents, empty and one-token ones too, padding, any mask, any heads."""
    batch = int(rng.integers(0, 6))
    layout_q = _random_layout(rng, batch)
    layout_k = layout_q if rng.random() < 0.6 else _random_layout(rng, batch)
    num_kv_heads = int(rng.integers(1, 4))
    num_heads = num_kv_heads * int(rng.integers(1, 4))
    head_dim_qk, head_dim_v = (int(dim) for dim in rng.integers(1, 9, size=2))
    mask = _random_mask(rng)
    return Geometry(layout_q, layout_k, mask, num_heads, num_kv_heads, head_dim_qk, head_dim_v)


def _random_plan(rng: np.random.Generator, number: int) -> dict[str, Any]:
    partitions, comms = _core.PARTITIONS, _core.COMMS
    cp_size = int(rng.integers(1, 9))
    comm = comms[number // len(partitions) % len(comms)]
    divisors = [n for n in range(1, cp_size + 1) if cp_size % n == 0]
    return {
        "cp_size": cp_size,
        "partition": partitions[number % len(partitions)],
        "comm": comm,
        "a2a_size": int(rng.choice(divisors)) if comm == "a2a+p2p" else None,
        "stages": int(rng.integers(1, 4)) if comm == "fetch" else None,
    }


def _random_layout(rng: np.random.Generator, batch: int) -> _core.PackedLayout:
    largest = rng.choice([1, 4, 40], size=batch)  # drawn for each document: packs are skewed
    lengths = rng.integers(0, largest + 1)
    padding = rng.integers(0, 10, size=batch) * (rng.random(batch) < 0.5)
    valid, rows = (np.concatenate([[0], np.cumsum(x)]) for x in (lengths, lengths + padding))
    return _core.PackedLayout(valid.astype(np.int64), rows.astype(np.int64))


def _random_mask(rng: np.random.Generator) -> _core.Mask:
    left, right = (-1 if rng.random() < 0.4 else int(rng.integers(0, 12)) for _ in range(2))
    if rng.random() < 0.25:
        left, right = -1, 0  # causal is what most people run
    return _core.Mask(
        window_size=(left, right),
        chunk_size=0 if rng.random() < 0.6 else int(rng.integers(1, 12)),
        align=str(rng.choice(["top_left", "bottom_right"])),
    )
