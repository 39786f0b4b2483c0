"""Numbers and masks in words, as sentences and pictures say them."""

from __future__ import annotations

from ringside import _core


def mask_words(mask: _core.Mask) -> str:
    """A mask as people call it.

    >>> mask_words(_core.Mask.chunked(512)), mask_words(_core.Mask.sliding_window(256, 0))
    ('causal in chunks of 512', 'causal window of 256')
    """
    left, right = mask.window_size
    words = {(-1, -1): "full", (-1, 0): "causal"}.get((left, right))
    if words is None:
        sees = "everything" if left == -1 else f"{left} back"
        words = f"{sees}, {'everything' if right == -1 else right} ahead"
        words = f"causal window of {left}" if right == 0 else f"window ({words})"
    if mask.chunk_size:
        words += f" in chunks of {mask.chunk_size}"
    return words + (", bottom-right" if mask.align == "bottom_right" else "")


def count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "tile"), count(1200, "tile")
    ('1 tile', '1,200 tiles')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
