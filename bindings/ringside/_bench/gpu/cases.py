"""What `ringside bench gpu` measures, and how a line of its table is judged. No torch here."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ringside import _core
from ringside import lengths as traces
from ringside._plan.build import plan as new_plan
from ringside._plan.plan import Plan
from ringside.testing._problems import a2a_size

SECTIONS = ("attention", "plans", "rows", "lengths", "syncs", "fill")
BACKWARD_OVER_FORWARD = 2.5  # five matrix products, not two
CP_SIZES = (2, 4, 8)


def long_tail(tokens: int = 32_768, documents: int = 21, largest: int = 8_000) -> list[int]:
    """Log-normal lengths, shuffled: a few long documents hold most tokens.

    >>> pack = long_tail()
    >>> len(pack), sum(pack), max(pack) <= 8_000
    (21, 32768, True)
    """
    lengths = np.sort(np.random.default_rng(3).lognormal(0, 1.1, documents))
    while lengths.sum() < tokens - 1 or lengths.max() > largest:  # cut, and give to the others
        lengths = np.minimum(lengths * (tokens / lengths.sum()), largest)
    lengths = lengths.astype(int)
    lengths[documents // 2] += tokens - lengths.sum()
    return np.random.default_rng(4).permutation(lengths).tolist()


def short_documents(sequences: int, tokens: int = 65_536) -> list[int]:
    """Random lengths of at least one token.

    >>> lengths = short_documents(4_096)
    >>> len(lengths), sum(lengths), min(lengths) >= 1
    (4096, 65536, True)
    """
    rng = np.random.default_rng(sequences)
    more = rng.multinomial(tokens - sequences, np.ones(sequences) / sequences)
    return (1 + more).tolist()


def log_normal(documents: int, median: int) -> list[int]:
    """Lengths as documents have them: most are short, a few hold most tokens.

    >>> pack = log_normal(108, 664)
    >>> len(pack), sum(pack), max(pack)
    (108, 133566, 25682)
    """
    drawn = np.random.default_rng(3).lognormal(np.log(median), 1.1, documents)
    return np.maximum(drawn, 1).astype(int).tolist()


def ragged(mean: int, seed: int, tokens: int = 32_768) -> list[int]:
    """Lengths between half and one and a half of the mean.

    >>> lengths = ragged(1_024, 1)
    >>> sum(lengths), 512 <= min(lengths[:-1]), max(lengths) <= 1_536
    (32768, True, True)
    """
    rng, lengths = np.random.default_rng(seed), []
    while sum(lengths) < tokens:
        drawn = int(rng.integers(mean // 2, mean * 3 // 2))
        lengths.append(min(drawn, tokens - sum(lengths)))
    return lengths


PACKS = {
    "long tail 32k": long_tail(),
    "2k x16": [2_048] * 16,
    "16k x2": [16_384] * 2,
    "32k x1": [32_768],
    "1k x32": [1_024] * 32,
    "256 x128": [256] * 128,
    "ragged, mean 1k": ragged(1_024, 1),
    "ragged, mean 256": ragged(256, 2),
    "4k x16": [4_096] * 16,
    "1k x4": [1_024] * 4,
    "128 x256": [128] * 256,
    "log-normal x108": log_normal(108, 664),
    "man pages 128k": traces.pack(traces.load("man_pages"), 131_072).tolist(),
    "64k in 4,096": short_documents(4_096),
    "64k in 65,536": short_documents(65_536),
}
SMALL = ("1k x4", "128 x256")  # where what surrounds the kernels counts
MASKS = {
    "causal": _core.Mask.causal(),
    "full": _core.Mask.full(),
    "window 1,024": _core.Mask.sliding_window(1_024, 0),
    "chunk 8,192": _core.Mask.chunked(8_192),  # causal inside chunks
}


@dataclass(frozen=True)
class Workload:
    """Attention over one pack; names of PACKS and MASKS.

    >>> case = Workload("16k x2", "causal", 64, 8, (192, 128))
    >>> print(case)
    d192/128 h64/8 16k x2 causal
    """

    pack: str
    mask_name: str
    num_heads: int
    num_kv_heads: int
    dims: tuple[int, int]  # of q and k, of v
    dtype: str = "bfloat16"

    def __str__(self) -> str:
        d = "/".join(str(x) for x in dict.fromkeys(self.dims))
        h = "/".join(str(x) for x in dict.fromkeys((self.num_heads, self.num_kv_heads)))
        dtype = "" if self.dtype == "bfloat16" else f" {self.dtype}"
        return f"d{d} h{h} {self.pack} {self.mask_name}{dtype}"

    @property
    def lengths(self) -> list[int]:
        """Of the documents, in tokens."""
        return PACKS[self.pack]

    @property
    def mask(self) -> _core.Mask:
        """Which keys a query sees."""
        return MASKS[self.mask_name]

    def plan(self, cp_size: int = 1, partition: str = "zigzag", comm: str = "p2p") -> Plan:
        """A plan of its own: programs of other cases' plans are not among its."""
        return new_plan(
            _core.PackedLayout.from_lengths(self.lengths),
            mask=self.mask,
            cp_size=cp_size,
            partition=partition,
            comm=comm,
            a2a_size=a2a_size(comm, cp_size),
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
        )

    def flops(self, backward: bool) -> float:
        """Of visible pairs of all heads: 2 (d_qk + d_v) each forward, 2.5 times that backward."""
        return pairs(self) * 2.0 * sum(self.dims) * (BACKWARD_OVER_FORWARD if backward else 1)

    def visible(self, length: int) -> tuple[list[int], list[int]]:
        """The first key that each query of a document sees, and the one behind the last."""
        ranges = [self.mask.visible(q, length, length) for q in range(length)]
        return [begin for begin, _ in ranges], [end for _, end in ranges]


