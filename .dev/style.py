"""Rules of the house that no formatter knows; exits 1 on any offence that is not just a warning.

Run: python3 .dev/style.py (./dev style does). Standard library only.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import notebook_format
import rooms
import std_names

ROOT = Path(__file__).resolve().parent.parent
TOP_LEVEL = {
    *("reference", "optimized", "bindings", "notebooks", "property_tests", "data", "README.md"),
    *("CMakeLists.txt", "CMakePresets.json", "dev", "pyproject.toml", "LICENSE", "CHANGELOG.md"),
}
ORACLE_MAY_INCLUDE = {
    *("reference/rows/packed_layout.h", "reference/rows/mask.h", "reference/attention/oracle.h"),
    # Parameters and the dropout generator, no score arithmetic.
    "reference/attention/attention_options.h",
    "reference/support/interrupt.h",  # whether to go on
}
LEAVES = {"host_device.h", "mask.h", "segment.h", "partial.h", "philox.h"}
MAX_BYTES = 200_000
MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_KERNEL_LINES = 300, 40, 120


def own_files() -> list[Path]:
    """Files that are tracked, or new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(Path(name) for name in set(listed.split("\0")) if (ROOT / name).is_file())


def read(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def wrong_places(files: list[Path]) -> Iterator[str]:
    for name in sorted({path.parts[0] for path in files}):
        if name not in TOP_LEVEL and not name.startswith("."):
            yield f"{name}: not one of the rooms; expected only {', '.join(sorted(TOP_LEVEL))}"


def large_files(files: list[Path]) -> Iterator[str]:
    for path in files:
        size = (ROOT / path).stat().st_size
        if path.parts[0] != "data" and size > MAX_BYTES:
            yield f"{path}: {size} bytes; files over {MAX_BYTES} belong in data/"


def forbidden_includes(files: list[Path]) -> Iterator[str]:
    """The oracle must share nothing with what it judges; leaves include leaves only."""
    for path in files:
        if path.parts[0] != "reference" or path.suffix not in {".h", ".cpp"}:
            continue
        for number, name in rooms.includes(read(path)):
            if path.stem == "oracle" and name not in ORACLE_MAY_INCLUDE:
                allowed = ", ".join(sorted(ORACLE_MAY_INCLUDE))
                yield f'{path}:{number}: the oracle includes "{name}"; expected only {allowed}'
            if path.name in LEAVES and Path(name).name not in LEAVES:
                yield f'{path}:{number}: a leaf, shared with device code, includes "{name}"'


def cpp_functions(lines: list[str]) -> Iterator[tuple[int, int]]:
    """First and last line of each function at column 0 of formatted code."""
    begin = None
    for number, line in enumerate(lines, 1):
        if line.startswith("}"):
            if begin is not None:
                yield begin, number
            begin = None
        elif begin is None and re.match(r"[A-Za-z_].*\(", line) and not line.rstrip().endswith(";"):
            begin = number


def python_functions(text: str) -> Iterator[tuple[int, int]]:
    """First and last line of each body, docstring not counted."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            yield body[0].lineno, node.end_lineno or node.lineno


def long_code(files: list[Path]) -> Iterator[str]:
    for path in files:
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh", ".py"} or path.parts[0] == "data":
            continue
        text = read(path)
        lines = text.splitlines()
        if len(lines) > MAX_FILE_LINES:
            yield f"{path}: {len(lines)} lines; aim at {MAX_FILE_LINES} or fewer"
        limit = MAX_KERNEL_LINES if path.suffix in {".cu", ".cuh"} else MAX_FUNCTION_LINES
        functions = python_functions(text) if path.suffix == ".py" else cpp_functions(lines)
        for begin, end in functions:
            if end - begin + 1 > limit:
                count = end - begin + 1
                yield f"{path}:{begin}: a function of {count} lines; aim at {limit} or fewer"


def wrong_arrows(files: list[Path]) -> Iterator[str]:
    """Includes and imports that .dev/rooms.py does not know."""
    yield from rooms.climbing_rows()
    yield from rooms.wrong_includes(files, read)
    yield from rooms.wrong_imports(files, read)


def missing_includes(files: list[Path]) -> Iterator[str]:
    """Names of the standard library without the include that .dev/std_names.py knows."""
    yield from std_names.missing_includes(files, read)


def wrong_notebooks(files: list[Path]) -> Iterator[str]:
    """Notebooks that .dev/notebook_format.py would have otherwise."""
    yield from notebook_format.wrong_notebooks(files, ROOT)


def main() -> int:
    files = own_files()
    for warning in (*long_code(files), *rooms.crowded_folders(files)):
        print(f"warning: {warning}")
    checks = (
        *(wrong_places, large_files, forbidden_includes, wrong_arrows, missing_includes),
        wrong_notebooks,
    )
    errors = [error for check in checks for error in check(files)]
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
