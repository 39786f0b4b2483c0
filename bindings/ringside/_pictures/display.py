"""What notebooks show of a layout, a mask or a plan: small HTML, computed, without matplotlib.

A display never raises and never takes long: what is large is told in fewer words.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ringside import _core
from ringside._pictures.colours import (
    INK,
    SEEN,
    UNSEEN,
    Colours,
    hex_of,
    ink_on,
    rank_colours,
    rgb,
)
from ringside._pictures.mask import bytes_of, pixels_of
from ringside._pictures.png import Pixels, image_tag
from ringside._pictures.raster import EXACT, Shown, raster, seen, tokens_of
from ringside._words import count, mask_words

PIXELS = 160  # a side of a mask
STRIP_PIXELS, WIDTH = 480, 480
FEW = 8  # documents, ranks that are told one by one
QUICK_ROWS, QUICK_RANKS = 1 << 20, 64  # beyond, a display names a plan and measures nothing
SMALL = "font-size:12px;line-height:1.5"


def quietly(show: Callable[[Any], str]) -> Callable[[Any], str | None]:
    """A display that leaves the word to repr where it fails."""

    def display(value: Any) -> str | None:
        try:
            return show(value)
        except Exception:
            return None

    display.__doc__ = show.__doc__
    return display


def layout_html(layout: _core.PackedLayout) -> str:
    """Its documents as a strip, padding lightest; the first of them in a table."""
    padding = layout.num_rows - layout.num_tokens
    head = f"{count(layout.num_sequences, 'document')}, {count(layout.num_tokens, 'token')}"
    head += f", {count(padding, 'row')} of padding" if padding else ""
    rows = [
        (str(i), f"{start:,}", f"{length:,}", f"{padded:,}")
        for i, start, length, padded in zip(
            range(FEW),
            layout.cu_seqlens_padded.tolist(),
            layout.lengths.tolist(),
            layout.padded_lengths.tolist(),
            strict=False,
        )
    ]
    more = layout.num_sequences - len(rows)
    table = _table(("document", "first row", "tokens", "rows"), rows, more, "document")
    return _box("PackedLayout", head, _strip_of(layout), table)


def _strip_of(layout: _core.PackedLayout) -> str:
    shown = Shown.of(0, layout.num_rows, STRIP_PIXELS)
    if not len(shown.rows):
        return ""
    document, _, is_token = tokens_of(layout, shown.rows)
    shades = bytes_of(np.array([rgb("#BDC3CC"), rgb(SEEN), rgb(UNSEEN)]))
    pixels = shades[np.where(is_token, document % 2, 2)]
    return _stretched(np.repeat(pixels[None], 24, axis=0), "documents side by side, padding white")


def _stretched(pixels: Pixels, words: str) -> str:
    """At the width of all strips, one pixel of the image over as many as fit."""
    times = max(WIDTH // pixels.shape[1], 1)
    return image_tag(np.repeat(pixels, times, axis=1), pixels.shape[1] * times, words)


def mask_html(mask: _core.Mask) -> str:
    """Which keys queries see: as many queries as keys, and fewer, where the alignment shows."""
    far = max((x for x in (*mask.window_size, mask.chunk_size) if x > 0), default=0)
    keys = min(max(12, 3 * far), 4096)
    cells = []
    for queries, words in ((keys, "as many queries as keys"), (2 * keys // 3, "fewer queries")):
        layouts = _core.PackedLayout([0, queries]), _core.PackedLayout([0, keys])
        across = min(keys, PIXELS)
        shown = Shown.of(0, queries, across * queries // keys), Shown.of(0, keys, across)
        visible = seen(mask, layouts, shown)
        pixels = bytes_of(np.array([rgb(UNSEEN), rgb(SEEN)]))[visible.astype(int)]
        times = max(PIXELS // len(shown[1].rows), 1)
        pixels = pixels.repeat(times, axis=0).repeat(times, axis=1)
        alt = f"{queries:,} queries down, {keys:,} keys to the right, grey where one sees the other"
        cells.append(f"{image_tag(pixels, pixels.shape[1], alt)}<br>{words}")
    note = f"{count(keys, 'key')} to the right, queries down; grey is seen"
    return _box("Mask", mask_words(mask), _side_by_side(cells), note)


def plan_html(plan: _core.Plan) -> str:
    """Who computes which pair, whether verify() accepts it, and each rank's share of the work."""
    head = (
        f"{plan.partition} over {plan.comm}, {count(plan.cp_size, 'rank')}, "
        f"{mask_words(plan.mask)}: {count(plan.layout_q.num_sequences, 'document')}, "
        f"{count(plan.layout_q.num_tokens, 'token')}"
    )
    rows = max(plan.layout_q.num_rows, plan.layout_k.num_rows)
    if rows * plan.num_steps > QUICK_ROWS or plan.cp_size > QUICK_RANKS:
        return _box("Plan", head, "too large to be proved in a glance: see verify() and draw()")
    body = _side_by_side((_mask_of(plan), _ranks_of(plan)))
    return _box("Plan", head, body, _proof_of(plan))


