"""Exercise 6: bytes into a rank, where ranks trade rows for heads and groups form a ring."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st
from matplotlib.figure import Figure

from ringside._core import Mask, PackedLayout
from ringside._plan.build import plan as new_plan
from ringside._plan.plan import Plan
from ringside.learn._exercise import Answer, Exercise, Wrong, array_of
from ringside.learn._traffic import bytes_received
from ringside.learn.figures.traffic import figure_of_parts

STUB = '''
def bytes_in(rows, num_heads, num_kv_heads, head_dim, group, groups):
    """A number: bytes into a rank of rows of its own, forward, bfloat16, a2a+p2p, lse float32."""
'''
MAX_BYTES = 1e15  # beyond which a float drawn as a bar says nothing


class Trade(NamedTuple):
    """A full mask over one document, the same rows on each rank."""

    rows: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    group: int
    groups: int

    @property
    def plan(self) -> Plan:
        """group * groups ranks."""
        ranks = self.group * self.groups
        return new_plan(
            PackedLayout.from_lengths([self.rows * ranks]),
            mask=Mask.full(),
            cp_size=ranks,
            comm="a2a+p2p",
            a2a_size=self.group,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
        )

    @property
    def parts(self) -> dict[str, int]:
        """Bytes into rank 0 by what they are of, read off the messages of the plan."""
        plan, found = self.plan, {"q": 0, "k and v, in the group": 0, "k and v, round the ring": 0}
        for number, step in enumerate(plan.steps(0)):
            for message in step.receives:
                cells = message.rows * (message.heads[1] - message.heads[0])
                if message.peer != 0:
                    where = "round the ring" if number else "in the group"
                    name = "q" if message.operand == "q" else f"k and v, {where}"
                    vectors = 1 if message.operand == "q" else 2
                    found[name] += cells * self.head_dim * 2 * vectors
        results = plan.cost(head_dim=self.head_dim).result_bytes_received[0]
        return {**found, "out and lse": int(results)}


def ask(bytes_in: Answer, trade: Trade) -> Any:
    """The number of bytes."""
    expected = "a number of bytes"
    got = array_of(bytes_in(*trade), "iuf", expected)
    if got.shape != () or not abs(got) < MAX_BYTES:
        raise Wrong(f"got {got}; expected {expected}")
    return got.item()


def fault(trade: Trade, got: Any) -> str:
    """How far it is from what the plan counts."""
    expected = bytes_received(trade.plan.cost(head_dim=trade.head_dim))
    if got == expected:
        return ""
    parts = ", ".join(f"{size:,} of {name}" for name, size in trade.parts.items())
    return f"got {got:,} bytes; expected {expected:,}: {parts}"


def told(trade: Trade) -> str:
    """Its numbers, by their names."""
    return ", ".join(f"{name}={value}" for name, value in trade._asdict().items())


def drawn(trade: Trade, got: Any) -> Figure:
    """What the bytes are of, beside the answer."""
    return figure_of_parts(trade.parts, got)


@st.composite
def cases(draw: st.DrawFn) -> Trade:
    """Heads that groups divide, kv heads that they divide or that divide them; a ring or none."""
    group = draw(st.sampled_from([1, 2, 4]))
    num_kv_heads = draw(st.sampled_from([1, 2, 4]))
    repeats = draw(st.integers(1, 3))
    num_heads = max(group, num_kv_heads) * repeats
    rows, head_dim = 2 * draw(st.integers(1, 4)), draw(st.sampled_from([1, 8, 128]))
    return Trade(rows, num_heads, num_kv_heads, head_dim, group, draw(st.integers(1, 3)))


EXERCISE = Exercise(
    stub=STUB,
    plain=Trade(8, 4, 4, 16, 2, 2),
    cases=cases,
    ask=ask,
    fault=fault,
    told=told,
    drawn=drawn,
    holds="the bytes are those that the plan counts",
    examples=100,
)
