"""What a rank of a peer runs: its process reads the adapter, and calls the package."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

import ringside as rs
from ringside.testing.peers.adapter import AdapterError, Peer, described, load

__all__ = ["attend", "kernels_of", "ready", "set_up"]


RINGSIDE = Path(rs.__file__).parent
TORCHS, TORCHS_PART = "flash_attn by torch's kernels", "ringside.testing.peers.part_torchs_kernels"
PLAYED = contextlib.ExitStack()  # for the life of the process
atexit.register(PLAYED.close)


@functools.cache
def ready(folder: str, device: str) -> Peer:
    """The peer, read once; flash_attn is played from then on where it asks for that.

    On a GPU it is the real one or, where that is not installed, what torch has compiled in of it.
    """
    if described(Path(folder)).stand_in:  # before the package looks for it
        _play(device)
    peer = load(Path(folder))
    if jax := sys.modules.get("jax"):
        jax.config.update("jax_traceback_filtering", "off")  # frames tell whose an error is
    return peer


def _play(device: str) -> None:
    if device == "cpu":
        from ringside.testing import stand_ins

        PLAYED.enter_context(stand_ins.flash_attn_installed())
    elif kernels_of(device) == TORCHS:
        importlib.import_module(TORCHS_PART)


def kernels_of(device: str) -> str:
    """Whose kernels a call of flash_attn gets, in words.

    >>> kernels_of("cpu")
    'flash_attn played'
    """
    if device == "cpu":
        return "flash_attn played"
    if TORCHS_PART in sys.modules or importlib.util.find_spec("flash_attn") is None:
        return TORCHS
    return f"flash_attn {importlib.metadata.version('flash_attn')}"


def set_up(folder: str, device: str) -> None:
    """Reads the adapter, and imports what it calls, before the first case is timed."""
    ready(folder, device)


def attend(
    q: Any, k: Any, v: Any, *, plan: rs.Plan, folder: str, device: str, feature: str, **options: Any
) -> Any:
    """out, or (out, lse), of this rank's rows.

    Args:
        q, k, v: tensors of the rank's own rows.
        plan: of the case.
        folder: of the peer.
        device: "cpu" or "cuda".
        feature: which of its features.
        options: softmax_scale.
    """
    chosen = ready(folder, device).feature(feature)
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
    """Whether installed code raised it, Python or compiled, and not calls.py, which called it.

    What calls.py hands to a package, to be traced say, is its own still.
    """
    if isinstance(error, RuntimeError | AssertionError):
        return True
    frames = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    others = [file for file in frames if not file.is_relative_to(RINGSIDE)]  # it may be installed
    return bool(others) and "site-packages" in others[-1].parts
