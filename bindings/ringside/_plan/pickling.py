"""Plans in pickles and copies: their tables, from which an equal plan is made.

What comes out of a pickle has been shown to stay inside its buffers, whoever wrote it. Whether it
is all of the attention is for verify() to say, as it was before: a part of a plan stays one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringside import _core

if TYPE_CHECKING:
    from ringside._plan.plan import Plan


def reduced(plan: Plan) -> tuple[Any, ...]:
    """What __reduce__ returns; attributes that a subclass adds go along."""
    arguments = {
        "layout_q": plan.layout_q,
        "layout_k": plan.layout_k,
        "mask": plan.mask,
        "num_heads": plan.num_heads,
        "num_kv_heads": plan.num_kv_heads,
        "partition": plan.partition,
        "comm": plan.comm,
        "tables": {name: cells for name, (_, cells) in plan.tables().items()},
    }
    return rebuilt, (type(plan), arguments), getattr(plan, "__dict__", None) or None


def rebuilt(kind: type[Plan], arguments: dict[str, Any]) -> Plan:
    """The plan that `arguments` describe; a subclass's own constructor is not called.

    >>> import pickle, ringside as rs
    >>> plan = rs.plan(rs.PackedLayout([0, 4]), cp_size=2)
    >>> pickle.loads(pickle.dumps(plan)) == plan
    True
    """
    plan = kind.__new__(kind)
    _core.Plan.__init__(plan, **arguments, complete=False)
    return plan