@functools.cache
def pairs(case: Workload) -> int:
    """Visible (query, key) pairs of all heads."""
    return int(case.plan().cost().pairs.sum())


def attention_cases(quick: bool) -> Iterator[Workload]:
    """Those beside FlashAttention 2; causal ones come before the masks measured against them."""
    if quick:
        yield Workload("long tail 32k", "causal", 16, 16, (128, 128))
        for mask in ("causal", "window 1,024"):
            yield Workload("16k x2", mask, 16, 16, (128, 128))
        return
    for heads, dim in ((16, 128), (32, 64)):
        for pack in ("long tail 32k", "2k x16", "16k x2"):
            for mask in ("causal", "full"):
                yield Workload(pack, mask, heads, heads, (dim, dim))
        for mask in ("window 1,024", "chunk 8,192"):
            yield Workload("16k x2", mask, heads, heads, (dim, dim))
    yield from small_cases()
    for heads, kv_heads, dims in ((16, 16, (192, 128)), (8, 8, (256, 256)), (64, 8, (128, 128))):
        yield Workload("long tail 32k", "causal", heads, kv_heads, dims)
    yield Workload("2k x16", "causal", 16, 16, (128, 128), "float32")


def small_cases() -> Iterator[Workload]:
    """A small call, and short documents."""
    for pack, heads in zip(SMALL, (4, 16), strict=True):
        yield Workload(pack, "causal", heads, heads, (128, 128))


def length_cases() -> Iterator[tuple[Workload, int]]:
    """Those run by a plan that learns its lengths on the device, and for how many it has room."""
    for pack in ("64k in 4,096", "64k in 65,536"):
        case = Workload(pack, "causal", 16, 16, (128, 128))
        yield case, len(case.lengths)
    for room in (4_096, 65_536):
        yield PLAN_CASE, room


PLAN_CASE = Workload("4k x16", "causal", 16, 16, (128, 128))
SYNC_CASE = Workload("2k x16", "causal", 16, 4, (64, 64))


def plan_groups(quick: bool) -> list[tuple[int, str, tuple[str, ...]]]:
    """(cp_size, partition, transports): what takes turns with the plan of one rank."""
    if quick:
        return [(4, "zigzag", ("p2p", "all_gather"))]
    return [(n, partition, _core.COMMS) for n in CP_SIZES for partition in _core.PARTITIONS]


# FlashAttention 2's time over ours: what portable mma.sync kernels are held to, and whole calls
# where most of the time is not the kernels'.
GOALS = {"forward": 0.9, "backward": 0.8}
GOAL_OF_SMALL_CALLS = 1.0


@dataclass(frozen=True)
class Goal:
    """A ratio that should be at least, or at most, some number.

    >>> print(Goal("call / FA2", 0.914, at_least=1))
    call / FA2 0.91, goal >= 1
    """

    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        """NaN meets nothing."""
        low, high = self.at_least, self.at_most
        return (low is None or self.value >= low) and (high is None or self.value <= high)

    @property
    def bound(self) -> str:
        """In words."""
        return f">= {self.at_least:g}" if self.at_most is None else f"<= {self.at_most:g}"

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f}, goal {self.bound}"


class WrongResult(AssertionError):
    """What float64 disagrees with."""


