"""Pictures of one query's answer: the weights of its keys, all together and part by part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringside._core import InvalidArgument, arguments
from ringside.learn.figures.paper import INK, RULE, SMALL, WRONG, paper, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTS = ("#9DBBDD", "#E8CF8E", "#B7D3A8")  # neutral: a part need not be a rank


def weights_of(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[keys] softmax of scores; of none, none.

    >>> weights_of(np.array([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    if not len(scores):
        return scores
    powers = np.exp(scores - scores.max())
    return np.asarray(powers / powers.sum())


def lse_of(scores: npt.NDArray[np.float64]) -> float:
    """Natural logarithm of the sum of exp(score); -inf of none.

    >>> lse_of(np.array([1000.0])), lse_of(np.array([]))
    (1000.0, -inf)
    """
    if not len(scores):
        return -np.inf
    return float(scores.max() + np.log(np.exp(scores - scores.max()).sum()))


def figure_of_halves(scores: npt.ArrayLike, split: int) -> Figure:
    """The weights of one query's keys: with all of them at hand, and in each half alone.

    Args:
        scores: [keys] q . k / sqrt(dim) of one query.
        split: the first half has so many keys, at least one and not all.

    >>> from ringside import learn
    >>> figure = learn.figure_of_halves([0.5, 2.0, -1.0, 3.0], 2)
    >>> [axis.get_title(loc="left") for axis in figure.axes]
    ['all keys: lse 3.38', 'first half: lse 2.20', 'second half: lse 3.02']
    """
    x = arguments.floating(scores, "scores")
    first = arguments.integer(split, "split")
    if x.ndim != 1 or not 1 <= first < len(x):
        raise InvalidArgument(
            f"got scores of shape {x.shape} and split={first}; expected [keys] and at least one "
            "key in each half. Pass such"
        )
    figure, axes = paper(8.4, 2.7, 1, 3, sharey=True)
    halves = (("all keys", 0, len(x)), ("first half", 0, first), ("second half", first, len(x)))
    for axis, (name, begin, end) in zip(axes, halves, strict=True):
        part = x[begin:end]
        colours = [PARTS[k >= first] for k in range(begin, end)]
        axis.bar(np.arange(begin, end), weights_of(part), 0.85, color=colours)
        plain(axis, f"{name}: lse {lse_of(part):.2f}")
        axis.set(xlim=(-0.6, len(x) - 0.4), xticks=[0, first, len(x) - 1], yticks=[0, 0.5, 1])
        axis.set_xlabel("key", fontsize=SMALL, color=INK)
    axes[0].set_ylabel("weight", fontsize=SMALL, color=INK)
    return figure


def figure_of_parts(parts: Sequence[Any], title: str) -> Figure:
    """The scores of a row's keys, part by part, and below them what is wrong.

    Args:
        parts: [keys] scores of each part.
        title: in words.

    >>> figure = figure_of_parts([np.array([0.0]), np.array([]), np.array([800.0])], "wrong")
    """
    figure, axes = paper(7.2, 2.4, 1, len(parts), sharey=True, squeeze=False)
    figure.suptitle(title, fontsize=SMALL, color=WRONG, x=0.01, ha="left")
    for number, (axis, scores) in enumerate(zip(axes[0], parts, strict=True)):
        _draw_part(axis, number, np.asarray(scores, float))
    if not any(len(scores) and np.any(scores) for scores in parts):
        axes[0, 0].set_ylim(-1, 1)  # as nothing else gives the axis a scale
    axes[0, 0].set_ylabel("score", fontsize=SMALL, color=INK)
    return figure


def _draw_part(axis: Axes, number: int, scores: npt.NDArray[np.float64]) -> None:
    """A dot a key, at its score."""
    places, colour = np.arange(len(scores)), PARTS[number % len(PARTS)]
    if len(scores):  # of no lines Matplotlib cannot tell where they lie
        axis.vlines(places, 0, scores, color=colour, linewidth=4)
        axis.plot(places, scores, "o", color=colour, markersize=13, clip_on=False)
    axis.axhline(0, color=RULE, linewidth=0.6, zorder=0)
    plain(axis, f"part {'abc'[number]}: lse {lse_of(scores):,.2f}")
    words = [(place, score, f"{score:,.0f}") for place, score in zip(places, scores, strict=True)]
    for place, score, word in words or [(0, 0, "no key")]:
        shift = (11, 0) if words else (-18, 7)
        text = axis.annotate(
            word, (place, score), shift, textcoords="offset points", fontsize=SMALL, color=INK
        )
        text.set(verticalalignment="center", in_layout=False)
    axis.set(xticks=places, xlim=(-0.7, max(len(scores), 1) - 0.3))
    axis.margins(y=0.3)
