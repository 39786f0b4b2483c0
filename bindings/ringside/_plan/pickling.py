"""Plans in pickles and copies: their tables, from which an equal plan is made.

What comes out of a pickle has been shown to stay inside its buffers, whoever wrote it. Whether it
is all of the attention is for verify() to say, as it was before: a part of a plan stays one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringside._plan.plan import Plan


def arguments_of(plan: Plan) -> dict[str, Any]:
    """What Plan._make takes to make an equal plan.

    >>> import ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
    >>> rs.Plan._make(**arguments_of(plan)) == plan
    True
    """
    return {
        "layout_q": plan.layout_q,
        "layout_k": plan.layout_k,
        "mask": plan.mask,
        "num_heads": plan.num_heads,
        "num_kv_heads": plan.num_kv_heads,
        "partition": plan.partition,
        "comm": plan.comm,
        "tables": {name: cells for name, (_, cells) in plan.tables().items()},
    }


def reduced(plan: Plan) -> tuple[Any, ...]:
    """What __reduce__ returns; attributes that a subclass adds go along, and a piece's origin."""
    arguments = arguments_of(plan)
    attributes = getattr(plan, "__dict__", None) or None
    if plan._dropout_origin == (0, 0):
        return rebuilt, (type(plan), arguments), attributes
    slots = {"_dropout_origin": plan._dropout_origin}
    return rebuilt, (type(plan), arguments), (attributes, slots)


def rebuilt(kind: type[Plan], arguments: dict[str, Any]) -> Plan:
    """The plan that `arguments` describe; a subclass's own constructor is not called.

    >>> import pickle, ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
    >>> pickle.loads(pickle.dumps(plan)) == plan
    True
    """
    return kind._make(**arguments, complete=False)
