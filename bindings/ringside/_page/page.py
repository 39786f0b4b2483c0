"""One offline file: template, style, script and data in one, and nothing else may be loaded."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ringside import _core

HEIGHT = 980  # pixels of a notebook's cell


class Page:
    """An interactive page of a plan, or of two, which shows itself in notebooks.

    Attributes:
        html: the whole of it.
        refusals: why each plan that was refused was; empty where all are proved.

    >>> import ringside as rs
    >>> page = rs.plan(rs.PackedLayout([0, 8]), cp_size=2).show()
    >>> page.html.startswith("<!DOCTYPE html>"), page.refusals
    (True, [])
    """

    def __init__(self, plans: Sequence[dict[str, Any]]) -> None:
        self.refusals = [plan["fault"]["text"] for plan in plans if plan["fault"]]
        self.html = _page(plans)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a file, which any browser opens.

        Args:
            path: where; its folder has to be there.

        Raises:
            InvalidArgument: no file can be written there.

        >>> import pathlib, tempfile, ringside as rs
        >>> path = pathlib.Path(tempfile.mkdtemp(), "plan.html")
        >>> rs.plan(rs.PackedLayout([0, 8]), cp_size=2).show().save(path)
        >>> path.stat().st_size < 100_000
        True
        """
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"path is a {type(path).__name__}; expected a path of a file to write")
        try:
            Path(path).write_text(self.html, encoding="utf-8")
        except OSError as error:
            raise _core.InvalidArgument(
                f"path {os.fspath(path)!r}: {error.strerror or error}; expected a file that can be "
                "written. Pass another, in a folder that is there"
            ) from None

    def __repr__(self) -> str:
        """Its size; what it shows is for a browser."""
        return f"<Page of {len(self.html.encode()) / 1000:,.0f} kB; save(path) writes it>"

    def _repr_html_(self) -> str:
        """In a notebook: a frame of its own, which may run its script and nothing else."""
        return (
            f'<iframe title="plan" sandbox="allow-scripts" width="100%" height="{HEIGHT}" '
            f'style="border:0" srcdoc="{html.escape(self.html)}"></iframe>'
        )


def _page(plans: Sequence[dict[str, Any]]) -> str:
    folder = files("ringside._page")
    template, style, script = (
        (folder / f"explorer.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js")
    )
    parts = {
        "title": html.escape(" | ".join(plan["title"] for plan in plans)),
        "policy": f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'",
        "style": style,
        "data": _embedded({"version": _core.__version__, "plans": plans}),
        "script": script,
    }
    for name, text in parts.items():
        template = template.replace(f"<!--{name}-->", text, 1)
    return template


def _hash(text: str) -> str:
    """By which a browser knows the one script and the one style that may be used."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _embedded(data: Any) -> str:
    """JSON that ends no script: names in it are the user's."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
