"""What the usual test of an attention does not look at, and what it sees once it does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ringside._core import Mask, PackedLayout
from ringside.learn.faults.gallery import SILENT_FAULTS, RingModel
from ringside.learn.faults.ring import Passes
from ringside.testing._judging import errors
from ringside.testing.cases import Case

CAUSAL = (Mask.causal(),)
MASKS = (*CAUSAL, Mask.sliding_window(3, 0), Mask.chunked(5))


class Habit(NamedTuple):
    """A way of testing.

    Attributes:
        name: what it looks at that the one before it did not.
        lengths: of the documents.
        masks: tried one after the other.
        heads: (num_heads, num_kv_heads).
        pad_to_multiple_of: 1 for no padding, which holds NaN.
        backward: whether gradients are compared, too.
        ones: whether dout is 1 everywhere, as of the loss out.sum().
        atol: the largest error that passes.
    """

    name: str
    lengths: tuple[int, ...] = (16, 16)
    masks: tuple[Mask, ...] = CAUSAL
    heads: tuple[int, int] = (2, 2)
    pad_to_multiple_of: int = 1
    backward: bool = False
    ones: bool = True
    atol: float = 2.5e-2


def _ladder() -> tuple[Habit, ...]:
    """Each as the one before it, and one thing more."""
    steps = [Habit("the usual test")]
    added: dict[str, dict[str, Any]] = {
        "+ lengths that do not divide": {"lengths": (13, 7, 3)},
        "+ windows, attention chunks": {"masks": MASKS},
        "+ grouped heads": {"heads": (4, 2)},
        "+ padding that holds NaN": {"pad_to_multiple_of": 8},
        "+ the backward pass": {"backward": True},
        "+ a random dout": {"ones": False},
        "+ a tolerance from the type": {"atol": 1e-10},
    }
    for name, changes in added.items():
        steps.append(steps[-1]._replace(name=name, **changes))
    return tuple(steps)


HABITS = _ladder()
"""From the usual test, one shape and out alone, to one that sees all SILENT_FAULTS."""


def flags(habit: Habit, model: RingModel) -> bool:
    """Whether a test with this habit fails for a model.

    >>> from ringside import learn
    >>> [sum(flags(habit, fault.faulty) for fault in learn.SILENT_FAULTS) for habit in HABITS]
    [0, 1, 2, 3, 5, 6, 7, 8]
    >>> flags(HABITS[-1], learn.SILENT_FAULTS[0].cured)
    False
    """
    layout = PackedLayout.from_lengths(habit.lengths, pad_to_multiple_of=habit.pad_to_multiple_of)
    return any(_fails(habit, model, _case(habit, layout, mask)) for mask in habit.masks)


def _case(habit: Habit, layout: PackedLayout, mask: Mask) -> Case:
    num_heads, num_kv_heads = habit.heads
    return Case(layout, mask=mask, num_heads=num_heads, num_kv_heads=num_kv_heads)


def _fails(habit: Habit, model: RingModel, case: Case) -> bool:
    arrays = case.arrays()
    if habit.ones:
        arrays = arrays._replace(dout=np.ones_like(arrays.dout))
    truth = case.by_definition(arrays)
    got = model(*arrays, case.layout_q, case.mask)
    pairs = list(zip(got, (truth.out, truth.dq, truth.dk, truth.dv), strict=True))
    compared = pairs if habit.backward else pairs[:1]
    return not all(np.allclose(x, true, rtol=0, atol=habit.atol) for x, true in compared)


def errors_of_faults(case: Case) -> dict[str, dict[str, float]]:
    """Of each of SILENT_FAULTS, the largest error of each result in a case; infinite for NaN.

    Args:
        case: self-attention with a mask aligned top-left; its partition is not looked at.

    >>> import ringside as rs
    >>> from ringside import learn
    >>> from ringside.testing import Case
    >>> found = learn.errors_of_faults(Case(rs.PackedLayout([0, 3], [0, 4])))
    >>> {name: error > 1e-9 for name, error in found["out of the step"].items()}
    {'out': False, 'dq': True, 'dk': True, 'dv': False}
    """
    arrays = case.arrays()
    truth = case.by_definition(arrays)
    expected = {name: getattr(truth, name) for name in Passes._fields}
    found = {}
    for fault in SILENT_FAULTS:
        got = fault.faulty(*arrays, case.layout_q, case.mask)._asdict()
        found[fault.name] = {
            name: float(errors(got[name], x).max(initial=0.0)) for name, x in expected.items()
        }
    return found


def seen_by_habit() -> dict[str, dict[str, bool]]:
    """Of each habit, which of SILENT_FAULTS it flags.

    >>> from ringside import learn
    >>> sum(learn.seen_by_habit()["the usual test"].values())
    0
    """
    return {
        habit.name: {fault.name: flags(habit, fault.faulty) for fault in SILENT_FAULTS}
        for habit in HABITS
    }
