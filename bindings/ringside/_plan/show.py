"""Plans for the explorer's page: proved first, or with what verify() said against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringside import _core
from ringside._page.data import Fault, Shown, data_of
from ringside._page.page import Page
from ringside._plan import json_format
from ringside._plan.estimate import estimate
from ringside._plan.explain import count, explain, mask_words
from ringside._plan.pickling import arguments_of

if TYPE_CHECKING:
    from ringside._plan.plan import Plan


def show(self: Plan, *, compare: Plan | None = None) -> Page:
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
    from ringside._plan.plan import Plan

    if compare is not None and not isinstance(compare, Plan):
        raise TypeError(
            f"compare is a {type(compare).__name__}; expected a Plan, or None for one alone"
        )
    plans = [self] if compare is None else [self, compare]
    return Page([data_of(_of_plan(each)) for each in plans])


def page_of_texts(texts: Sequence[tuple[str, str]]) -> Page:
    """A page of plans as to_json wrote them; one that verify() refuses is shown as refused.

    Args:
        texts: (name of the file, what stands in it) each.

    Raises:
        InvalidArgument: a text that is not a plan; the message names the file.

    >>> import ringside as rs
    >>> text = rs.plan(rs.PackedLayout([0, 8]), cp_size=2).to_json()
    >>> page_of_texts([("plan.json", text)]).refusals
    []
    """
    shown = []
    for name, text in texts:
        try:
            shown.append(_of_text(text))
        except ValueError as error:
            raise _core.InvalidArgument(f"{name}: {error}") from None
    return Page([data_of(each) for each in shown])


def _of_plan(plan: Plan) -> Shown:
    arguments = arguments_of(plan)
    try:
        proof = _proof_in_words(plan.verify())
    except _core.PlanError as error:
        return _refused(arguments, error, plan)
    words = _title(arguments), explain(plan, short=True), proof
    return Shown(arguments, *words, None, plan.cost(), _blocks_of_one(arguments))


def _of_text(text: str) -> Shown:
    from ringside._plan.plan import Plan

    arguments = json_format.arguments(text)
    try:
        return _of_plan(Plan._make(**arguments))
    except _core.PlanError as error:
        return _refused(arguments, error, _incomplete(arguments))


def _incomplete(arguments: dict[str, Any]) -> Plan | None:
    """The plan, where it stays inside its buffers: what it does can be counted."""
    from ringside._plan.plan import Plan

    try:
        return Plan._make(**arguments, complete=False)
    except _core.PlanError:
        return None


def _refused(arguments: dict[str, Any], error: _core.PlanError, plan: Plan | None) -> Shown:
    cost = None if plan is None else plan.cost()
    words = _title(arguments), "", ""
    return Shown(arguments, *words, Fault.of(error), cost, _blocks_of_one(arguments))


def _blocks_of_one(arguments: dict[str, Any]) -> int:
    """What a kernel computes where one rank holds everything."""
    names = ("layout_q", "layout_k", "mask", "num_heads", "num_kv_heads")
    alone = {name: arguments[name] for name in names}
    return int(estimate(**alone, cp_size=1, partition="contiguous").blocks.sum())


def _title(arguments: dict[str, Any]) -> str:
    layout = arguments["layout_q"]
    heads = f"{arguments['num_heads']} query / {count(arguments['num_kv_heads'], 'kv head')}"
    return (
        f"{arguments['partition']} over {arguments['comm']}, "
        f"{count(len(arguments['tables']['homes']), 'rank')}, {mask_words(arguments['mask'])}: "
        f"{count(layout.num_sequences, 'document')}, {count(layout.num_tokens, 'token')}, {heads}"
    )


def _proof_in_words(proof: _core.PlanProof) -> str:
    return (
        f"{count(proof.pairs, 'visible pair')} of each head computed once, "
        f"{count(proof.messages, 'message')} met, {count(proof.tiles, 'tile')} and "
        f"{count(proof.operations, 'operation')} checked"
    )
