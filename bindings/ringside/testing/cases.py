"""A case: one attention problem, one plan for it, and the arrays to run it with."""

from __future__ import annotations

import dataclasses
from numbers import Integral
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

import ringside as rs
from ringside._attention.options import DEFAULTS
from ringside._core import arguments
from ringside._plan.names import Comm
from ringside._rows import valid_rows
from ringside.testing._judging import errors
from ringside.testing.dtypes import float_of, round_to

__all__ = ["Arrays", "Case", "Results", "normal_rows"]


Array = npt.NDArray[np.float64]


def normal_rows(rng: np.random.Generator, layout: rs.PackedLayout, heads: int, dim: int) -> Array:
    """[rows, heads, dim] standard normal; NaN in all padding rows: whoever reads it, shows it."""
    x = np.full((layout.num_rows, heads, dim), np.nan)
    valid = valid_rows(layout)
    x[valid] = rng.normal(size=(int(valid.sum()), heads, dim))
    return x


class Arrays(NamedTuple):
    """The inputs of a case, float64, NaN in all padding rows."""

    q: Array
    """[rows_q, num_heads, head_dim]"""
    k: Array
    """[rows_k, num_kv_heads, head_dim]"""
    v: Array
    """[rows_k, num_kv_heads, head_dim_v]"""
    dout: Array
    """[rows_q, num_heads, head_dim_v], the gradient of out"""


class Results(NamedTuple):
    """What attention and its backward pass return."""

    out: Array
    lse: Array
    dq: Array
    dk: Array
    dv: Array
    dsink: Array = np.zeros(0)
    """[num_heads], empty without a sink"""


