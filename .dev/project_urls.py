"""The package's project URLs: where the sources that are built came from, as git knows it.

A provider of dynamic metadata for scikit-build-core (pyproject.toml). A clone of a public address
gives its wheels and archives that address; an archive keeps what it was made with; sources with
neither have no URL rather than a wrong one. Standard library only.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def public_address(remote: str) -> str:
    """The https address of a remote that has one, else nothing.

    >>> public_address("git@git.example.org:team/ringside.git")
    'https://git.example.org/team/ringside'
    >>> public_address("https://user:secret@git.example.org/ringside.git")
    'https://git.example.org/ringside'
    >>> public_address("/home/me/ringside"), public_address("../ringside.git")
    ('', '')
    """
    found = re.fullmatch(
        r"(?:(?:https?|ssh|git)://)(?:[^@/]*@)?([^/:]+)(?::\d+)?/(.+?)(?:\.git)?/?", remote
    ) or re.fullmatch(r"[\w.-]+@([^/:]+):(.+?)(?:\.git)?/?", remote)
    return f"https://{found[1]}/{found[2]}" if found else ""


def urls_of_clone(root: Path) -> dict[str, str]:
    """Of the remote `origin`, where the folder is the top of a clone."""
    if not (root / ".git").exists():
        return {}
    run = subprocess.run(
        ["git", "-C", str(root), "remote", "get-url", "origin"],
        capture_output=True,
        text=True,
        check=False,
    )
    address = public_address(run.stdout.strip()) if run.returncode == 0 else ""
    if not address:
        return {}
    changes = f"{address}/blob/main/CHANGELOG.md"
    return {"Source": address, "Changelog": changes}


def urls_of_archive(root: Path) -> dict[str, str]:
    """Those that a source archive was made with."""
    information = root / "PKG-INFO"
    if not information.exists():
        return {}
    said = HeaderParser().parsestr(information.read_text(encoding="utf-8"))
    pairs = [x.split(", ", 1) for x in said.get_all("Project-URL", [])]
    return {name: address for name, address in pairs}


def dynamic_metadata(field: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Called by scikit-build-core for `urls`."""
    if field != "urls" or settings:
        raise RuntimeError(
            f"project_urls gives urls and takes no settings; got {field}, {settings}"
        )
    return urls_of_clone(ROOT) or urls_of_archive(ROOT)
