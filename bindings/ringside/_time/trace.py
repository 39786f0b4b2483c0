"""A timeline as Chrome's trace JSON, which Perfetto reads: a process a rank, two tracks each.

On one track events have to nest; tiles and exchanges cross, so each has a track of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringside._time.timeline import Timeline

TRACKS = {"work": 0, "exchange": 1}


def write(path: str | os.PathLike[str], timeline: Timeline) -> None:
    """The file."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path is a {type(path).__name__}; expected the path of a file")
    Path(path).write_text(json.dumps(to_dict(timeline)) + "\n", encoding="utf-8")


def to_dict(timeline: Timeline) -> dict[str, Any]:
    """As JSON has it; times are microseconds."""
    about = {"direction": timeline.direction, "source": timeline.source}
    events = [*_names(timeline.num_ranks), *_events(timeline)]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _names(ranks: int) -> Iterator[dict[str, Any]]:
    for rank in range(ranks):
        yield _name("process_name", rank, 0, f"rank {rank}")
        yield {**_name("process_sort_index", rank, 0, ""), "args": {"sort_index": rank}}
        for track, number in TRACKS.items():
            yield _name("thread_name", rank, number, track)


def _name(what: str, rank: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": rank, "tid": track, "args": {"name": name}}


def _events(timeline: Timeline) -> Iterator[dict[str, Any]]:
    for event in timeline.events:
        yield {
            "ph": "X",
            "name": f"step {event.step}",
            "cat": event.kind,
            "pid": event.rank,
            "tid": TRACKS[event.kind],
            "ts": event.begin_us,
            "dur": event.end_us - event.begin_us,
            "args": {"step": event.step, "owners": list(event.owners)},
        }
