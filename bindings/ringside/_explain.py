"""A plan in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringside._plan import Plan


def explain(plan: Plan) -> str:
    """See Plan.explain."""
    layout = plan.layout_q
    sequences = "1 sequence" if layout.num_sequences == 1 else f"{layout.num_sequences} sequences"
    return (
        f"{plan.partition} over {plan.comm}, {plan.cp_size} ranks: {sequences}, "
        f"{layout.num_tokens} tokens in {layout.num_rows} rows"
    )
