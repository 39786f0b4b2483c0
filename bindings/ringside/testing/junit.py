"""Results as JUnit XML, which other people's CI shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

__all__ = ["Result", "write_junit"]


@dataclasses.dataclass(frozen=True)
class Result:
    """One test.

    >>> from ringside.testing.junit import Result
    >>> Result("my ring", "causal", failure="out is wrong at row 1").skipped
    ''

    Args:
        suite: what was tested.
        name: of the test.
        seconds: how long it took.
        failure: why it failed, in words; "" where it did not.
        skipped: why it was not run; "" where it was.
        output: what else there is to say.
    """

    suite: str
    name: str
    seconds: float = 0.0
    failure: str = ""
    skipped: str = ""
    output: str = ""


def write_junit(path: Path, results: Sequence[Result]) -> None:
    """Writes them, a suite of tests for each.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_junit(Path(folder, "r.xml"), [Result("my ring", "causal", failure="a\\nb")])
    ...     text = Path(folder, "r.xml").read_text()
    >>> '<testsuite name="my ring" tests="1" failures="1" skipped="0"' in text
    True

    Args:
        path: the file.
        results: in any order.
    """
    root = ElementTree.Element("testsuites")
    for suite in dict.fromkeys(result.suite for result in results):
        own = [result for result in results if result.suite == suite]
        counts = {
            "tests": len(own),
            "failures": sum(bool(result.failure) for result in own),
            "skipped": sum(bool(result.skipped) for result in own),
        }
        attributes = {name: str(count) for name, count in counts.items()}
        of_suite = ElementTree.SubElement(root, "testsuite", {"name": suite, **attributes})
        for result in own:
            _add(of_suite, result)
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _add(suite: ElementTree.Element, result: Result) -> None:
    attributes = {"classname": result.suite, "name": result.name, "time": f"{result.seconds:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    for tag, text in (("failure", result.failure), ("skipped", result.skipped)):
        if text:
            first = text.splitlines()[0]
            ElementTree.SubElement(case, tag, {"message": _legal(first)}).text = _legal(text)
    if result.output:
        ElementTree.SubElement(case, "system-out").text = _legal(result.output)


def _legal(text: str) -> str:
    """XML has no way to write control characters, which a package may print."""
    return "".join(x for x in text if x.isprintable() or x in "\n\t")
