"""Which colour is which rank, and what can be read on it. Needs NumPy alone."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np
import numpy.typing as npt

LIGHTEST = 0.6  # how much white the last step holds
# Paul Tol's qualitative schemes "bright" and "muted", safe for colour-blind readers; ranks beyond
# them take hues from a circle.
TOL = (
    *("#4477AA", "#EE6677", "#CCBB44", "#228833"),
    *("#66CCEE", "#AA3377", "#332288", "#999933"),
)
UNSEEN, PADDED, INK = "#FFFFFF", "#D5D8DE", "#4A4F5A"
SEEN, BLACK = "#9AA1AD", "#1B1D22"  # of no rank: seen, and seen though nobody computes it
Colours = npt.NDArray[np.float64]


def rgb(text: str) -> Colours:
    """[3] of "#RRGGBB", 0 to 1.

    >>> rgb("#FF0080").round(2).tolist()
    [1.0, 0.0, 0.5]
    """
    return np.array([int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def hex_of(colour: Colours) -> str:
    """The inverse of rgb.

    >>> hex_of(rgb("#4477AA"))
    '#4477AA'
    """
    return "#" + "".join(f"{round(float(x) * 255):02X}" for x in colour)


def rank_colours(cp_size: int) -> Colours:
    """[cp_size, 3] RGB.

    >>> rank_colours(3).shape, len(np.unique(rank_colours(64), axis=0))
    ((3, 3), 64)
    """
    if cp_size <= len(TOL):
        return np.array([rgb(colour) for colour in TOL[:cp_size]]).reshape(-1, 3)
    values = (0.85, 0.6)
    return np.array(
        [colorsys.hsv_to_rgb(rank / cp_size, 0.75, values[rank % 2]) for rank in range(cp_size)]
    )


def lightened(colours: Colours, step: Any, num_steps: int) -> Colours:
    """The colours as of a step: the first one full, the last one, and what follows it, lightest."""
    last = max(num_steps - 1, 1)
    white = LIGHTEST * np.clip(step, 0, last) / last
    return np.asarray(colours + (1 - colours) * white[..., None])


def luminance(colour: Colours) -> float:
    """Relative luminance as WCAG defines it, 0 (black) to 1 (white)."""
    linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: Colours, other: Colours) -> float:
    """WCAG's contrast ratio, 1 to 21; text wants 4.5.

    >>> round(contrast(rgb("#000000"), rgb("#FFFFFF")))
    21
    """
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def ink_on(colour: Colours) -> str:
    """Black or white, whichever reads better; one of them always has 4.5.

    >>> ink_on(rgb("#332288")), ink_on(rgb("#CCBB44"))
    ('white', 'black')
    """
    black, white = np.zeros(3), np.ones(3)
    return "black" if contrast(black, colour) >= contrast(white, colour) else "white"
