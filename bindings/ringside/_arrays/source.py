"""Whose programs run on a device: what Plan and DevicePlan have in common there."""

from __future__ import annotations

from typing import Any, Protocol


class Source(Protocol):
    """What a call asks of whoever holds the programs: a Plan or a DevicePlan."""

    _programs: dict[Any, Any]  # those uploaded so far, by what they were made for
    _version: int  # counts the changes of its lengths, between which passes must not lie
    _dropout_origin: tuple[int, int]  # see options.to_core

    @property
    def num_heads(self) -> int:
        """Query heads."""

    @property
    def num_rows_q(self) -> int:
        """Rows of q, out and dq."""

    @property
    def _source(self) -> Any:
        """What cuda_core().Program is made from."""

    def _prepare(self, program: Any, library: Any, device: int) -> None:
        """Whatever a program needs besides its tables before it runs."""
