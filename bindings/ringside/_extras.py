"""Packages that only a part of ringside needs, by the extra that brings them.

`import ringside`, plans, attention and verify() need NumPy alone.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator

EXTRAS = {
    "cli": ("typer", "rich"),
    "plot": ("matplotlib",),
    "testing": ("hypothesis",),
    "learn": ("matplotlib", "hypothesis", "jupyterlab"),
}
"""As pyproject.toml has them."""


class MissingExtra(ModuleNotFoundError):
    """A package that is not installed, and what to install for it; an ImportError."""


@contextlib.contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Around imports of an extra's packages: says what to install where one is missing.

    Args:
        name: of EXTRAS.
        what: needs them, in words.

    Raises:
        MissingExtra: one of the packages is not there. What else cannot be imported is not hidden.

    >>> with extra("plot", "a picture"):
    ...     raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
    Traceback (most recent call last):
    ringside._extras.MissingExtra: got no package matplotlib; expected it, which a picture needs; \
fix: pip install matplotlib
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS[name] or isinstance(error, MissingExtra):
            raise
        raise MissingExtra(
            f"got no package {package}; expected it, which {what} needs; "
            f"fix: pip install {' '.join(EXTRAS[name])}",
            name=package,
        ) from None


def require(name: str, what: str) -> None:
    """Raises MissingExtra before anything is computed; arguments as for extra()."""
    with extra(name, what):
        for package in EXTRAS[name]:
            importlib.import_module(package)
