"""Sections of documents that scripts write, between two marks each. Standard library only."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def replaced(text: str, begin: str, end: str, section: str) -> str:
    """The text with another section between its marks, which stand there once each."""
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"expected one line {begin} and one line {end} in the document")
    before, rest = text.split(begin)
    return before + section + rest.split(end)[1]


README, MEASURED = "README.md", "data/results/README.md"


def main(
    about: str,
    what: str,
    wanted: Callable[[str], str],
    arguments: list[str] | None,
    document: str = README,
) -> int:
    """Rewrites a document, or says by --check whether that would change it.

    Args:
        about: the script, in words.
        what: is not in step, if it is not.
        wanted: makes the document's text of today from the one that is there.
        arguments: of the command line.
        document: which, from the root.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if it would")
    options, path = parser.parse_args(arguments), ROOT / document
    text = path.read_text(encoding="utf-8")
    new = wanted(text)
    if new == text:
        return 0
    if options.check:
        print(f"{document}: {what}; run python3 {Path(sys.argv[0]).name} in .dev")
        return 1
    path.write_text(new, encoding="utf-8")
    return 0
