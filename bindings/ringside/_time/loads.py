"""The microseconds of each exchange and step, from what a plan counts and what a machine takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ringside import _core
from ringside._time.model import Float64, Links, Rates, Table, TimeModel

Direction = Literal["forward", "backward"]
ITEMSIZE = {"bfloat16": 2, "float16": 2, "float32": 4}
# What a transport's exchange of the first step is; of later ones; of gradients and results.
KINDS = {
    "p2p": ("hop", "hop", "hop"),
    "all_gather": ("all_gather", "all_gather", "all_to_all"),
    "a2a": ("all_to_all", "all_to_all", "all_to_all"),
    "a2a+p2p": ("all_to_all", "hop", "hop"),
}
OTHERS = ("fetch", "fetch", "fetch")  # messages between any two ranks: comm="fetch", plans by hand


class Shape(NamedTuple):
    """What counts do not say: how ranks are wired, and the size of an element.

    Attributes:
        comm: the transport.
        group: ranks that trade rows for heads with each other, 1 for none.
        head_dim: of q and k.
        head_dim_v: of v.
        dtype: of q, k, v and out.
    """

    comm: str
    group: int
    head_dim: int
    head_dim_v: int
    dtype: str


@dataclass(frozen=True)
class Exchanges:
    """Of one number of steps.

    Attributes:
        us: [ranks, steps]; 0 where a rank neither sends nor receives.
        kinds: [steps] of model.EXCHANGES.
        offsets: [steps] by how many ranks a hop's sender lies behind, modulo cp_size; of others 0.
        group: ranks in a row that end a collective exchange together; 0 for each alone.
    """

    us: Float64
    kinds: tuple[str, ...]
    offsets: tuple[int, ...]
    group: int


@dataclass(frozen=True)
class Loads:
    """What a pass takes, in the order in which its steps run.

    Attributes:
        steps: [n] their numbers in the plan.
        work: [ranks, n] us of tiles and what goes with them, with the whole device.
        before: exchanges that tiles wait for.
        after: of gradients, or, after the last step, of results.
        add: [ranks, n] us of adding what `after` brings.
    """

    steps: tuple[int, ...]
    work: Float64
    before: Exchanges
    after: Exchanges
    add: Float64


def loads(cost: _core.PlanCost, shape: Shape, model: TimeModel, direction: Direction) -> Loads:
    """Of one pass of a plan that counts so much."""
    kernel = model.kernel(shape.head_dim, shape.dtype, shape.head_dim_v)
    return _Pass(cost, shape, model).loads(getattr(kernel, direction), direction)


class _Bytes(NamedTuple):
    """[ranks, steps] of the plan."""

    received: np.ndarray
    sent: np.ndarray


class _Pass:
    """The counts, looked at as one model sees them."""

    def __init__(self, cost: _core.PlanCost, shape: Shape, model: TimeModel) -> None:
        self.cost, self.shape, self.model = cost, shape, model
        self.ranks, self.steps = cost.blocks.shape

    def loads(self, rates: Rates, direction: Direction) -> Loads:
        order = np.arange(self.steps)[:: 1 if direction == "forward" else -1]
        if direction == "forward":
            before = _Bytes(self.cost.bytes_received, self.cost.bytes_sent)
            after = self._results()
        else:
            before = self._operands_of_backward()
            after = _Bytes(
                self.cost.backward_gradient_bytes_received, self.cost.backward_gradient_bytes_sent
            )
        kinds = KINDS.get(self.shape.comm, OTHERS)
        work = self._work(rates, before.received, kinds, direction)
        added = after.received[:, order] * self.model.memory.per_byte_added
        return Loads(
            tuple(order.tolist()),
            work[:, order],
            self._before(before, order, kinds, direction),
            self._after(after, order, kinds, direction),
            self.model.memory.us(added),
        )

    def _results(self) -> _Bytes:
        """They go home after the last step."""
        after = _Bytes(*(np.zeros((self.ranks, self.steps), np.int64) for _ in range(2)))
        if self.steps:
            after.received[:, -1] = self.cost.result_bytes_received
            after.sent[:, -1] = self.cost.result_bytes_sent
        return after

    def _operands_of_backward(self) -> _Bytes:
        """Bytes that arrive before tiles, and are sent. Queries travel before the first tiles."""
        cost, found = self.cost, []
        for way in ("received", "sent"):
            total = getattr(cost, f"backward_bytes_{way}")
            moved = total - getattr(cost, f"backward_gradient_bytes_{way}")
            # Results go where queries came from, so their bytes say how many queries came.
            back = getattr(cost, f"result_bytes_{'sent' if way == 'received' else 'received'}")
            queries = self._query_bytes(back)
            if self.steps > 1:
                moved[:, 0] -= queries
                moved[:, -1] += queries
            found.append(moved)
        return _Bytes(*found)

    def _query_bytes(self, results: np.ndarray) -> np.ndarray:
        """Of q, dout, lse and delta of as many cells as out and lse have in so many bytes."""
        size, dims = ITEMSIZE[self.shape.dtype], (self.shape.head_dim, self.shape.head_dim_v)
        return results // (dims[1] * size + 4) * (sum(dims) * size + 8)

    def _work(
        self, rates: Rates, received: np.ndarray, kinds: tuple[str, ...], direction: Direction
    ) -> Float64:
        cost, memory = self.cost, self.model.memory
        tiles = rates.block * cost.blocks + rates.partial_block * cost.partial_blocks
        tiles = tiles + rates.visit * cost.visits
        work = tiles / self.model.multiprocessors + rates.launch * (cost.blocks > 0)
        if memory.per_merged_element and direction == "forward":
            rows = cost.visits[:, 1:] * cost.block_size[0]
            work[:, 1:] += memory.us(rows * self.shape.head_dim_v * memory.per_merged_element)
        for step in range(self.steps):
            moved = memory.per_byte_received.get(kinds[min(step, 1)], 0.0)
            if moved:
                work[:, step] += memory.us(received[:, step] * moved)
        return work

    def _before(
        self, size: _Bytes, order: np.ndarray, kinds: tuple[str, ...], direction: Direction
    ) -> Exchanges:
        """What tiles wait for: keys from the neighbour, forward; from their owners, backward."""
        named, offsets = [], []
        for step in order.tolist():
            kind = kinds[min(step, 1)]
            if kind == "hop" and direction == "backward" and self.shape.group > 1:
                kind = "fetch"  # from each rank that owns rows of a group
            named.append(kind)
            offsets.append((step if direction == "backward" else 1) * self.shape.group)
        return self._timed(size, order, named, offsets)

    def _after(
        self, size: _Bytes, order: np.ndarray, kinds: tuple[str, ...], direction: Direction
    ) -> Exchanges:
        """Gradients of keys go to the rank that the keys came from; results, where queries did."""
        named = []
        for step in order.tolist():
            kind = kinds[2] if step > 0 and direction == "backward" else kinds[0]
            named.append("all_to_all" if kind == "all_gather" else kind)
        return self._timed(size, order, named, [-self.shape.group] * len(named))

    def _timed(
        self, size: _Bytes, order: np.ndarray, kinds: list[str], offsets: list[int]
    ) -> Exchanges:
        us, turns = np.zeros((self.ranks, self.steps)), []
        for column, (step, kind, far) in enumerate(
            zip(order.tolist(), kinds, offsets, strict=True)
        ):
            received, sent = size.received[:, step], size.sent[:, step]
            hop = far % max(self.ranks, 1) if kind == "hop" else 0
            turns.append(hop)
            if kind == "hop":
                us[:, column] = self._us_of_hop(received, hop)
            else:
                us[:, column] = self._us_of_many(kind, np.maximum(received, sent))
        collective = self.shape.comm in KINDS and self.shape.comm != "p2p"
        group = (self.shape.group if self.shape.group > 1 else self.ranks) if collective else 0
        return Exchanges(us, tuple(kinds), tuple(turns), group)

    def _us_of_hop(self, size: np.ndarray, offset: int) -> Float64:
        ranks = np.arange(self.ranks)
        source = (ranks - offset) % max(self.ranks, 1)
        return self._by_level("hop", size, lambda near: (ranks // near == source // near) * 1.0)

    def _us_of_many(self, kind: str, size: np.ndarray) -> Float64:
        """Of messages to several ranks: those to near and to far ones travel side by side."""
        whole = kind == "fetch" or self.shape.group == 1
        others = max((self.ranks if whole else self.shape.group) - 1, 1)
        return self._by_level(
            kind, size, lambda near: np.full(self.ranks, min((near - 1) / others, 1.0))
        )

    def _by_level(self, kind: str, size: np.ndarray, within: Callable[[int], Float64]) -> Float64:
        """`within` says which share of the bytes comes from the nearest so many ranks."""
        us, near = np.zeros(self.ranks), np.zeros(self.ranks)
        for links in self.model.links:
            joins_all = links.ranks is None or links.ranks >= self.ranks
            reached = np.ones(self.ranks) if joins_all else within(links.ranks or 1)
            here = size * np.maximum(reached - near, 0)
            if here.any():
                us = np.maximum(us, _table(links, kind, self.model)(here))
            near = np.maximum(near, reached)
        if (size * (1 - near)).any():
            raise _core.Unsupported(
                f"{self.ranks} ranks: model {self.model.name} has links among "
                f"{self.model.links[-1].ranks} ranks only; expected a level of links that joins "
                "all. Add one whose ranks are null"
            )
        return us


def _table(links: Links, kind: str, model: TimeModel) -> Table:
    if kind in links.us_of_bytes:
        return links.us_of_bytes[kind]
    here = ", ".join(links.us_of_bytes) or "none"
    raise _core.Unsupported(
        f"exchange {kind!r}: model {model.name} has no table of it among its links of "
        f"{links.ranks or 'all'} ranks; it has {here}. Add a measured one"
    )
