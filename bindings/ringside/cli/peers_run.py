"""Peers in their environments, several at a time, and what is printed of them meanwhile."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ringside.testing.peers import AdapterError, Peer, Verdict
from ringside.testing.peers.adapter import described
from ringside.testing.peers.environment import Absent, Environment
from ringside.testing.peers.here import Here, gpus
from ringside.testing.peers.settings import Settings
from ringside.testing.peers.verdict import CPU

__all__ = ["run"]

START_S = 300.0  # a peer may import for a minute, on a busy machine several


def run(
    folders: list[Path],
    place: Path,
    settings: Settings,
    features: list[str],
    verdicts: list[Verdict],
    *,
    install: bool,
    jobs: int,
) -> bool:
    """Whether an adapter was broken.

    Args:
        folders: of the peers.
        place: of their environments.
        settings: of the trials.
        features: names; none for all.
        verdicts: takes all of them in the end, also of a run that is interrupted.
        install: environments only.
        jobs: so many processes at a time, each of which tries a share of a peer's features.
    """
    shares = max(1, jobs // len(folders))
    told: list[list[list[Verdict]]] = []
    try:
        with ThreadPoolExecutor(jobs) as pool:
            made = list(pool.map(lambda folder: _environment(folder, place, settings), folders))
            verdicts.extend(x for x in made if isinstance(x, Verdict))
            environments = [x for x in made if isinstance(x, Environment) and not install]
            told = [[[] for _ in range(shares)] for _ in environments]
            work = [(x, i) for x in zip(environments, told, strict=True) for i in range(shares)]
            broken = pool.map(
                lambda x: _try(x[0][0], _share(settings, x[1], shares), features, x[0][1][x[1]]),
                work,
            )
            return any(list(broken))
    finally:
        verdicts.extend(verdict for of_peer in told for verdict in _in_order(of_peer))


def _share(settings: Settings, share: int, shares: int) -> Settings:
    return dataclasses.replace(settings, share=(share, shares))


def _environment(folder: Path, place: Path, settings: Settings) -> Environment | Verdict:
    """Where a peer runs, or that it is absent."""
    peer = described(folder)
    made = Here(folder, peer) if settings.here else Environment(place, folder, peer)
    try:
        made.install()
    except Absent as error:
        print(f"{folder.name}: absent, and not counted: {error}", flush=True)
        return _absent(peer, error, settings)
    print(f"{peer.package} {made.peer.version}: {made.root}", file=sys.stderr)
    return made


def _absent(peer: Peer, error: Absent, settings: Settings) -> Verdict:
    device = gpus()[0] if settings.device == "cuda" else CPU
    verdict = Verdict(peer.package, peer.version, "", "", "", "absent", told=str(error))
    return dataclasses.replace(verdict, device=device)


def _try(
    environment: Environment, settings: Settings, features: list[str], told: list[Verdict]
) -> bool:
    """Tells a share of a peer's verdicts as they come; whether its adapter is broken."""
    limit_s = START_S + 20 * (settings.budget_s + 60.0)
    try:
        for verdict in environment.run(features, settings, limit_s):
            told.append(verdict)
            print(verdict.words(), flush=True)
    except (AdapterError, RuntimeError) as error:
        print(f"{environment.folder.name}: broken adapter: {error}", flush=True)
        return True
    return False


def _in_order(shares: list[list[Verdict]]) -> Iterator[Verdict]:
    """Features in the order of the adapter, which were dealt to the shares in turn."""
    grouped = [
        [list(group) for _, group in itertools.groupby(share, key=lambda x: x.feature)]
        for share in shares
    ]
    for turn in itertools.zip_longest(*grouped, fillvalue=[]):
        yield from itertools.chain(*turn)
