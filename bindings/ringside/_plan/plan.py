"""The Plan a user holds: the C++ plan with its documentation, pictures and files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ringside import _core
from ringside._arrays import cuda as _cuda
from ringside._arrays import kinds as _cuda_kinds
from ringside._attention.definition import Options, gradients, results
from ringside._attention.formats import QkvFormat, check_format, lse_to_thd, to_thd
from ringside._core import arguments
from ringside._plan import explain as _explain
from ringside._plan import json_format as _plan_json
from ringside._plan import pickling as _plan_pickle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Side = Literal["q", "k"]


class Plan(_core.Plan):
    """Who computes what, when, from which rows: plain data that every backend interprets.

    Args:
        layout_q: where the sequences of q lie.
        layout_k: those of k and v, as many sequences; default layout_q.
        mask: which keys a query sees inside its sequence.
        cp_size: number of ranks.
        partition: who owns which rows, a name of ringside.PARTITIONS, or your own: one list of
            Segment for every rank, that together own each row (padding too) exactly once.
        partition_k: your own segments of k and v, where layout_k differs from layout_q.
        comm: which rows are resident when, a name of ringside.COMMS.
        a2a_size: for comm="a2a+p2p": how many neighbouring ranks trade rows for heads; a divisor
            of cp_size.
        num_heads: query heads. They matter to plans that split heads (a2a), and to attention().
        num_kv_heads: kv heads, a divisor of num_heads; default num_heads.

    No length has to be divisible by anything; ranks may own nothing.

    Raises:
        ValueError: arguments that do not fit, unknown names (the known ones are listed), segments
            that own a row twice or not at all.

    Sources: ring, Liu et al., arXiv:2310.01889; dual chunks, Transformer Engine's context
    parallelism; stripes, Brandon et al., arXiv:2311.09431; all-to-all, Jacobs et al. (Ulysses),
    arXiv:2309.14509; a2a+p2p, Fang and Zhao (USP), arXiv:2405.07719.

    >>> import ringside as rs
    >>> layout = rs.PackedLayout([0, 5, 12], [0, 8, 16])
    >>> plan = rs.plan(layout, cp_size=2, partition="zigzag", comm="p2p")
    >>> for segment in plan.shards_q(0):
    ...     print(segment)
    Segment(seq=0, pos=0, len=2, stride=1, row=0)
    Segment(seq=0, pos=6, len=2, stride=1, row=2)
    Segment(seq=1, pos=0, len=2, stride=1, row=4)
    Segment(seq=1, pos=6, len=2, stride=1, row=6)
    >>> [len(step.tiles) for step in plan.steps(1)]
    [2, 2]
    """

    __slots__ = ("_cuda_programs", "_dropout_origin")

    @property
    def _programs(self) -> dict[Any, Any]:
        """What was uploaded to a device for this plan (ringside/_arrays/cuda.py)."""
        if not hasattr(self, "_cuda_programs"):
            self._cuda_programs: dict[Any, Any] = {}
        return self._cuda_programs

    @property
    def _source(self) -> Plan:
        return self

    def _prepare(self, program: Any, library: Any, device: int) -> None:
        """Nothing more than its tables, which the program has."""

    @property
    def num_rows_q(self) -> int:
        """Rows of q, out and dq."""
        return self.layout_q.num_rows

    def shard(self, x: npt.ArrayLike, rank: int, *, side: Side = "q") -> npt.NDArray[Any]:
        """The rows of x [rows, ...] that a rank owns, in its order: tokens, labels, q, anything.

        >>> import numpy as np, ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
        >>> plan.shard(np.array([10, 11, 12, 13]), rank=0).tolist()
        [10, 13]
        """
        return super().shard(x, rank, side=side)

    def unshard(self, parts: Sequence[npt.ArrayLike], *, side: Side = "q") -> npt.NDArray[Any]:
        """The global array from every rank's part; the inverse of shard.

        >>> import numpy as np, ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
        >>> plan.unshard([np.array([10, 13]), np.array([11, 12])]).tolist()
        [10, 11, 12, 13]
        """
        return super().unshard(parts, side=side)

    def roll(self, x: npt.ArrayLike, shift: int = -1, *, fill_value: Any = 0) -> npt.NDArray[Any]:
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

    def cost(
        self, *, head_dim: int = 128, head_dim_v: int | None = None, bytes_per_element: int = 2
    ) -> _core.PlanCost:
        """Counts both passes: visible pairs, bytes moved, rows and memory, per rank and step.

        Args:
            head_dim: of q and k.
            head_dim_v: of v; default head_dim.
            bytes_per_element: of q, k, v and out; 2 for bfloat16. lse counts 4.

        >>> import ringside as rs
        >>> plan = rs.plan(rs.PackedLayout([0, 8]), cp_size=2, partition="contiguous")
        >>> plan.cost().pairs.sum(axis=1).tolist(), round(plan.cost().imbalance, 3)
        ([10, 26], 1.444)
        >>> plan.cost().backward_bytes_sent.tolist()  # keys there, float32 gradients back
        [[0, 2048], [0, 4096]]
        """
        return super().cost(
            head_dim=head_dim, head_dim_v=head_dim_v, bytes_per_element=bytes_per_element
        )

    def attention(
        self,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        v: npt.ArrayLike,
        *,
        softmax_scale: float | None = None,
        softcap: float = 0.0,
        sink: npt.ArrayLike | None = None,
        alibi_slopes: npt.ArrayLike | None = None,
        bias: None = None,
        dropout_p: float = 0.0,
        dropout_seed: int = 0,
        qkv_format: QkvFormat = "thd",
        return_max_logit: bool = False,
        backend: str = "reference",
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
            dropout drops the same weights whatever the partition. With "cuda", an infinity or NaN
            in a value that a row does not see may still reach it, as 0 times infinity.

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
        check_format(qkv_format)
        options = Options(
            softmax_scale=softmax_scale,
            softcap=softcap,
            sink=sink,
            alibi_slopes=alibi_slopes,
            bias=bias,
            dropout_p=dropout_p,
            dropout_seed=dropout_seed,
            dropout_origin=getattr(self, "_dropout_origin", (0, 0)),
        )
        named = {"q": q, "k": k, "v": v}
        with_max_logit = arguments.boolean(return_max_logit, "return_max_logit")
        if arguments.text(backend, "backend") == "cuda":
            kind, named, options = _cuda_kinds.taken(named, options)
            thd = [to_thd(x, name, qkv_format) for name, x in named.items()]
            found = _cuda.attention(self, *thd, options, return_max_logit=with_max_logit)
            out, lse, *more = (kind.give(x) for x in found)
            return results(out, lse, more[0] if more else None, qkv_format, self.layout_q)
        thd = [to_thd(x, name, qkv_format) for name, x in named.items()]
        out, lse, max_logit = super().attention(*thd, options.to_core(), backend)
        max_logit = max_logit if with_max_logit else None
        return results(out, lse, max_logit, qkv_format, self.layout_q)

    def attention_backward(
        self,
        dout: npt.ArrayLike,
        q: npt.ArrayLike,
        k: npt.ArrayLike,
        v: npt.ArrayLike,
        out: npt.ArrayLike,
        lse: npt.ArrayLike,
        *,
        softmax_scale: float | None = None,
        softcap: float = 0.0,
        sink: npt.ArrayLike | None = None,
        alibi_slopes: npt.ArrayLike | None = None,
        bias: None = None,
        dropout_p: float = 0.0,
        dropout_seed: int = 0,
        qkv_format: QkvFormat = "thd",
        deterministic: bool = False,
        backend: str = "reference",
    ) -> tuple[npt.NDArray[np.float64], ...]:
        """Gradients of sum(dout * out): the transposed plan, steps reversed, exchanges transposed.

        Args:
            dout: shaped like out.
            out, lse: what attention() returned for the same arguments.
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
        check_format(qkv_format)
        options = Options(
            softmax_scale=softmax_scale,
            softcap=softcap,
            sink=sink,
            alibi_slopes=alibi_slopes,
            bias=bias,
            dropout_p=dropout_p,
            dropout_seed=dropout_seed,
            dropout_origin=getattr(self, "_dropout_origin", (0, 0)),
        )
        named = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse}
        deterministic = arguments.boolean(deterministic, "deterministic")
        if arguments.text(backend, "backend") == "cuda":
            kind, named, options = _cuda_kinds.taken(named, options)
        lse = named.pop("lse")
        thd = {name: to_thd(x, name, qkv_format) for name, x in named.items()}
        lse = lse_to_thd(lse, qkv_format)
        if backend == "cuda":
            found = _cuda.attention_backward(
                self, {**thd, "lse": lse}, options, deterministic=deterministic
            )
            grads = tuple(None if x is None else kind.give(x) for x in found)
        else:
            grads = super().attention_backward(*thd.values(), lse, options.to_core(), backend)
        return gradients(grads, sink is not None, qkv_format, self.layout_q.num_sequences)

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

    def explain(self) -> str:
        """The plan in words: who owns what, what each step moves and computes.

        >>> import ringside as rs
        >>> print(rs.plan(rs.PackedLayout([0, 4]), cp_size=2).explain().splitlines()[0])
        zigzag over p2p, 2 ranks: 1 sequence, 4 tokens in 4 rows
        """
        return _explain.explain(self)

    def draw(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """A picture: a panel a rank, rows are query rows, columns key rows, colour the step.

        Documents are boxed, padding is grey. Up to 2,048 rows each pair is drawn; larger packs are
        averaged into pixels. At most 16 ranks are shown.

        Args:
            path: where to save it (png, pdf, svg); default nowhere.

        Returns:
            The matplotlib figure.

        >>> import ringside as rs
        >>> figure = rs.plan(rs.PackedLayout([0, 4]), cp_size=2).draw()
        >>> len(figure.axes) >= 2
        True
        """
        if path is not None and not isinstance(path, str | os.PathLike):
            raise TypeError(f"path is a {type(path).__name__}; expected a path, or None for none")
        from ringside._plan.draw import draw

        return draw(self, path)

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
        return cls(**_plan_json.arguments(text))

    def __repr__(self) -> str:
        """A summary; to_json() holds everything."""
        return (
            f"<Plan {self.partition} over {self.comm}, cp_size={self.cp_size}, "
            f"steps={self.num_steps}, rows={self.layout_q.num_rows}, {self.mask}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy: the same plan, not a device's programs for it."""
        return _plan_pickle.reduced(self)

    __hash__ = None  # type: ignore[assignment]


plan = Plan
