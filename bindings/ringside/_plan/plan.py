"""The Plan a user holds: the C++ plan, and a table of what can be asked of it, by concern."""

from __future__ import annotations

import warnings
from collections.abc import Set
from typing import TYPE_CHECKING, Any

from ringside import _core
from ringside._core import arguments
from ringside._pictures import display as _display
from ringside._plan import calls as _calls
from ringside._plan import costs as _costs
from ringside._plan import diff as _diff
from ringside._plan import explain as _explain
from ringside._plan import json_format as _json_format
from ringside._plan import pickling as _pickling
from ringside._plan import pictures as _pictures
from ringside._plan import questions as _questions
from ringside._plan import rank_calls as _rank_calls
from ringside._plan import shards as _shards
from ringside._plan import show as _show
from ringside._plan import timing as _timing
from ringside._plan.numbers import number
from ringside._plan.own_methods import own_methods

if TYPE_CHECKING:
    from typing_extensions import Self


class Plan(_core.Plan):
    """Who computes what, when, from which rows: plain data that every backend interprets.

    ringside.plan makes one, Plan.from_json reads one; both have been checked. A plan never changes.
    It is pickled and copied by its tables.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 5, 12]), cp_size=2)
    >>> isinstance(plan, rs.Plan), plan.cp_size, plan.num_steps
    (True, 2, 2)
    """

    __slots__ = ("_dropout_origin", "_fingerprint", "_number", "_programs", "_rows_owned")
    _dropout_origin: tuple[int, int]  # of a piece of a longer pack, see options.to_core
    _programs: dict[Any, Any]  # what lies on devices for this plan, see _arrays/programs.py
    _number: int  # see numbers.py
    _rows_owned: dict[tuple[int, str], int]  # as far as somebody asked
    _fingerprint: str  # empty until somebody asks, see rank_calls.py
    _version = 0  # its lengths never change

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As ringside.plan, which is how to spell it; for subclasses, too."""
        if type(self) is Plan:
            warnings.warn(
                "got a call of ringside.Plan; expected ringside.plan, which takes the same "
                "arguments. Call that, or Plan.from_json for a plan that was written down",
                DeprecationWarning,
                stacklevel=2,
            )
        self._start(*args, **kwargs)

    def _start(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._dropout_origin, self._programs, self._fingerprint = (0, 0), {}, ""
        self._number, self._rows_owned = number(self), {}

    @classmethod
    def _make(cls, *args: Any, **kwargs: Any) -> Self:
        """A plan from one of the signatures of C++; a subclass's own constructor is not called."""
        plan = cls.__new__(cls)
        Plan._start(plan, *args, **kwargs)
        return plan

    def _part(self, num_steps: int, tiles: Set[tuple[int, int, int]] | None = None) -> Plan:
        """Its first steps and, of them, these tiles: (step, rank, index); verify() refuses it."""
        part = Plan._make(self, num_steps=num_steps, tiles=tiles)
        part._dropout_origin = self._dropout_origin
        return part

    @property
    def _source(self) -> Plan:
        return self

    def _prepare(self, program: Any, library: Any, device: int) -> None:
        """Nothing more than its tables, which the program has."""

    @property
    def num_rows_q(self) -> int:
        """Rows of q, out and dq."""
        return self.layout_q.num_rows

    def _fingerprint_in(self, group: Any) -> str:
        """The same in every group, and for every plan that is the same."""
        return _rank_calls.fingerprint_of(self)

    def _require_ready(self, library: Any, device: int) -> None:
        """It always is."""

    def _take_up(self, group: Any, program: Any) -> None:
        """Nothing more."""

    def _words_of_rows(self, rank: int, side: _shards.Side) -> str:
        owned = self._num_rows_owned(rank, side)
        return (
            f"rank {rank} owns {owned} of the plan's rows of {side}. "
            f'Pass plan.shard(x, {rank}, side="{side}")'
        )

    def _num_rows_owned(self, rank: int, side: _shards.Side) -> int:
        """Rows of a rank's shard; each call over a group asks, so it is counted once."""
        if (rank, side) not in self._rows_owned:
            self._rows_owned[rank, side] = len(self.row_indices(rank, side=side))
        return self._rows_owned[rank, side]

    shard = _shards.shard
    unshard = _shards.unshard
    roll = _shards.roll
    position_ids = _shards.position_ids
    row_indices = _shards.row_indices

    def verify(self) -> _core.PlanProof:
        """Proves the plan without running it.

        Each row is owned once; every send meets its receive, in an order that cannot deadlock,
        inside the buffers; the rows that arrive are those the tiles name; every visible (query,
        key) pair of every head is computed exactly once, and no tile sees nothing. Then the
        schedules of all ranks (see schedule), both passes: nothing is written while it is read,
        both ends of every message agree, nothing deadlocks, every sum goes home once, and memory
        is as cost() says.

        Raises:
            PlanError: naming the first offending row, message, tile or operation.

        >>> import ringside as rs
        >>> rs.plan(rs.PackedLayout([0, 4]), cp_size=2).verify()
        PlanProof(rows=8, messages=2, tiles=6, pairs=10, operations=24)
        """
        return super().verify()

    cost = _costs.cost
    timeline = _timing.timeline
    attention = _calls.attention
    attention_backward = _calls.attention_backward
    prepare = _rank_calls.prepare
    attention_rank = _rank_calls.attention_rank
    attention_backward_rank = _rank_calls.attention_backward_rank
    exchange = _calls.exchange
    exchange_transposed = _calls.exchange_transposed
    explain = _explain.explain
    diff = _diff.diff

    def first_steps(self, steps: int) -> Plan:
        """A plan of the first steps only: it runs, and verify() refuses it as a whole.

        Args:
            steps: how many, 0 to num_steps.

        Raises:
            InvalidArgument: more than the plan has.

        >>> import ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
        >>> plan.first_steps(1).num_steps
        1
        """
        steps = arguments.integer(steps, "steps")
        if not 0 <= steps <= self.num_steps:
            raise _core.InvalidArgument(
                f"steps {steps}; expected 0 to {self.num_steps}, which it has"
            )
        return self._part(steps)

    who = _questions.who
    story = _questions.story
    draw = _pictures.draw
    draw_mask = _pictures.draw_mask
    draw_shards = _pictures.draw_shards
    draw_timeline = _pictures.draw_timeline
    draw_work = _pictures.draw_work
    draw_heads = _pictures.draw_heads
    draw_ranks = _pictures.draw_ranks
    draw_story = _pictures.draw_story
    show = _show.show
    to_json = _json_format.to_json

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Reads what to_json wrote, or what you wrote yourself, and proves it.

        Raises:
            ValueError: not such JSON; the message names what is missing or off.
            PlanError: a plan that verify() refuses.
        """
        return cls._make(**_json_format.arguments(text))

    def __repr__(self) -> str:
        """A summary; to_json() holds everything."""
        if not hasattr(self, "_programs"):  # a traceback shows one whose arguments were refused
            return "<Plan that was not made>"
        return (
            f"<Plan {self.partition} over {self.comm}, cp_size={self.cp_size}, "
            f"steps={self.num_steps}, rows={self.layout_q.num_rows}, {self.mask}>"
        )

    _repr_html_ = _display.quietly(_display.plan_html)

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy: the same plan, not a device's programs for it."""
        return _pickling.reduced(self)

    __hash__ = None  # type: ignore[assignment]


own_methods(Plan)
