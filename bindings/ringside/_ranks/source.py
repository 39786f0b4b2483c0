"""Whose ranks a group runs: what Plan and DevicePlan have in common there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from ringside._arrays.source import Source

if TYPE_CHECKING:
    from ringside._group.group import Group

Side = Literal["q", "k"]


class RankSource(Source, Protocol):
    """What a call of ranks asks, beside what any call on a device does."""

    @property
    def cp_size(self) -> int:
        """Ranks."""

    @property
    def num_kv_heads(self) -> int:
        """Heads of k and v."""

    def _fingerprint_in(self, group: Group) -> str:
        """It in a few words, and behind a comma all that it is: alike in all processes."""

    def _num_rows_owned(self, rank: int, side: Side) -> int:
        """Rows of a rank's arrays."""

    def _words_of_rows(self, rank: int, side: Side) -> str:
        """Whose rows these are, and what to pass, for who passed others."""

    def _require_ready(self, library: Any, device: int) -> None:
        """Raises where it cannot run yet with arrays of a library on a device."""

    def _take_up(self, group: Group, program: Any) -> None:
        """A program of its ranks that all processes of a group have made, before each call."""
