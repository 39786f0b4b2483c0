"""Eight faults of context-parallel attention that raised no error when they were met.

Each is a ring in NumPy with one rule wrong, and the rule as it should be stands beside it. They are
models of what was reported, at the smallest size; no code of the libraries named is in them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ringside._core import Mask, PackedLayout
from ringside.learn.faults import rules as rule
from ringside.learn.faults.ring import Array, Passes, both_passes
from ringside.learn.faults.rules import Rules

__all__ = ["SILENT_FAULTS", "RingModel", "SilentFault"]


class RingModel(NamedTuple):
    """A context-parallel attention of all ranks, forward and backward: call it.

    Attributes:
        rules: of the ring.
        ranks: how many.

    >>> import numpy as np, ringside as rs
    >>> from ringside import learn
    >>> model = learn.SILENT_FAULTS[0].cured
    >>> x = np.random.default_rng(0).normal(size=(4, 6, 1, 2))  # q, k, v and dout
    >>> layout = rs.PackedLayout.from_lengths([4, 2])
    >>> out, dq, dk, dv = model(*x, layout, rs.Mask.causal())
    >>> bool(np.allclose(out, rs.attention(*x[:3], layout)[0]))
    True
    """

    rules: Rules
    ranks: int

    def __call__(
        self, q: Array, k: Array, v: Array, dout: Array, layout: PackedLayout, mask: Mask
    ) -> Passes:
        """(out, dq, dk, dv) of packed self-attention, shaped like q, q, k and v.

        Args:
            q, dout: [rows, num_heads, head_dim].
            k, v: [rows, num_kv_heads, head_dim].
            layout: where the documents lie.
            mask: who sees whom, aligned top-left.
        """
        with np.errstate(invalid="ignore"):  # NaN in padding is the point
            return both_passes(self.rules, self.ranks, (q, k, v, dout), layout, mask)


@dataclass(frozen=True)
class SilentFault:
    """A rule of the ring that is wrong, and its cure.

    Attributes:
        name: of the fault.
        story: what goes wrong, and what kept it unseen.
        source: where it was met, in public.
        field: of Rules.
        wrong, right: the rule as it was, and as it should be.

    >>> from ringside import learn
    >>> print(learn.SILENT_FAULTS[4].beside)
    def kv_head_dealt(head: int, num_heads: int, num_kv_heads: int) -> int:
        return head % num_kv_heads
    <BLANKLINE>
    def kv_head_of_group(head: int, num_heads: int, num_kv_heads: int) -> int:
        return head // (num_heads // num_kv_heads)
    """

    name: str
    story: str
    source: str
    field: str
    wrong: Callable[..., Any]
    right: Callable[..., Any]

    def model(self, cured: bool, ranks: int = 2) -> RingModel:
        """The ring with this rule wrong, or right.

        >>> from ringside import learn
        >>> learn.SILENT_FAULTS[0].model(cured=True, ranks=3).ranks
        3
        """
        return RingModel(Rules(**{self.field: self.right if cured else self.wrong}), ranks)

    @property
    def faulty(self) -> RingModel:
        """The ring of two ranks with this rule wrong."""
        return self.model(cured=False)

    @property
    def cured(self) -> RingModel:
        """The ring of two ranks with this rule right."""
        return self.model(cured=True)

    @property
    def beside(self) -> str:
        """The code of the wrong rule, then of the right one, without their docstrings."""
        return "\n\n".join(_code(function) for function in (self.wrong, self.right))

    def __repr__(self) -> str:
        """Its name."""
        return self.name


def _code(function: Callable[..., Any]) -> str:
    """The lines of a function without its docstring, which has one line."""
    lines = inspect.getsource(function).rstrip().splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith('"""'))


SILENT_FAULTS = (
    SilentFault(
        "dropped tokens",
        "Each rank takes length // (2 * ranks) tokens of a chunk. What the division leaves over "
        "belongs to nobody. Lengths that divide, which most tests have, lose nothing.",
        "TransformerEngine issues 1929 and 1930, Megatron-LM issue 1669",
        "chunk_rows",
        rule.chunk_of_rounded_lengths,
        rule.chunk_of_all_rows,
    ),
    SilentFault(
        "misplaced window",
        "window_size is handed on to the kernel of each step, which counts from the first row of "
        "its buffer. Without a window, and on one rank, nothing is wrong.",
        "ring-flash-attention issue 35; data/peers has a script that shows it",
        "places",
        rule.places_in_shard,
        rule.places_in_document,
    ),
    SilentFault(
        "garbage in padding",
        "Hidden keys get weight 0, and 0 times what lies in their rows is added. Where that is "
        "NaN, so is the sum. Fresh memory is often zero, and tests fill padding with zeros.",
        "flash-attention issue 1745, cudnn-frontend issue 624",
        "values",
        rule.values_as_they_are,
        rule.values_of_tokens,
    ),
    SilentFault(
        "chunk size ignored",
        "Attention chunks are cut in the branch for packs without padding; the other one takes the "
        "argument and does not look at it.",
        "TransformerEngine pull request 1887 (closed)",
        "chunk_size",
        rule.chunk_size_of_full_rows,
        rule.chunk_size_of_mask,
    ),
    SilentFault(
        "kv heads dealt",
        "The kv heads are tiled, 0 1 0 1, where groups of query heads share one, 0 0 1 1. With one "
        "kv head, or as many as query heads, the two are the same.",
        "onnx pull request 7274, jax-js pull request 180",
        "kv_head",
        rule.kv_head_dealt,
        rule.kv_head_of_group,
    ),
    SilentFault(
        "out of the step",
        "Backward subtracts dout * out from each row's gradient, with the out of the step at hand "
        "and not of all steps. The forward pass is right to the last bit, and so is dv.",
        "tt-metal issue 53205",
        "out",
        rule.out_of_step,
        rule.out_of_all_steps,
    ),
    SilentFault(
        "dout ignored",
        "Backward returns the gradient of out.sum(). A test whose loss is out.sum() agrees.",
        "mindone pull request 1438",
        "dout",
        rule.dout_of_sum,
        rule.dout_as_given,
    ),
    SilentFault(
        "bfloat16 sums",
        "out is added up in bfloat16, so that every step rounds it once more. With a tolerance of "
        "2.5e-2 nobody notices, until there are many ranks.",
        "ring-flash-attention issue 42",
        "merge",
        rule.merged_in_bfloat16,
        rule.merged_in_wide_sums,
    ),
)
"""In the order of the notebook."""
