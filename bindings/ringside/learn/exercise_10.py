"""Exercise 10: a check that flags eight silent faults and clears their cures."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis
import numpy as np
from hypothesis import strategies as st
from matplotlib.figure import Figure

from ringside._core import Mask
from ringside._rows import valid_rows
from ringside.learn._exercise import Answer, Exercise, Wrong
from ringside.learn._exercise import told as said
from ringside.learn.faults.gallery import SILENT_FAULTS, SilentFault
from ringside.learn.figures.errors import figure_of_errors
from ringside.testing import strategies
from ringside.testing._judging import errors
from ringside.testing.cases import Case

STUB = '''
def is_wrong(model):
    """True or False, of what model(q, k, v, dout, layout, mask) returns wherever you call it."""
'''
MASKS = (Mask.full(), Mask.causal(), Mask.sliding_window(2, 0), Mask.chunked(2))
ROUNDING = 1e-10  # the cures' errors are below 1e-13, those of the faults above 1e-4


class Suspect(NamedTuple):
    """A model to judge: a ring with one fault, or cured of it."""

    fault: SilentFault
    cured: bool
    ranks: int


SUSPECTS = [
    Suspect(fault, cured, ranks=2 + (place + cured) % 2)
    for place, fault in enumerate(SILENT_FAULTS)
    for cured in (False, True)
]


def ask(is_wrong: Answer, suspect: Suspect) -> Any:
    """Its verdict on the model."""
    got = is_wrong(suspect.fault.model(suspect.cured, suspect.ranks))
    if not isinstance(got, bool | np.bool_):
        raise Wrong(f"got {said(got)}; expected True or False")
    return bool(got)


def fault(suspect: Suspect, got: Any) -> str:
    """What it let through, or called wrong."""
    if got is (not suspect.cured):
        return ""
    if suspect.cured:
        return "got True; expected False: it agrees with the definition but for rounding"
    return f"got False; expected True. {suspect.fault.story}"


def told(suspect: Suspect) -> str:
    """The model, and where its fault shows."""
    ring = f"the ring of {suspect.ranks} ranks"
    if suspect.cured:
        return f'{ring} cured of "{suspect.fault.name}"'
    return f'{ring} with "{suspect.fault.name}", as in {shown(suspect)!r}'


def drawn(suspect: Suspect, got: Any) -> Figure:
    """Its errors in the smallest case that shows the fault, or in a case that has all in it."""
    case = shown(suspect)
    found = errors_in(suspect, case)
    rows = {name: x.max(axis=(1, 2), initial=0.0) for name, x in found.items()}
    title = f"{suspect.fault.name}, {'cured' if suspect.cured else 'as it was'}"
    return figure_of_errors(case.layout_q, rows, title)


def errors_in(suspect: Suspect, case: Case) -> dict[str, Any]:
    """[rows, heads, dim] how far each result is from the definition; infinite for NaN."""
    arrays = case.arrays()
    truth = case.by_definition(arrays)
    got = suspect.fault.model(suspect.cured, suspect.ranks)(*arrays, case.layout_q, case.mask)
    expected = (truth.out, truth.dq, truth.dk, truth.dv)
    return {n: errors(x, y) for n, x, y in zip(got._fields, got, expected, strict=True)}


def problems() -> st.SearchStrategy[Case]:
    """Small cases that a RingModel takes: self-attention, padding with NaN, grouped heads."""
    return strategies.cases(
        layouts_q=strategies.layouts(lengths=strategies.lengths(max_length=8)),
        layouts_k=lambda layout: st.none(),
        masks=st.sampled_from(MASKS),
        partitions=st.just("zigzag"),
        comms=st.just("p2p"),
        cp_sizes=st.just(1),
        heads=st.sampled_from([(1, 1), (2, 1), (4, 2)]),
        head_dims=st.just(2),
        softmax_scales=st.none(),
    )


@functools.cache
def shown(suspect: Suspect) -> Case:
    """The smallest case found that shows the fault; of a cure, one with many things in it."""

    def shows(case: Case) -> bool:
        if suspect.cured:
            return case.layout_q.num_tokens >= 6 and case.layout_q.num_sequences > 1
        rows = valid_rows(case.layout_q)
        return any((x[rows] > ROUNDING).any() for x in errors_in(suspect, case).values())

    return _smallest(shows)


def _smallest(shows: Callable[[Case], bool]) -> Case:
    quiet = hypothesis.settings(
        max_examples=500,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    return hypothesis.find(problems(), shows, settings=quiet, random=random.Random(0))


def cases() -> Any:
    """Each fault and its cure, on two or on three ranks."""
    return st.sampled_from(SUSPECTS)


EXERCISE = Exercise(
    stub=STUB,
    plain=Suspect(SILENT_FAULTS[0], True, 2),
    cases=cases,
    ask=ask,
    fault=fault,
    told=told,
    drawn=drawn,
    holds="all eight faults are flagged and all eight cures cleared",
    examples=len(SUSPECTS),
)
