"""exchange="auto": whichever exchange is faster for a plan, by rehearsing its messages.

Where more than one exchange fits all processes, the messages of both passes of a plan are sent over
each, without its tiles, and all processes take the one whose slowest process was done first. Plans
of one transport whose messages are of a size, within a factor of two, take what one of them took.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ringside._group.agreement import KEPT
from ringside._group.failure import RankFailure
from ringside._ranks.choice import choose, fitting
from ringside._ranks.device import about, device_of, require_device
from ringside._ranks.together import together

if TYPE_CHECKING:
    from ringside._group.group import Group

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
Kind = tuple[str, int]  # words of a plan, bits of the bytes that a process sends


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was chosen for plans of a kind, and why.

    Attributes:
        exchange: "peer" or "nccl".
        took_us: of each exchange that was measured: the messages of both passes.
        against: of each that was not, why.
    """

    exchange: str
    took_us: dict[str, float]
    against: dict[str, str]

    def __str__(self) -> str:
        """In words."""
        parts = [f"{exchange} {took / 1000:.3f} ms" for exchange, took in self.took_us.items()]
        parts += [f"{exchange} is not there: {why}" for exchange, why in self.against.items()]
        said = "; ".join(parts)
        how = "messages of both passes, slowest rank: " if self.took_us else ""
        return f"{self.exchange}{' (' + how + said + ')' if said else ''}"


class Auto:
    """What the processes of a group have measured on their devices."""

    def __init__(self, group: Group, device: int) -> None:
        self.group, self.device = group, device
        self._of_kind: dict[Kind, Choice] = {}
        self._of_key: dict[str, str] = {}  # the last programs

    def exchange(self, key: str, make: Callable[[], Any], words: str) -> str:
        """That of a program, which is made and attached where it is new; see DeviceGroup.program.

        Args:
            key: of the program.
            make: makes it.
            words: plans of other words are of another kind.
        """
        if key not in self._of_key:
            self._of_key[key] = self._chosen(key, make, words)
            if len(self._of_key) > KEPT:
                del self._of_key[next(iter(self._of_key))]
        return self._of_key[key]

    def _chosen(self, key: str, make: Callable[[], Any], words: str) -> str:
        if len(self.group._processes) == 1:
            return "peer"  # of which there is none
        made: list[Any] = []

        def describe() -> dict[str, Any]:
            made.append(make())
            return {**about(self.device, made[0].family), "bytes": int(made[0].bytes_sent)}

        told = together(self.group, describe)
        kind = (words, max(x["bytes"] for _, x in told).bit_length())
        if kind not in self._of_kind:
            self._of_kind[kind] = self._measured(key, made[0], told)
        exchange = self._of_kind[kind].exchange
        device_of(self.group, exchange, self.device).program(key, lambda: made[0], exchange)
        return exchange

    def _measured(self, key: str, program: Any, told: list[tuple[tuple[int, ...], Any]]) -> Choice:
        fit, against = fitting(told)
        if len(fit) < 2:
            return Choice(choose("auto", told), {}, against)
        took: dict[str, float] = {}
        had = [x for x in fit if device_of(self.group, x, self.device).has(key)]
        for exchange in fit:
            try:
                took[exchange] = self._rehearsed(exchange, key, program)
            except RankFailure:
                raise
            except Exception as error:  # raised in all
                against[exchange] = str(error)
                if not took and exchange == fit[-1]:
                    raise
        chosen = min(took, key=lambda exchange: took[exchange])  # the first of equal ones
        for exchange in fit:
            if exchange != chosen and exchange not in had:
                device_of(self.group, exchange, self.device).drop(key)
        device_of(self.group, chosen, self.device).attach(key)
        return Choice(chosen, took, against)

    def _rehearsed(self, exchange: str, key: str, program: Any) -> float:
        device = device_of(self.group, exchange, self.device)
        device.program(key, lambda: program, exchange)
        return device.rehearsed(key)

    def explain(self) -> Iterator[str]:
        """A line for each kind of plans."""
        for (words, bits), choice in self._of_kind.items():
            yield f'exchange="auto": {words}, {_size(bits)} of messages: {choice}.'


def auto_of(group: Group, device: int) -> Auto:
    """The group's, for a device."""
    if group._auto is None:
        group._auto = Auto(group, device)
    found: Auto = group._auto
    require_device(found.device, device)
    return found


def _size(bits: int) -> str:
    """
    >>> _size(0), _size(13), _size(22)
    ('none', '4 to 8 KiB', '2 to 4 MiB')
    """
    if bits == 0:
        return "none"
    unit = (bits - 1) // 10
    low = 1 << (bits - 1 - 10 * unit)
    return f"{low} to {2 * low} {UNITS[unit]}"
