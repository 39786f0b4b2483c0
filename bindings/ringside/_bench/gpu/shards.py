"""Rows of a pack on one GPU and in shards, and both passes over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ringside as rs

DIM = 128
# Both results are float32 sums of the same bfloat16 products, in another order and with other
# roundings of the weights to bfloat16: some units in the last place of the largest element.
ALLOWED = 4 * 2.0**-8


class Data:
    """Arrays of a pack, the same in every process, and what one GPU makes of them."""

    def __init__(self, layout: rs.PackedLayout, heads: tuple[int, int], device: int) -> None:
        import torch

        made = torch.Generator(f"cuda:{device}").manual_seed(layout.num_rows)

        def normal(number: int) -> Any:
            shape, place = (layout.num_rows, number, DIM), f"cuda:{device}"
            return torch.randn(shape, generator=made, device=place, dtype=torch.bfloat16)

        self.q, self.dout = normal(heads[0]), normal(heads[0])
        self.k, self.v = normal(heads[1]), normal(heads[1])
        self.one = rs.plan(layout, cp_size=1, num_heads=heads[0], num_kv_heads=heads[1])

    def on_one(self) -> tuple[Any, ...]:
        """(out, dq, dk, dv) of one GPU with all rows."""
        out, lse = self.one.attention(self.q, self.k, self.v, backend="cuda")
        arrays = (self.dout, self.q, self.k, self.v, out, lse)
        return (out, *self.one.attention_backward(*arrays, backend="cuda"))


class Shards:
    """The rows of one rank, and both passes over them."""

    def __init__(
        self, plan: rs.Plan, group: rs.Group, data: Data, exchange: str, keep_kv: bool = False
    ) -> None:
        import torch

        self.plan, self.group, self.exchange, self.keep_kv = plan, group, exchange, keep_kv

        def rows(side: str) -> Any:
            return torch.from_numpy(plan.row_indices(group.rank, side=side)).to(data.q.device)

        self.of_q, self.of_k = rows("q"), rows("k")
        self.q, self.dout = data.q[self.of_q], data.dout[self.of_q]
        self.k, self.v = data.k[self.of_k], data.v[self.of_k]

    def run(self) -> tuple[Any, ...]:
        """(out, dq, dk, dv) of the rank."""
        common: dict[str, Any] = {"group": self.group, "exchange": self.exchange}
        operands = (self.q, self.k, self.v)
        out, lse, *kept = self.plan.attention_rank(*operands, keep_kv=self.keep_kv, **common)
        if kept:
            common["kept_kv"] = kept[0]
        return (
            out,
            *self.plan.attention_backward_rank(self.dout, *operands, out, lse, **common),
        )

    def fault(self, want: Sequence[Any]) -> str:
        """What differs from one GPU's results, or nothing."""
        rows = (self.of_q, self.of_q, self.of_k, self.of_k)
        for name, got, whole, own in zip(
            ("out", "dq", "dk", "dv"), self.run(), want, rows, strict=True
        ):
            error = (got.float() - whole[own].float()).abs().max().item()
            most = ALLOWED * whole.float().abs().max().item()
            if not error <= most:
                return f"{name} is off by {error:.3g}; at most {most:.3g} was expected"
        return ""