def _mask_of(plan: _core.Plan) -> str:
    rows = max(plan.layout_q.num_rows, plan.layout_k.num_rows)
    longest = int(np.argmax(plan.layout_q.lengths)) if rows > EXACT else None
    image = raster(plan, longest, PIXELS)
    if not image.rank.size:
        return ""
    pixels = pixels_of(plan, image, rank_colours(plan.cp_size))
    times = max(PIXELS // max(image.rank.shape), 1)
    pixels = pixels.repeat(times, axis=0).repeat(times, axis=1)
    what = "" if longest is None else f"of document {longest}, the longest: "
    words = f"{what}a colour is the rank that computes a pair"
    alt = f"{words}; queries down, keys to the right"
    return f"{image_tag(pixels, pixels.shape[1], alt)}<br>{words}"


def _ranks_of(plan: _core.Plan) -> str:
    cost, colours = plan.cost(), rank_colours(plan.cp_size)
    blocks, pairs = cost.blocks.sum(axis=1), cost.pairs.sum(axis=1)
    most = max(int(pairs.max(initial=0)), 1)
    rows = [
        (
            _chip(str(rank), colours[rank]),
            f"{len(plan.row_indices(rank)):,}",
            f"{int(pairs[rank]):,} {_bar(int(pairs[rank]) / most, colours[rank])}",
            f"{int(blocks[rank]):,}",
        )
        for rank in range(min(plan.cp_size, FEW))
    ]
    names = ("rank", "query rows", "pairs", "blocks of 128 x 128")
    return _table(names, rows, plan.cp_size - len(rows), "rank")


def _proof_of(plan: _core.Plan) -> str:
    try:
        pairs = plan.verify().pairs
    except _core.PlanError as error:
        return f"<b>refused by verify():</b> {html.escape(str(error))}"
    return f"proved by verify(): each of {pairs:,} visible pairs computed once"


def _chip(text: str, colour: Colours) -> str:
    style = f"background:{hex_of(colour)};color:{ink_on(colour)};padding:0 6px"
    return f'<span style="{style}">{text}</span>'


def _bar(share: float, colour: Colours) -> str:
    style = f"display:inline-block;height:8px;width:{round(60 * share)}px"
    return f'<span style="{style};background:{hex_of(colour)};border:1px solid {INK}"></span>'


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], more: int, noun: str) -> str:
    cell = '<td style="text-align:left;padding:0 8px">{}</td>'
    lines = [names, *rows]
    body = "".join(f"<tr>{''.join(cell.format(x) for x in line)}</tr>" for line in lines)
    rest = f"<br>... and {count(more, f'more {noun}')}" if more > 0 else ""
    return f'<table style="{SMALL}">{body}</table>{rest}'


def _side_by_side(cells: Iterable[str]) -> str:
    cell = '<td style="text-align:left;vertical-align:top">{}</td>'
    inner = "".join(cell.format(x) for x in cells)
    return f'<table style="{SMALL}"><tr>{inner}</tr></table>'


def _box(kind: str, head: str, *parts: str) -> str:
    inner = "".join(f"<div>{part}</div>" for part in parts if part)
    return f'<div style="{SMALL}"><b>{kind}</b>: {html.escape(head)}{inner}</div>'


for _kind, _show in ((_core.PackedLayout, layout_html), (_core.Mask, mask_html)):
    setattr(_kind, "_repr_html_", quietly(_show))  # noqa: B010  (their stubs are of C++ alone)
