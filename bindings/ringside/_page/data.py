"""What a page holds of a plan: its own tables, the mask in a normal form, and what was counted.

Nothing is worked out a second way: who computes which pair is read off the tables by the page, as
Plan.who reads it off the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._pictures.colours import hex_of, rank_colours

MANY_TILES = 100_000  # more would make a page of many megabytes: it holds one document's
KINDS = (
    "none",
    "ring_shift",
    "all_gather",
    "all_to_all",
)  # of exchanges, as the tables number them
DONE, TO_COME = 0.45, 0.8  # white in the colours of steps before and after the one shown
Tables = dict[str, npt.NDArray[np.int32]]


@dataclass(frozen=True)
class Fault:
    """Why a plan was refused, and where, as far as that is known.

    Attributes:
        text: what verify() said.
        rank, step, tile: of the fault; None where it names none.
        row, key: of the pack, likewise.
    """

    text: str
    rank: int | None = None
    step: int | None = None
    tile: int | None = None
    row: int | None = None
    key: int | None = None

    @classmethod
    def of(cls, error: _core.PlanError) -> Fault:
        """What an error says."""
        names = ("rank", "step", "tile", "row", "key")
        return cls(str(error), **{name: getattr(error, name, None) for name in names})


@dataclass(frozen=True)
class Shown:
    """A plan, proved or refused.

    Attributes:
        arguments: from which Plan() makes it, see json_format.arguments.
        title, why: in words.
        proof: what verify() proved; empty where it refused.
        fault: why it was refused; None where it was not.
        cost: None where a refused plan cannot be counted.
        blocks_of_one: what one rank alone would pay for the whole.
    """

    arguments: dict[str, Any]
    title: str
    why: str
    proof: str
    fault: Fault | None
    cost: _core.PlanCost | None
    blocks_of_one: int

    def __post_init__(self) -> None:
        """A plan is proved or refused, never both."""
        assert bool(self.proof) == (self.fault is None)


def data_of(shown: Shown, max_tiles: int = MANY_TILES) -> dict[str, Any]:
    """As the page's script reads it; of plans of more tiles those of one document alone."""
    layout_q, layout_k = shown.arguments["layout_q"], shown.arguments["layout_k"]
    tables: Tables = shown.arguments["tables"]
    cp_size = len(tables["homes"])
    only = _document(shown, tables) if len(tables["tiles"]) > max_tiles else None
    return {
        "title": shown.title,
        "why": shown.why,
        "proof": shown.proof,
        "fault": None if shown.fault is None else vars(shown.fault),
        "heads": [shown.arguments["num_heads"], shown.arguments["num_kv_heads"]],
        "groups": _head_groups(shown.arguments["num_heads"], tables["steps"]),
        "q": _layout(layout_q),
        "k": None if layout_k == layout_q else _layout(layout_k),
        "mask": _mask(shown.arguments["mask"], layout_q, layout_k),
        "only": only,
        "num_tiles": len(tables["tiles"]),
        "shard_rows": _rows_of_shards(tables["shards"]),
        "tables": _tables(tables, only),
        "kinds": KINDS,
        "cost": None if shown.cost is None else _cost(shown.cost, shown.blocks_of_one),
        "colours": [_whitened(cp_size, white) for white in (0.0, DONE, TO_COME)],
    }


def _whitened(cp_size: int, white: float) -> list[str]:
    """[cp_size] the ranks' colours with so much white in them, 0 to 1."""
    return [hex_of(colour + (1 - colour) * white) for colour in rank_colours(cp_size)]


def _head_groups(num_heads: int, steps: npt.NDArray[np.int32]) -> list[tuple[int, int]]:
    """Ranges of query heads within which every step computes all or none."""
    cuts = {0, num_heads, *steps[:, 4:6].reshape(-1).tolist()}
    inside = sorted(cut for cut in cuts if 0 <= cut <= num_heads)
    return list(pairwise(inside))


