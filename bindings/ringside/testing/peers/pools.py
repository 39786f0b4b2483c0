"""Processes that run a peer's ranks, and a feature of it as a function of all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import ringside as rs
from ringside.testing.peers import rank
from ringside.testing.peers.adapter import Feature, Peer
from ringside.testing.peers.settings import Settings
from ringside.testing.processes import ProcessPerRank

__all__ = ["Pools", "Ring", "preloaded"]

RANK = rank.__name__


def preloaded(peer: Peer) -> tuple[str, ...]:
    """What processes find imported: one that ended is soon replaced."""
    return (*peer.preload, RANK)


class Pools:
    """Processes for each number of ranks, which outlast a feature."""

    def __init__(self, folder: Path, peer: Peer, settings: Settings) -> None:
        self.told: dict[str, Any] = {"folder": str(folder), "device": settings.device}
        self._settings: dict[str, Any] = {
            "arrays": peer.arrays,
            "preload": preloaded(peer),
            "given": tuple(self.told.values()),
            "device": settings.device,
        }
        self._case_s = settings.case_s
        self._made: dict[int, ProcessPerRank] = {}

    def of(self, size: int) -> ProcessPerRank:
        """Those of this size."""
        if size not in self._made:
            self._made[size] = ProcessPerRank(
                f"{RANK}:attend",
                size,
                setup=f"{RANK}:set_up",
                timeout_s=self._case_s,
                **self._settings,
            )
        return self._made[size]

    def close(self) -> None:
        """Ends all."""
        for pool in self._made.values():
            pool.close()


class Ring:
    """A feature as check_context_parallel takes it."""

    def __init__(self, pools: Pools, feature: Feature, nan: bool) -> None:
        self.name = f"{Path(pools.told['folder']).name}, {feature.name}"
        self._pools = pools
        self._told: dict[str, Any] = {**pools.told, "feature": feature.name}
        self._nan = nan
        self.backward = self._backward if feature.gradients else None

    def __call__(self, *arrays: Any, plan: rs.Plan, **options: Any) -> list[Any]:
        """(out, lse) or out of each rank."""
        given = self._given(arrays[:3])
        return self._pools.of(plan.cp_size)(*given, plan=plan, **self._told, **options)

    def _backward(self, *arrays: Any, plan: rs.Plan, **options: Any) -> list[Any]:
        pool = self._pools.of(plan.cp_size)
        return pool.backward(*self._given(arrays[:4]), plan=plan, **self._told, **options)

    def _given(self, arrays: tuple[Any, ...]) -> list[Any]:
        """With zeros in the padding where the package does not promise to keep NaN out."""
        if self._nan:
            return list(arrays)
        return [[np.where(np.isnan(x), 0, x).astype(x.dtype) for x in ranks] for ranks in arrays]
