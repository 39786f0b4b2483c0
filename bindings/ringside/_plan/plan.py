"""The Plan a user holds: the C++ plan with its documentation, pictures and files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._arguments.kinds import STATISTIC, answers_in_kind
from ringside._arrays import calls as _calls
from ringside._attention.definition import asked_for, gradients, results
from ringside._attention.formats import QkvFormat, check_format, lse_to_thd, to_thd
from ringside._attention.options import (
    OptionKeywords,
    Options,
    Unpack,
    options_of,
    takes_options,
    to_core,
)
from ringside._core import arguments
from ringside._pictures import display as _display
from ringside._plan import diff as _diff
from ringside._plan import explain as _explain
from ringside._plan import json_format as _plan_json
from ringside._plan import pickling as _plan_pickle
from ringside._plan import pictures as _pictures
from ringside._plan import questions as _questions
from ringside._plan import rank_calls as _rank_calls
from ringside._plan import show as _show
from ringside._plan import timing as _timing
from ringside._plan.numbers import number
from ringside._time.model import as_model
from ringside._time.timeline import Timeline

if TYPE_CHECKING:
    from typing_extensions import Self

    from ringside._page.page import Page

Side = Literal["q", "k"]
Float64 = npt.NDArray[np.float64]
Array = TypeVar("Array")  # of torch, CuPy or JAX: results are of its kind


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
    _programs: dict[Any, Any]  # what was uploaded to a device for this plan, see _arrays/cuda.py
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

    def _num_rows_owned(self, rank: int, side: Side) -> int:
        """Rows of a rank's shard; each call over a group asks, so it is counted once."""
        if (rank, side) not in self._rows_owned:
            self._rows_owned[rank, side] = len(self.row_indices(rank, side=side))
        return self._rows_owned[rank, side]

    @answers_in_kind("x")
    def shard(self, x: Array, rank: int, *, side: Side = "q") -> Array:
        """The rows of x [rows, ...] that a rank owns, in its order: tokens, labels, q, anything.

        >>> import numpy as np, ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
        >>> plan.shard(np.array([10, 11, 12, 13]), rank=0).tolist()
        [10, 13]
        """
        return super().shard(x, rank, side=side)

    @answers_in_kind("parts")
    def unshard(self, parts: Sequence[Array], *, side: Side = "q") -> Array:
        """The global array from every rank's part; the inverse of shard.

        >>> import numpy as np, ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
        >>> plan.unshard([np.array([10, 13]), np.array([11, 12])]).tolist()
        [10, 11, 12, 13]
        """
        return super().unshard(parts, side=side)

    @answers_in_kind("x")
    def roll(self, x: Array, shift: int = -1, *, fill_value: Any = 0) -> Array:
        """Shifts a global array along its rows within each document; see PackedLayout.roll.

        Roll first, then shard: a rank's own rows do not hold the neighbours it would need.

        >>> import numpy as np, ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
        >>> labels = plan.roll(np.array([10, 11, 12, 13]), fill_value=-100)
        >>> plan.shard(labels, rank=0).tolist()
        [11, -100]
        """
        return self.layout_q.roll(x, shift, fill_value=fill_value)

    def position_ids(self, rank: int, *, side: Side = "q") -> npt.NDArray[np.int32]:
        """[rows of the rank] int32: each row's position in its document, as RoPE needs.

        >>> import ringside as rs
        >>> rs.plan(rs.PackedLayout([0, 8]), cp_size=2).position_ids(1).tolist()
        [2, 3, 4, 5]
        """
        return super().position_ids(rank, side=side)

    def row_indices(self, rank: int, *, side: Side = "q") -> npt.NDArray[np.int32]:
        """[rows of the rank] int32: the global row of each of the rank's rows.

        >>> import ringside as rs
        >>> rs.plan(rs.PackedLayout([0, 2, 6]), cp_size=2).row_indices(1).tolist()
        [0, 3, 4]
        """
        return super().row_indices(rank, side=side)

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

    @overload
    def cost(
        self,
        *,
        head_dim: int = ...,
        head_dim_v: int | None = ...,
        bytes_per_element: int = ...,
        block_size: tuple[int, int] = ...,
        keep_kv: bool = ...,
        model: None = None,
        dtype: str = ...,
    ) -> _core.PlanCost: ...
    @overload
    def cost(
        self,
        *,
        head_dim: int = ...,
        head_dim_v: int | None = ...,
        bytes_per_element: int = ...,
        block_size: tuple[int, int] = ...,
        keep_kv: bool = ...,
        model: Any,
        dtype: str = ...,
    ) -> _timing.TimedCost: ...
    def cost(
        self,
        *,
        head_dim: int = 128,
        head_dim_v: int | None = None,
        bytes_per_element: int = 2,
        block_size: tuple[int, int] = (128, 128),
        keep_kv: bool = False,
        model: Any = None,
        dtype: str = "bfloat16",
    ) -> _core.PlanCost:
        """Counts both passes: pairs, a kernel's blocks, bytes, rows and memory, by rank and step.

        No count takes time proportional to rows: pairs and blocks follow from the mask. Of a plan
        that is not built, ringside.estimate counts the same.

        Args:
            head_dim: of q and k.
            head_dim_v: of v; default head_dim.
            bytes_per_element: of q, k, v and out; 2 for bfloat16. lse counts 4.
            block_size: (query rows, key rows) of a kernel's block.
            keep_kv: of passes that keep keys and values, see attention_rank: the backward pass
                brings none, and they take kept_bytes meanwhile.
            model: of a machine: a TimeModel, the name of a preset, a path, or a dict as of its
                JSON. Then the answer has `forward` and `backward`, timelines of both passes.
            dtype: of q, k, v and out, by which the model knows its kernels.

        Raises:
            ValueError: a size below 1; no such model; blocks or elements of other sizes than its.
            Unsupported: a model that lacks the dtype, the head size or the exchange.

        >>> import ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2, partition="contiguous")
        >>> plan.cost().pairs.sum(axis=1).tolist(), round(plan.cost().imbalance, 3)
        ([10, 26], 1.444)
        >>> plan.cost().backward_bytes_sent.tolist()  # keys there, float32 gradients back
        [[0, 2048], [0, 4096]]
        >>> kept = plan.cost(keep_kv=True)
        >>> kept.kept_bytes.tolist(), kept.backward_bytes_sent.tolist()
        ([0, 2048], [[0, 0], [0, 4096]])
        >>> short = rs.plan(rs.PackedLayout([0, 13, 600]), cp_size=2)
        >>> short.cost().blocks.tolist(), round(short.cost().fill, 2)  # 16,384 pairs a block
        ([[13, 7], [7, 7]], 0.31)
        >>> timed = short.cost(model="h200")
        >>> timed.forward.total_us == short.timeline("h200").total_us
        True
        """
        if model is not None:
            model = as_model(model)
            shape = _timing.shape_of(self.comm, _timing.group_of(self), head_dim, head_dim_v, dtype)
            model.kernel(shape.head_dim, dtype, shape.head_dim_v)
        cost = super().cost(
            head_dim=head_dim,
            head_dim_v=head_dim_v,
            bytes_per_element=bytes_per_element,
            block_size=block_size,
            keep_kv=keep_kv,
        )
        return cost if model is None else _timing.timed(cost, model, shape, bytes_per_element)

    def timeline(
        self,
        model: Any = "h200",
        *,
        direction: Literal["forward", "backward"] = "forward",
        head_dim: int = 128,
        head_dim_v: int | None = None,
        dtype: str = "bfloat16",
    ) -> Timeline:
        """When each rank would work, exchange and wait in one pass, by a model of a machine.

        The operands of a step leave when they have arrived at the sender, both links are free and
        the receiver has room, which it has for one step ahead. Tiles begin when their operands are
        there and the tiles before have ended. Gradients leave behind the tiles they come from.

        Args:
            model: a TimeModel, the name of a preset, a path, or a dict as of its JSON. "measured"
                runs the plan on this machine's processor instead, in float64 on random arrays, all
                ranks in this process, a thread each; merges, copies and sums count as work.
            direction: of the pass.
            head_dim: of q and k.
            head_dim_v: of v; default head_dim.
            dtype: of q, k, v and out.

        Raises:
            ValueError: no such model, direction or dtype.
            Unsupported: a model that lacks the dtype, the head size or the exchange.

        >>> import ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 65536]), cp_size=4, num_heads=16)
        >>> timeline = plan.timeline("h200")
        >>> [(e.kind, e.step, e.owners) for e in timeline.events if e.rank == 1][:3]
        [('work', 0, (1,)), ('exchange', 1, (0,)), ('work', 1, (0,))]
        >>> timeline.total_us < plan.timeline("h200", direction="backward").total_us
        True
        """
        return _timing.timeline(self, model, direction, head_dim, head_dim_v, dtype)

    @overload
    def attention(
        self,
        q: npt.NDArray[Any] | Sequence[Any],
        k: npt.NDArray[Any] | Sequence[Any],
        v: npt.NDArray[Any] | Sequence[Any],
        *,
        options: Options | None = ...,
        qkv_format: QkvFormat = ...,
        return_max_logit: Literal[False] = ...,
        backend: str = ...,
        **keywords: Unpack[OptionKeywords],
    ) -> tuple[Float64, Float64]: ...
    @overload
    def attention(
        self,
        q: npt.NDArray[Any] | Sequence[Any],
        k: npt.NDArray[Any] | Sequence[Any],
        v: npt.NDArray[Any] | Sequence[Any],
        *,
        options: Options | None = ...,
        qkv_format: QkvFormat = ...,
        return_max_logit: Literal[True],
        backend: str = ...,
        **keywords: Unpack[OptionKeywords],
    ) -> tuple[Float64, Float64, Float64]: ...
    @overload
    def attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        *,
        options: Options | None = ...,
        qkv_format: QkvFormat = ...,
        return_max_logit: Literal[False] = ...,
        backend: str = ...,
        **keywords: Unpack[OptionKeywords],
    ) -> tuple[Array, Array]: ...
    @overload
    def attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        *,
        options: Options | None = ...,
        qkv_format: QkvFormat = ...,
        return_max_logit: Literal[True],
        backend: str = ...,
        **keywords: Unpack[OptionKeywords],
    ) -> tuple[Array, Array, Array]: ...
    @answers_in_kind("q", STATISTIC)
    @takes_options
    def attention(
        self,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        v: npt.ArrayLike,
        *,
        options: Options | None = None,
        qkv_format: QkvFormat = "thd",
        return_max_logit: bool = False,
        backend: str = "reference",
        **keywords: Unpack[OptionKeywords],
    ) -> Any:
        """Runs every rank of the plan in this process, global arrays in and out.

        Args:
            q: [rows_q, num_heads, head_dim_qk] float16, float32 or float64.
            k: [rows_k, num_kv_heads, head_dim_qk].
            v: [rows_k, num_kv_heads, head_dim_v].
            backend: "reference" (CPU, float64), or "cuda" (one GPU, every rank virtual): torch,
                CuPy or JAX arrays on the device, float32, float16 or bfloat16; the result is the
                same kind of array, out in q's dtype, on the current stream. Other objects with
                __dlpack__ or __cuda_array_interface__ are taken as they are too, and give torch or
                CuPy arrays, whichever is loaded, or else installed.
            The rest as for ringside.attention. A sink enters once, after all steps are merged;
            dropout drops the same weights whatever the partition. An infinity or NaN reaches the
            rows that see it and no others, with either backend.

        Returns:
            (out, lse), or (out, lse, max_logit) with return_max_logit, as ringside.attention.

        Raises:
            ValueError, TypeError: arrays that do not fit the plan.
            Unsupported: a backend that this build does not have.

        >>> import numpy as np, ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 2]), cp_size=2)
        >>> q = k = np.zeros((2, 1, 4)); v = np.array([[[1.0]], [[3.0]]])
        >>> plan.attention(q, k, v)[0].ravel().tolist()
        [1.0, 2.0]
        """
        options = options_of(Plan.attention, options, keywords)
        check_format(qkv_format)
        named, batch = {"q": q, "k": k, "v": v}, self.layout_q.num_sequences
        asked = arguments.boolean(return_max_logit, "return_max_logit")
        if arguments.text(backend, "backend") == "cuda":
            return _calls.attention(
                self, named, options, qkv_format, batch=batch, return_max_logit=asked
            )
        thd = [to_thd(x, name, qkv_format) for name, x in named.items()]
        found = super().attention(*thd, to_core(options, self._dropout_origin), backend)
        return results(asked_for(found, asked), qkv_format, batch)

    @answers_in_kind("q", "k", "v", STATISTIC)
    @takes_options
    def attention_backward(
        self,
        dout: npt.ArrayLike,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        v: npt.ArrayLike,
        out: npt.ArrayLike,
        lse: npt.ArrayLike,
        *,
        options: Options | None = None,
        qkv_format: QkvFormat = "thd",
        deterministic: bool = False,
        backend: str = "reference",
        **keywords: Unpack[OptionKeywords],
    ) -> tuple[npt.NDArray[np.float64], ...]:
        """Gradients of sum(dout * out): the transposed plan, steps reversed, exchanges transposed.

        Args:
            dout: shaped like out.
            out, lse: what attention() returned for the same arguments.
            options, keywords: those of attention().
            deterministic: bit-equal results from run to run. The reference and the float32
                kernels always are; on tensor cores it costs a second pass over the scores.
            The rest as for attention().

        Returns:
            (dq, dk, dv), and dsink [num_heads] where there is a sink; float64, shaped like q, k, v;
            exactly 0 in padding.

        >>> import numpy as np, ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 2]), cp_size=2)
        >>> q = k = np.zeros((2, 1, 4)); v = np.array([[[1.0]], [[3.0]]])
        >>> out, lse = plan.attention(q, k, v)
        >>> plan.attention_backward(np.ones_like(out), q, k, v, out, lse)[2].ravel().tolist()
        [1.5, 0.5]
        """
        options = options_of(Plan.attention_backward, options, keywords)
        check_format(qkv_format)
        named = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
        batch = self.layout_q.num_sequences
        deterministic = arguments.boolean(deterministic, "deterministic")
        if arguments.text(backend, "backend") == "cuda":
            return _calls.attention_backward(
                self, named, options, qkv_format, batch=batch, deterministic=deterministic
            )
        del named["lse"]
        thd = [to_thd(x, name, qkv_format) for name, x in named.items()]
        thd.append(lse_to_thd(lse, qkv_format))
        core = to_core(options, self._dropout_origin)
        found = super().attention_backward(*thd, core, backend)
        return gradients(asked_for(found, options.sink is not None), qkv_format, batch)

    prepare = _rank_calls.prepare
    attention_rank = _rank_calls.attention_rank
    attention_backward_rank = _rank_calls.attention_backward_rank

    @answers_in_kind("buffers")
    def exchange(
        self, step: int, operand: Literal["q", "kv"], buffers: Sequence[npt.ArrayLike]
    ) -> list[npt.NDArray[np.float64]]:
        """Moves every rank's buffer [rows, heads, dim] as the exchange before a step does.

        Args:
            step: which exchange.
            operand: "q" or "kv".
            buffers: what each rank holds before the step.

        Returns:
            What each rank holds in the step; rows that nobody sent are NaN.

        >>> import numpy as np, ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 2]), mask=rs.Mask.full(), cp_size=2)
        >>> moved = plan.exchange(1, "kv", [np.full((1, 1, 1), 5.0), np.full((1, 1, 1), 6.0)])
        >>> [x.item() for x in moved]
        [6.0, 5.0]
        """
        return super().exchange(step, operand, buffers)

    @answers_in_kind("buffers")
    def exchange_transposed(
        self, step: int, operand: Literal["q", "kv"], buffers: Sequence[npt.ArrayLike]
    ) -> list[npt.NDArray[np.float64]]:
        """The transpose of exchange: every block goes back where it came from and is added there.

        >>> import numpy as np, ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 2]), cp_size=2, comm="all_gather")
        >>> back = plan.exchange_transposed(0, "kv", [np.ones((2, 1, 1)), np.ones((2, 1, 1))])
        >>> [x.item() for x in back]
        [2.0, 2.0]
        """
        return super().exchange_transposed(step, operand, buffers)

    def explain(self, *, short: bool = False) -> str:
        """The plan in words: what it does and why it costs what it does, then each rank's steps.

        Args:
            short: the sentences alone, without the numbers of each rank.

        >>> import ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
        >>> print(plan.explain().splitlines()[0])
        zigzag over p2p, 2 ranks: 1 sequence, 4 tokens in 4 rows
        >>> plan.explain(short=True).split(".")[1]
        ' p2p: K/V travel round a ring'
        """
        return _explain.explain(self, short=arguments.boolean(short, "short"))

    def diff(self, other: _core.Plan) -> list[str]:
        """What this plan does that another does not, or the other way round, a line each.

        Layouts, mask, heads and names first; then, where both have as many ranks, what each rank
        owns, receives, sends, holds and computes in each step: the first three of a kind, and how
        many more there are. No line, no difference.

        >>> import ringside as rs
        >>> layout = rs.PackedLayout([0, 4])
        >>> zigzag = rs.plan(layout, cp_size=2)
        >>> for line in zigzag.diff(rs.plan(layout, cp_size=2, comm="all_gather"))[:2]:
        ...     print(line)
        comm is p2p; the other's is all_gather
        rank 0 has 2 steps; the other's has 1
        >>> len(zigzag.diff(rs.plan(layout, cp_size=2, partition="contiguous"))) > 3
        True
        >>> zigzag.diff(rs.plan(layout, cp_size=2))
        []
        """
        if not isinstance(other, _core.Plan):
            raise TypeError(f"other is a {type(other).__name__}; expected a Plan")
        return _diff.differences(self, other)

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

    def who(self, row: int, key: int) -> _questions.Who:
        """Who computes a pair, when and from which rows; or why nobody does.

        Args:
            row: of the pack's queries, 0 to num_rows_q - 1.
            key: row of the pack's keys.

        Raises:
            InvalidArgument: no such row.

        >>> import ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
        >>> print(plan.who(5, 1))
        Row 5 with key 1: rank 1 in step 1, tile 0, from rows 3 and 1.
        >>> print(plan.who(1, 5))
        Nobody computes row 1 with key 5: position 1 of document 0 sees keys 0 to 1, not 5.
        """
        return _questions.who(self, row, key)

    def story(
        self, row: int, q: Any = None, k: Any = None, *, head: int = 0
    ) -> list[_questions.Part]:
        """How the answer of a row comes together, step by step.

        Args:
            row: of the pack's queries.
            q: [rows, num_heads, dim] of the pack; default: all keys weigh alike.
            k: [rows, num_kv_heads, dim] likewise; scores are q . k / sqrt(dim).
            head: query head.

        Returns:
            What each step adds: who, whose keys, how many, their lse and share. Nothing for padding
            and for a row that sees nothing.

        Raises:
            InvalidArgument: no such row or head, arrays of other shapes, or one of the two.

        >>> import ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2)
        >>> [(part.step, part.owners, part.keys, round(part.share, 3)) for part in plan.story(7)]
        [(0, (0,), 4, 0.5), (1, (1,), 4, 0.5)]
        """
        return _questions.story(self, row, q, k, head)

    draw = _pictures.draw
    draw_mask = _pictures.draw_mask
    draw_shards = _pictures.draw_shards
    draw_timeline = _pictures.draw_timeline
    draw_work = _pictures.draw_work
    draw_heads = _pictures.draw_heads
    draw_ranks = _pictures.draw_ranks
    draw_story = _pictures.draw_story

    def show(self, *, compare: Plan | None = None) -> Page:
        """An interactive page: mask, ranks, what they hold, work and traffic, step by step.

        A notebook shows it; save() writes one file that needs nothing else. The plan is verified
        first; one that is refused opens at its fault. Of plans of more than 100,000 tiles it holds
        all counts, and the tiles of one document.

        Args:
            compare: another plan, beside this one in the same step.

        Returns:
            The page.

        >>> import ringside as rs
        >>> layout = rs.PackedLayout([0, 8, 20])
        >>> ring = rs.plan(layout, cp_size=2)
        >>> page = ring.show(compare=rs.plan(layout, cp_size=2, comm="all_gather"))
        >>> len(page.html) < 100_000
        True
        """
        if compare is not None and not isinstance(compare, Plan):
            raise TypeError(
                f"compare is a {type(compare).__name__}; expected a Plan, or None for one alone"
            )
        return _show.show(self, compare)

    def to_json(self) -> str:
        """The whole plan as JSON: layouts, mask, and its tables with named columns.

        >>> import ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
        >>> rs.Plan.from_json(plan.to_json()) == plan
        True
        """
        return _plan_json.to_json(self)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Reads what to_json wrote, or what you wrote yourself, and proves it.

        Raises:
            ValueError: not such JSON; the message names what is missing or off.
            PlanError: a plan that verify() refuses.
        """
        return cls._make(**_plan_json.arguments(text))

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
        return _plan_pickle.reduced(self)

    __hash__ = None  # type: ignore[assignment]