@dataclass(frozen=True)
class Line:
    """One measurement, or why there is none.

    Attributes:
        section: of SECTIONS.
        case: what ran.
        work: forward, backward...
        family: whose kernels.
        numbers: by name; what is not known is not there.
        goals: may be none.
        fault: a wrong result, in words; then there are no numbers.
        readings: of the GPU meanwhile, by name: clocks, power, temperature.
    """

    section: str
    case: str
    work: str = ""
    family: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)
    goals: tuple[Goal, ...] = ()
    fault: str = ""
    readings: dict[str, float] = field(default_factory=dict)

    @property
    def missed(self) -> list[Goal]:
        """Goals that were not met."""
        return [goal for goal in self.goals if not goal.met]

    def to_dict(self) -> dict[str, Any]:
        """Flat, for CSV and JSON."""
        met = ("no" if self.missed else "yes") if self.goals else ""
        goals = "; ".join(str(goal) for goal in self.goals)
        names = {"section": self.section, "case": self.case, "work": self.work}
        return {
            **names,
            "family": self.family,
            **self.numbers,
            "goals": goals,
            "met": met,
            "fault": self.fault,
            **self.readings,
        }


@dataclass(frozen=True)
class Times:
    """Median milliseconds of a call, and of its attention kernels alone."""

    call: float
    kernels: float


def attention_line(
    case: Workload,
    work: str,
    family: str,
    ours: Times,
    *,
    peer: Times | None = None,
    causal: Times | None = None,
) -> Line:
    """Rates, beside the peer's and the rate of the causal mask on the same pack.

    Args:
        case: what ran.
        work: forward, backward, or "backward, deterministic", which the peer's is not: then its
            ratios are no goals.
        family: whose kernels.
        ours: times of it.
        peer: times of FlashAttention 2, if it can do it.
        causal: ours with the causal mask, if this one is to be as fast a pair.
    """
    flops = case.flops(work.startswith("backward"))
    numbers: dict[str, Any] = {
        "call_ms": ours.call,
        "call_tflops": flops / ours.call / 1e9,
        "kernels_ms": ours.kernels,
        "kernels_tflops": flops / ours.kernels / 1e9,
    }
    goals = []
    if peer is not None:
        numbers |= {"peer_call_ms": peer.call, "peer_kernels_ms": peer.kernels}
        for name in ("call", "kernels"):
            ratio = getattr(peer, name) / getattr(ours, name)
            numbers[f"{name}_over_peer"] = ratio
            if work in GOALS:
                small = name == "call" and case.pack in SMALL
                least = GOAL_OF_SMALL_CALLS if small else GOALS[work]
                goals.append(Goal(f"{name} / FA2", ratio, at_least=least))
    if causal is not None:
        same = dataclasses.replace(case, mask_name="causal")
        ratio = (pairs(case) / ours.kernels) / (pairs(same) / causal.kernels)
        numbers["kernels_rate_over_causal"] = ratio
        goals.append(Goal("kernels / causal", ratio, at_least=0.7))
    return Line("attention", str(case), work, family, numbers, tuple(goals))


def plan_line(name: str, work: str, family: str, ours: Times, one_rank: Times) -> Line:
    """All ranks of a plan beside the plan of one rank."""
    kernels, call = ours.kernels / one_rank.kernels, ours.call / one_rank.call
    numbers = {
        "call_ms": ours.call,
        "call_over_one_rank": call,
        "kernels_ms": ours.kernels,
        "kernels_over_one_rank": kernels,
    }
    goals = ()
    if name.startswith("cp 4 zigzag "):
        goals = (Goal("kernels / cp 1", kernels, at_most=1.15),)
    return Line("plans", name, work, family, numbers, goals)


def row_line(numbers: dict[str, Any]) -> Line:
    """A primitive that moves rows beside the device's own copy, or computes metadata.

    Moves are held to 0.9 of the copy at 16 sequences of 16 heads, elsewhere, and where rows are
    added, to 0.8; metadata of 4,096 sequences to 10 microseconds.

    >>> row_line({"case": "reorder", "sequences": 16, "heads": 16, "ratio_to_copy": 0.95}).missed
    []
    """
    known = {name: value for name, value in numbers.items() if value is not None}
    case, goals = str(known.pop("case")), ()
    ratio, milliseconds = known.get("ratio_to_copy"), known.get("milliseconds")
    if ratio is not None:
        usual = (known.get("sequences"), known.get("heads")) == (16, 16) and "add" not in case
        goals = (Goal("rate / copy", ratio, at_least=0.9 if usual else 0.8),)
    elif milliseconds is not None and known.get("sequences") == 4_096:
        goals = (Goal("milliseconds", milliseconds, at_most=0.01),)
    return Line("rows", case, numbers=known, goals=goals)
