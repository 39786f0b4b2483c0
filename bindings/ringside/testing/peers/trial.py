"""Tries a peer's features: random cases, what they show, the smallest that shows it.

Runs inside the peer's own environment, with its ranks in processes of their own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ringside._extras import extra
from ringside.testing import Case, Disagreement, Report, check_context_parallel
from ringside.testing.peers import rank
from ringside.testing.peers.adapter import AdapterError, Feature, Peer, Supports, described
from ringside.testing.peers.drawing import cases, restricted
from ringside.testing.peers.failures import Failures
from ringside.testing.peers.here import found_here, gpus
from ringside.testing.peers.pools import Pools, Ring, preloaded
from ringside.testing.peers.repeat import script_of
from ringside.testing.peers.settings import Settings
from ringside.testing.peers.verdict import CPU, Covered, Verdict
from ringside.testing.processes import RankError, import_ahead

with extra("testing", "ringside peers"):
    import hypothesis

__all__ = ["try_peer"]

MAX_FAULTS = 3  # of one feature
AGAIN = 4  # runs of a case that was wrong, which tell whether it always is
SMALLER = 5  # so many cases that end a process look for a smaller one: each starts new processes
REFUSAL = re.compile(
    r"NotImplemented|[Uu]nsupported|[Nn]ot (yet )?(supported|implemented|support)|[Oo]nly supp"
)


def try_peer(
    folder: Path, names: list[str], settings: Settings, tell: Callable[[Verdict], None]
) -> None:
    """Tells the verdicts of a peer's features, of some of them by name.

    Args:
        folder: of the peer.
        names: of features; none for all of them.
        settings: see there.
        tell: is given each verdict as soon as it is known.
    """
    import_ahead(preloaded(described(folder)))
    peer = rank.ready(str(folder), settings.device)
    if settings.here:
        peer = found_here(peer)
    pools = Pools(folder, peer, settings)
    try:
        begin, step = settings.share
        for feature in peer.features[begin::step]:
            if not names or feature.name in names:
                for verdict in _Trial(peer, folder, feature, settings, pools).verdicts():
                    tell(verdict)
    finally:
        pools.close()


class _Trial:
    """One feature's cases, and what they showed."""

    def __init__(
        self, peer: Peer, folder: Path, feature: Feature, settings: Settings, pools: Pools
    ) -> None:
        self.peer, self.folder, self.feature, self.settings = peer, folder, feature, settings
        self.begin = time.monotonic()
        self.covered, self.ratio = Covered(), 0.0
        self.tried = 0
        self.seen: dict[str, Disagreement | None] = {}
        self.faults: dict[str, Disagreement] = {}
        self.hunted: str | None = None
        self.ended = 0  # cases of this hunt that ended a process
        self.pools = pools
        self.gpus = gpus() if settings.device == "cuda" else []

    def verdicts(self) -> Iterator[Verdict]:
        """One of all that agreed, or one for each fault."""
        supports = self._supports()
        if isinstance(supports, str):
            yield self._verdict("not drawn", told=supports)
            return
        self.ring = Ring(self.pools, self.feature, supports.nan)
        for size in supports.cp:
            self.pools.of(size).start()
        self.begin = time.monotonic()  # what a package imports is not of its budget
        self.earlier = Failures(self.settings.failures, self.folder.name, self.feature.name)
        while len(self.faults) < MAX_FAULTS and self._time_left():
            before = len(self.faults)
            self._run(supports)
            if len(self.faults) == before:
                break
        self.earlier.keep([failure.case for failure in self.faults.values()])
        if not self.faults:
            yield self._verdict("agrees")
        for fault, failure in self.faults.items():
            yield self._of_failure(fault, failure, supports)

    def _supports(self) -> Supports | str:
        """What is claimed, asked for and, with a GPU a rank, possible here."""
        claimed, axes = self.feature.supports, self.settings.axes
        if self.settings.device == "cuda":
            found = len(self.gpus) // claimed.gpus
            fit = tuple(x for x in axes.cp or claimed.cp if x <= found)
            if not fit:
                needed = min(claimed.cp) * claimed.gpus
                here = f"{len(self.gpus)} {'is' if len(self.gpus) == 1 else 'are'} here"
                return f"needs {needed} GPUs, and {here}"
            axes = dataclasses.replace(axes, cp=fit)
        return restricted(claimed, axes)

    def _beside(self) -> str:
        """Other packages, and whose kernels where the package calls flash_attn's."""
        own = f"{self.peer.package}=={self.peer.version}"
        others = [x.replace("==", " ") for x in self.peer.requirements if x != own]
        kernels = [rank.kernels_of(self.settings.device)] if self.peer.stand_in else []
        return ", ".join([*others, *kernels])

    def _time_left(self) -> bool:
        return time.monotonic() - self.begin < self.settings.budget_s

    def _run(self, supports: Supports) -> None:
        """Cases until one shows a fault that is not known yet, and then smaller ones."""
        self.hunted, self.ended = None, 0
        settings = hypothesis.settings(
            max_examples=self.settings.cases,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(hypothesis.HealthCheck),
            phases=[x for x in hypothesis.Phase if x is not hypothesis.Phase.explain],
        )
        test = settings(hypothesis.given(cases(supports))(self._one))
        with contextlib.redirect_stdout(sys.stderr):
            try:
                for case in self.earlier:
                    self._one(case)
                hypothesis.seed(self.settings.seed)(test)()
            except Disagreement as failure:
                self.faults[fault_of(failure)] = failure

    def _one(self, case: Case) -> None:
        """A case that has run before is not run again: what it showed is known."""
        key = repr(case)
        if key not in self.seen:
            if not self._time_left() or self.ended > SMALLER:
                return
            self.seen[key] = self._failure(case)
        failure = self.seen[key]
        if failure is None:
            return
        fault = fault_of(failure)
        if fault in self.faults or self.hunted not in (None, fault):
            return
        self.hunted = fault
        raise failure

    def _failure(self, case: Case) -> Disagreement | None:
        self.tried += 1
        try:
            report = self._check(case)
        except Disagreement as failure:
            ours = re.search(r"AdapterError: (.*)", failure.headline)
            if ours:
                raise AdapterError(ours[1]) from failure
            if isinstance(failure.__cause__, RankError):
                self.ended += 4 if failure.__cause__.how == "silent" else 1
            return failure
        self.covered.add(case)
        self.ratio = max(self.ratio, report.largest_ratio)
        return None

    def _check(self, case: Case) -> Report:
        """Once more, with more time, where a rank was silent: the machine may have been busy.

        Not where it is known to hang, and something else is looked for.
        """
        keywords: dict[str, Any] = {
            "backward": self.ring.backward,
            "demands": dataclasses.replace(self.feature.demands, **self.settings.demands),
        }
        try:
            return check_context_parallel(self.ring, case, **keywords)
        except Disagreement as failure:
            silent = isinstance(failure.__cause__, RankError) and failure.__cause__.how == "silent"
            if not silent or fault_of(failure) in self.faults:
                raise
        pool = self.pools.of(case.cp_size)
        before, pool.timeout_s = pool.timeout_s, 3 * pool.timeout_s
        try:
            return check_context_parallel(self.ring, case, **keywords)
        finally:
            pool.timeout_s = before

    def _of_failure(self, fault: str, failure: Disagreement, supports: Supports) -> Verdict:
        case, cause = failure.case, failure.__cause__
        if isinstance(cause, RankError):
            kind = {"silent": "hangs", "ended": "fails"}.get(cause.how) or (
                "refuses" if REFUSAL.search(str(cause)) else "fails"
            )
            return self._verdict(kind, fault, case, str(cause))
        kind = "silently wrong" if failure.finding is not None else "fails"
        told = str(failure.finding or failure.headline)
        wrong = 1 + sum(self._is_wrong(case) for _ in range(AGAIN))
        if wrong <= AGAIN:
            told += f"\nin {wrong} of {1 + AGAIN} runs of this case"
        return self._verdict(kind, fault, case, told, supports)

    def _is_wrong(self, case: Case) -> bool:
        """Once more: what reads memory that nobody wrote, or races, need not be wrong again."""
        try:
            self._check(case)
        except Disagreement:
            return True
        return False

    def _verdict(
        self,
        kind: str,
        fault: str = "",
        case: Case | None = None,
        told: str = "",
        supports: Supports | None = None,
    ) -> Verdict:
        peer, feature = self.peer, self.feature
        made = {}
        if case is not None:
            nan = supports is not None and supports.nan
            device = self.settings.device
            made["script"] = script_of(peer, self.folder, feature, case, nan=nan, device=device)
        return Verdict(
            *(peer.package, peer.version, feature.entry, feature.name, feature.claims, kind),
            cases=self.covered.cases if kind == "agrees" else self.tried,
            ratio=self.ratio,
            covered=self.covered.words(),
            smallest="" if case is None else repr(case),
            told=told,
            link=feature.link,
            fault=fault,
            device=self.gpus[0] if self.gpus else CPU,
            beside=self._beside(),
            seconds=round(time.monotonic() - self.begin, 1),
            **made,
        )


def fault_of(failure: Disagreement) -> str:
    """Failures of one fault have one name: which result is wrong, or what was raised."""
    if isinstance(failure.__cause__, RankError):
        told = re.sub(r"\d+|rank[s ,\d]*", "", str(failure.__cause__))
        return f"{failure.__cause__.how}: {told.splitlines()[0][:60]}"
    finding = failure._finding
    return finding.tensor if finding is not None else failure.headline.splitlines()[0][:60]