@dataclasses.dataclass(frozen=True, repr=False)
class Case:
    """One attention problem, one plan for it, and the seed of its arrays.

    Its repr is a constructor call that leaves defaults out: paste it to have the case again.

    Args:
        layout_q: where the sequences of q lie.
        layout_k: those of k and v; None for layout_q.
        mask, cp_size, partition, partition_k, comm, a2a_size, stages, num_heads, num_kv_heads: as
            for ringside.plan. With segments as partition, cp_size is the number of their lists.
        head_dim: of q and k.
        head_dim_v: of v and out.
        softmax_scale: None for 1/sqrt(head_dim).
        dtype: "float64", "float32", "float16", "bfloat16": what the arrays' values are rounded to.
        softcap, sink, alibi_slopes, dropout_p, dropout_seed: as for ringside.attention.
        seed: of the random arrays.

    Raises:
        ValueError: a dtype that has no such name, heads that are no multiple of num_kv_heads, sizes
            below 1, options that ringside.attention refuses.
        TypeError: layouts or a mask that are none.

    >>> import ringside as rs
    >>> case = Case(rs.PackedLayout([0, 3], [0, 4]), cp_size=2, comm="all_gather")
    >>> case
    Case(PackedLayout(cu_seqlens=[0, 3], cu_seqlens_padded=[0, 4]), cp_size=2, comm="all_gather")
    >>> case.plan().verify().pairs
    6
    >>> case.arrays().q.shape
    (4, 1, 4)
    """

    layout_q: rs.PackedLayout
    layout_k: rs.PackedLayout | None = None
    mask: rs.Mask = rs.Mask.causal()  # noqa: RUF009  a mask cannot be changed
    cp_size: int = 1
    partition: str | list[list[rs.Segment]] = "zigzag"
    partition_k: list[list[rs.Segment]] | None = None
    comm: str = "p2p"
    a2a_size: int | None = None
    stages: int | None = None
    num_heads: int = 1
    num_kv_heads: int = 1
    head_dim: int = 4
    head_dim_v: int = 4
    softmax_scale: float | None = None
    dtype: str = "float64"
    softcap: float = 0.0
    sink: float | tuple[float, ...] | None = None
    alibi_slopes: float | tuple[float, ...] | None = None
    dropout_p: float = 0.0
    dropout_seed: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses what no array could be drawn for."""
        arguments.layout(self.layout_q, "layout_q")
        if self.layout_k is not None:
            arguments.layout(self.layout_k, "layout_k")
        float_of(self.dtype)
        for name in ("num_heads", "num_kv_heads", "head_dim", "head_dim_v"):
            if arguments.int32(getattr(self, name), name) < 1:
                raise ValueError(
                    f"{name}={getattr(self, name)}; expected 1 or more. Leave it out, or pass 1"
                )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads={self.num_heads} with num_kv_heads={self.num_kv_heads}; expected a "
                f"multiple: as many query heads share each. Pass num_kv_heads={self.num_heads}, or "
                f"num_heads={self.num_kv_heads * (self.num_heads // self.num_kv_heads + 1)}"
            )
        self._require_what_attention_takes()
        self._require_what_plan_takes()

    def _require_what_attention_takes(self) -> None:
        """Without a token: the same words as those of a call, before a function is blamed."""
        empty = (rs.PackedLayout([0] * (x.num_sequences + 1)) for x in (self.layout_q, self.keys))
        q = np.zeros((0, self.num_heads, self.head_dim))
        k, v = (np.zeros((0, self.num_kv_heads, n)) for n in (self.head_dim, self.head_dim_v))
        rs.attention(q, k, v, *empty, mask=self.mask, **self.options)

    def _require_what_plan_takes(self) -> None:
        """The settings that any layout and any heads go with."""
        partition = self.partition if isinstance(self.partition, str) else "zigzag"
        comm = "p2p" if self.comm in get_args(Comm) else self.comm
        rs.plan(rs.PackedLayout([0, 0]), cp_size=self.cp_size, partition=partition, comm=comm)
        if not isinstance(self.seed, Integral) or self.seed < 0:
            raise ValueError(
                f"seed={self.seed!r}; expected an integer, 0 or more. Leave it out, or pass 0"
            )

    @property
    def keys(self) -> rs.PackedLayout:
        """The layout of k and v."""
        return self.layout_q if self.layout_k is None else self.layout_k

    @property
    def scale(self) -> float:
        """softmax_scale with its default filled in."""
        return self.head_dim**-0.5 if self.softmax_scale is None else self.softmax_scale

    @property
    def options(self) -> dict[str, Any]:
        """Keywords for ringside.attention: softmax_scale, and what differs from its default."""
        given = {name: getattr(self, name) for name in DEFAULTS if name != "bias"}
        changed = {name: x for name, x in given.items() if x != DEFAULTS[name]}
        return {"softmax_scale": self.softmax_scale, **changed}

    def replace(self, **changes: object) -> Case:
        """This case with other settings."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def plan(self) -> rs.Plan:
        """The plan of the case."""
        return rs.plan(
            self.layout_q,
            self.layout_k,
            mask=self.mask,
            cp_size=self.cp_size,
            partition=self.partition,
            partition_k=self.partition_k,
            comm=self.comm,
            a2a_size=self.a2a_size,
            stages=self.stages,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
        )

    def arrays(self) -> Arrays:
        """Random normal values of the dtype in the valid rows, NaN in all padding rows."""
        rng = np.random.default_rng(self.seed)

        def normal(layout: rs.PackedLayout, heads: int, dim: int) -> Array:
            return round_to(normal_rows(rng, layout, heads, dim), self.dtype)

        return Arrays(
            normal(self.layout_q, self.num_heads, self.head_dim),
            normal(self.keys, self.num_kv_heads, self.head_dim),
            normal(self.keys, self.num_kv_heads, self.head_dim_v),
            normal(self.layout_q, self.num_heads, self.head_dim_v),
        )

    def by_definition(self, arrays: Arrays | None = None, *, gradients: bool = True) -> Results:
        """Forward and backward with ringside.attention, the dense definition.

        Args:
            arrays: default arrays().
            gradients: False for out and lse alone, which takes a third of the time; the gradients
                are empty arrays then.
        """
        q, k, v, dout = arrays or self.arrays()
        settings = {"mask": self.mask, **self.options}
        layouts = (self.layout_q, self.layout_k)
        out, lse = rs.attention(q, k, v, *layouts, **settings)
        if not gradients:
            return Results(out, lse, *[np.zeros(0)] * 3)
        gradients = rs.attention_backward(dout, q, k, v, out, lse, *layouts, **settings)
        return Results(out, lse, *gradients)

    def by_plan(self, arrays: Arrays | None = None) -> Results:
        """Forward and backward by the plan, all ranks in this process."""
        q, k, v, dout = arrays or self.arrays()
        plan = self.plan()
        out, lse = plan.attention(q, k, v, **self.options)
        gradients = plan.attention_backward(dout, q, k, v, out, lse, **self.options)
        return Results(out, lse, *gradients)

    def largest_error(self) -> float:
        """The largest difference between by_plan and by_definition; infinite for a stray NaN."""
        largest = 0.0
        for ours, truth in zip(self.by_plan(), self.by_definition(), strict=True):
            largest = max(largest, float(errors(ours, truth).max(initial=0.0)))
        return largest

    def script(self) -> str:
        """A Python script that repeats the case, to paste."""
        return (
            "from ringside import Mask, PackedLayout, Segment\n"
            "from ringside.testing import Case\n"
            f"case = {self!r}\n"
            "print(case.plan().verify())\n"
            "print(case.largest_error())"
        )

    def __repr__(self) -> str:
        """The constructor call, defaults left out."""
        said = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING:
                said.append(repr(value))
            elif value != field.default:
                text = f'"{value}"' if isinstance(value, str) else repr(value)
                said.append(f"{field.name}={text}")
        return f"Case({', '.join(said)})"
