"""The small pictures of partitions and transports, in help() and README, are what plans do."""

import re
from pathlib import Path

import numpy as np
import pytest
import ringside as rs

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCK = 128
LAYOUT = rs.PackedLayout.from_lengths([16 * BLOCK, 8 * BLOCK])


def picture_of(partition):
    """A character a block: the rank that owns it, or * for several."""
    owners = np.empty(LAYOUT.num_rows, int)
    for rank, segments in enumerate(rs.partition(partition, LAYOUT, 4)):
        for segment in segments:
            owners[LAYOUT.cu_seqlens_padded[segment.seq] + segment.positions] = rank
    cells = [set(block.tolist()) for block in owners.reshape(-1, BLOCK)]
    drawn = "".join(str(*cell) if len(cell) == 1 else "*" for cell in cells)
    return f"{drawn[:16]} {drawn[16:]}"


def steps_of(comm):
    """Of rank 2: whose keys it holds in each step; then, how many of four heads."""
    plan = rs.plan(
        rs.PackedLayout([0, 16]),
        mask=rs.Mask.full(),
        cp_size=4,
        partition="contiguous",
        comm=comm,
        a2a_size=2 if comm == "a2a+p2p" else None,
        num_heads=4,
    )
    steps = plan.steps(2)
    rows = [np.concatenate([segment.positions for segment in step.kv]) for step in steps]
    owners = [dict.fromkeys(str(row // 4) for row in of_step.tolist()) for of_step in rows]
    (heads,) = {step.heads[1] - step.heads[0] for step in steps}
    words = {4: "", 2: ", of two heads in four", 1: ", of one head in four"}[heads]
    return " ".join("".join(of_step) for of_step in owners) + words


def is_drawn(name, picture, text):
    """Whether a line says so: of a table of Markdown, or of plain text."""
    name, picture = re.escape(name), re.escape(picture)
    return re.search(rf"^(\| `{name}` \| `| +{name} +){picture}", text, re.MULTILINE)


@pytest.mark.parametrize("text", [rs.plan.__doc__, README], ids=["help", "readme"])
def test_each_partition_is_drawn_as_it_is(text):
    for partition in rs.PARTITIONS:
        assert is_drawn(partition, picture_of(partition), text), partition


@pytest.mark.parametrize("text", [rs.plan.__doc__, README], ids=["help", "readme"])
def test_each_transport_is_drawn_as_it_is(text):
    for comm in rs.COMMS:
        assert is_drawn(comm, steps_of(comm), text), comm
