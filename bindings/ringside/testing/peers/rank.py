"""What a rank of a peer runs: its process reads the adapter, and calls the package."""

from __future__ import annotations

import contextlib
import functools
import os
import traceback
from pathlib import Path
from typing import Any

import ringside as rs
from ringside.testing.peers.adapter import AdapterError, Peer, load

__all__ = ["attend", "set_up"]

FOLDER = "RINGSIDE_PEER"

PLAYED = contextlib.ExitStack()  # never closed: for the life of the process


@functools.cache
def _ready(folder: str) -> Peer:
    """The peer, read once; flash_attn is played from then on where it asks for that."""
    peer = load(Path(folder))
    if peer.stand_in:
        from ringside.testing import stand_ins

        PLAYED.enter_context(stand_ins.flash_attn_installed())
    return peer


def set_up() -> None:
    """Reads the adapter, and imports what it calls, before the first case is timed."""
    _ready(os.environ[FOLDER])


def attend(
    q: Any, k: Any, v: Any, *, plan: rs.Plan, folder: str, feature: str, **options: Any
) -> Any:
    """out, or (out, lse), of this rank's rows.

    Args:
        q, k, v: tensors of the rank's own rows.
        plan: of the case.
        folder: of the peer.
        feature: which of its features.
        options: softmax_scale.
    """
    chosen = _ready(folder).feature(feature)
    try:
        arguments = chosen.arguments(plan, options["softmax_scale"])
    except Exception as error:
        raise AdapterError(f"{folder}: {type(error).__name__}: {error}. It is ours") from error
    try:
        return chosen.call(q, k, v, **arguments)
    except Exception as error:
        if not _of_a_package(error):
            told = f"{folder}: calls.py: {type(error).__name__}: {error}. It is ours"
            raise AdapterError(told) from error
        raise


def _of_a_package(error: BaseException) -> bool:
    """Whether it was raised in installed code, which calls.py called; else calls.py is wrong."""
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return any("site-packages" in file for file in frames)
