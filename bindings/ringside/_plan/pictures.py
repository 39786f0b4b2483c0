"""Pictures of a plan, each of one kind; all are computed, and say whether verify() accepts it.

These are methods of Plan; they stand here because they are a concept of their own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ringside._pictures.checks import check_axes, check_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ringside import _core
    from ringside._plan.plan import Plan

Path = str | os.PathLike[str] | None


def draw(self: Plan, path: Path = None) -> Figure:
    """A picture: who computes which pair, whose rows they are, and when each rank works.

    A colour is a rank, everywhere; the later the step, the lighter. On the left the mask, with
    strips that say whose query rows and whose keys these are, padding in grey: the whole pack, or,
    beyond 2,048 rows, its longest document, below a strip of all and beside the work by owner of
    the keys. Then a bar for each rank and step, as long as what a kernel computes there: blocks of
    128 x 128, pairs in packs of up to 1,024 rows; below it, whose keys it reads. A step begins
    when all ranks have ended the one before. Where all-to-alls split heads, a line a head; of more
    than 16 ranks, rank x owner instead of the mask. Last, what verify() says; where it refuses,
    lines cross at the place.

    Args:
        path: where to save it (png, pdf, svg); default nowhere.

    Returns:
        The matplotlib figure.

    Raises:
        ImportError: matplotlib is missing: pip install matplotlib.

    >>> import ringside as rs
    >>> figure = rs.plan(rs.PackedLayout([0, 4]), cp_size=2).draw()
    >>> len(figure.axes) >= 2
    True
    """
    from ringside._pictures import whole

    check_path(path)
    return whole.draw(self, path)


def draw_mask(
    self: Plan,
    path: Path = None,
    *,
    head: int = 0,
    sequence: int | None = None,
    mark: tuple[int | None, int | None] | _core.PlanError | None = None,
    ax: Axes | None = None,
) -> Figure:
    """The mask alone, with strips of owners: who computes which pair, later steps lighter.

    A pair that is seen and that nobody computes is black.

    Args:
        path: where to save it; default nowhere.
        head: query head.
        sequence: of the pack, to be shown alone; default the whole pack.
        mark: (row, key) of the pack to point at, or a PlanError that names them.
        ax: matplotlib's Axes to draw on; default a figure of its own.

    Returns:
        The matplotlib figure.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
    >>> figure = plan.draw_mask(mark=(5, 1))
    >>> len(figure.axes)
    1
    """
    from ringside._pictures import single

    check_path(path)
    check_axes(ax)
    return single.draw_mask_of(self, path, head, sequence, mark, ax)


def draw_shards(self: Plan, path: Path = None, *, ax: Axes | None = None) -> Figure:
    """A line a rank: the rows of the pack that it owns; of keys, too, where those lie otherwise.

    Args:
        path: where to save it; default nowhere.
        ax: matplotlib's Axes for the queries alone; default a figure of its own.

    Returns:
        The matplotlib figure.

    >>> import ringside as rs
    >>> figure = rs.plan(rs.PackedLayout([0, 8]), cp_size=2).draw_shards()
    >>> len(figure.axes)
    1
    """
    from ringside._pictures import single

    check_path(path)
    check_axes(ax)
    return single.draw_shards(self, path, ax)


def draw_timeline(
    self: Plan, path: Path = None, *, timeline: Any = None, ax: Axes | None = None
) -> Figure:
    """When each rank works: bars in its colour, later steps lighter, below them whose K/V it reads.

    Args:
        path: where to save it; default nowhere.
        timeline: times of a model: an object with total_us and events, each with rank, step, kind
            ("work" or "exchange"), begin_us, end_us and owners (ranks). Default: counts of what a
            kernel computes, blocks of 128 x 128 or pairs, where a step begins when all ranks have
            ended the one before.
        ax: matplotlib's Axes to draw on; default a figure of its own.

    Returns:
        The matplotlib figure.

    >>> import ringside as rs
    >>> figure = rs.plan(rs.PackedLayout([0, 8]), cp_size=2).draw_timeline()
    >>> len(figure.axes)
    1
    """
    from ringside._pictures import single

    check_path(path)
    check_axes(ax)
    return single.draw_timeline(self, timeline, path, ax)


def draw_work(self: Plan, path: Path = None, *, ax: Axes | None = None) -> Figure:
    """Rank x owner: how much each rank computes with whose keys; the darker, the more.

    Args:
        path: where to save it; default nowhere.
        ax: matplotlib's Axes to draw on; default a figure of its own.

    Returns:
        The matplotlib figure.

    >>> import ringside as rs
    >>> figure = rs.plan(rs.PackedLayout([0, 8]), cp_size=2).draw_work()
    >>> len(figure.axes)
    1
    """
    from ringside._pictures import single

    check_path(path)
    check_axes(ax)
    return single.draw_work(self, path, ax)


def draw_heads(self: Plan, path: Path = None, *, ax: Axes | None = None) -> Figure:
    """A line a query head: which rank computes it, row by row, as all-to-alls split them.

    Args:
        path: where to save it; default nowhere.
        ax: matplotlib's Axes to draw on; default a figure of its own.

    Returns:
        The matplotlib figure.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2, comm="a2a", num_heads=4)
    >>> figure = plan.draw_heads()
    >>> len(figure.axes)
    1
    """
    from ringside._pictures import single

    check_path(path)
    check_axes(ax)
    return single.draw_heads(self, path, ax)


def draw_ranks(self: Plan, path: Path = None, *, sequence: int | None = None) -> Figure:
    """A panel a rank: its own pairs in its colour, all others grey. Of all-to-alls, draw_heads.

    Args:
        path: where to save it; default nowhere.
        sequence: of the pack, to be shown alone; default the whole pack.

    Returns:
        The matplotlib figure.

    Raises:
        Unsupported: more than 16 ranks; draw_work tells any number apart.

    >>> import ringside as rs
    >>> figure = rs.plan(rs.PackedLayout([0, 8]), cp_size=2).draw_ranks()
    >>> len(figure.axes)
    2
    """
    from ringside._pictures import single

    check_path(path)
    return single.draw_ranks(self, path, sequence)


def draw_story(
    self: Plan,
    row: int,
    path: Path = None,
    *,
    q: Any = None,
    k: Any = None,
    head: int = 0,
    ax: Axes | None = None,
) -> Figure:
    """How the answer of a row comes together: what each step adds, in the colour of whose keys.

    Args:
        row: of the pack's queries.
        path: where to save it; default nowhere.
        q, k, head: as for story.
        ax: matplotlib's Axes to draw on; default a figure of its own.

    Returns:
        The matplotlib figure.

    >>> import ringside as rs
    >>> figure = rs.plan(rs.PackedLayout([0, 8]), cp_size=2).draw_story(7)
    >>> len(figure.axes)
    1
    """
    from ringside._pictures import single

    check_path(path)
    check_axes(ax)
    return single.draw_story(self, row, (q, k), head, path, ax)