def _document(shown: Shown, tables: Tables) -> int:
    """The one whose tiles are kept: where the fault is, or the longest."""
    fault, tiles, steps = shown.fault, tables["tiles"], tables["steps"]
    layout = shown.arguments["layout_q"]
    if fault is not None and fault.row is not None:
        return int(np.searchsorted(layout.cu_seqlens_padded, fault.row, side="right")) - 1
    if fault is not None and None not in (fault.rank, fault.step, fault.tile):
        here = steps[(steps[:, 0] == fault.rank) & (steps[:, 1] == fault.step), 9]
        there = tiles[np.isin(tiles[:, 0], here), 1][fault.tile : fault.tile + 1]  # type: ignore[operator]
        if len(there):
            return int(there[0])
    return int(np.argmax(layout.lengths))


def _layout(layout: _core.PackedLayout) -> dict[str, list[int]]:
    return {"lengths": layout.lengths.tolist(), "begins": layout.cu_seqlens_padded.tolist()}


def _mask(
    mask: _core.Mask, layout_q: _core.PackedLayout, layout_k: _core.PackedLayout
) -> dict[str, Any]:
    """How far a query sees, None without end, and its place on the key axis, a document each."""
    back, ahead = (None if bound < 0 else bound for bound in mask.window_size)
    shift = (layout_k.lengths - layout_q.lengths) * (mask.align == "bottom_right")
    return {"back": back, "ahead": ahead, "chunk": mask.chunk_size, "shift": shift.tolist()}


def _rows_of_shards(shards: npt.NDArray[np.int32]) -> list[int]:
    """[pool] how many rows each holds, also where only one document's are kept."""
    rows = np.zeros(int(shards[:, 0].max(initial=0)) + 1, np.int64)
    inside = shards[:, 0] >= 0
    np.maximum.at(rows, shards[inside, 0], shards[inside, 4].astype(np.int64) + shards[inside, 5])
    return rows.tolist()


def _tables(tables: Tables, only: int | None) -> dict[str, list[int]]:
    """Row by row, flat; `numbers` are those of the tiles within their lists."""
    tiles, shards = tables["tiles"], tables["shards"]
    lists, first = np.unique(tiles[:, 0], return_index=True)
    numbers = np.arange(len(tiles)) - first[np.searchsorted(lists, tiles[:, 0])]
    if only is not None:
        of_it = tiles[:, 1] == only
        tiles, numbers, shards = tiles[of_it], numbers[of_it], shards[shards[:, 1] == only]
    flat = {
        "shards": shards,
        "tiles": tiles,
        "homes": tables["homes"],
        "steps": tables["steps"],
        "messages": tables["messages"],
    }
    found = {name: cells.reshape(-1).tolist() for name, cells in flat.items()}
    return found | {"numbers": [] if only is None else numbers.tolist()}


def _cost(cost: _core.PlanCost, blocks_of_one: int) -> dict[str, Any]:
    """By rank and step; and what the whole comes to, beside an equal share of one rank's blocks."""
    names = ("pairs", "blocks", "partial_blocks", "bytes_received", "bytes_sent")
    share = max(blocks_of_one / max(len(cost.blocks), 1), 1)
    return {
        **{name: getattr(cost, name).tolist() for name in names},
        "block_size": list(cost.block_size),
        "area": cost.block_size[0] * cost.block_size[1],
        "words": _work_in_words(cost, share),
    }


def _work_in_words(cost: _core.PlanCost, share: float) -> str:
    """Balanced is not fast: what a kernel pays stands before what is seen."""
    slowest = cost.blocks.sum(axis=1).max(initial=0) / share
    in_step = cost.blocks.max(axis=0, initial=0).sum() / share
    return (
        f"The slowest rank pays {slowest:.2f} x an equal share of the blocks of "
        "{} x {} that one rank would pay, ".format(*cost.block_size)
        + f"{in_step:.2f} x where all keep step; imbalance of pairs {cost.imbalance:.2f}, "
        f"fill {cost.fill:.2f}."
    )
