"""Which folder may use which: one table for C++ includes and one for Python imports.

A folder not in the table, an arrow not in its row and an arrow of tests from below are errors of
.dev/style.py. A new arrow is a decision: it is made here, where all can see that it points down.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

MAX_FILES = 24  # of one folder; more hide the structure

# Leaves first: a folder stands below all that it may include.
MAY_INCLUDE = {
    "reference/support": set(),
    "reference/rows": {"reference/support"},
    "reference/plan": {"reference/support", "reference/rows"},
    "reference/verify": {"reference/support", "reference/rows", "reference/plan"},
    "reference/partition": {"reference/support", "reference/rows", "reference/plan"},
    "reference/transport": {
        *("reference/support", "reference/rows", "reference/plan"),
        *("reference/verify", "reference/partition"),
    },
    "reference/attention": {"reference/support", "reference/rows", "reference/plan"},
    "reference/execute": {"reference/support", "reference/plan", "reference/attention"},
    "reference/thd": {
        *("reference/support", "reference/rows", "reference/verify", "reference/partition"),
    },
    "reference/schedule": {"reference/support", "reference/rows", "reference/plan"},
    "reference/schedule/verify": {
        *("reference/support", "reference/verify", "reference/schedule"),
    },
    "reference/schedule/run": {
        *("reference/support", "reference/attention", "reference/execute", "reference/schedule"),
    },
    "reference/estimate": {
        *("reference/support", "reference/rows", "reference/plan", "reference/verify"),
        *("reference/transport", "reference/schedule"),
    },
    "reference/sockets": {"reference/support", "reference/schedule/run"},
    "reference/test_support": set(),
    "optimized/device": {"reference/support"},
    "optimized/tables": {
        *("reference/support", "reference/rows", "reference/plan"),
        *("reference/partition", "reference/transport", "reference/schedule"),
    },
    "optimized/tables/schedules": {
        *("reference/support", "reference/rows", "reference/schedule", "optimized/tables"),
    },
    "optimized/tables/sums": {
        *("reference/support", "reference/rows", "reference/transport", "optimized/tables"),
    },
    "optimized/tables/thd": {"reference/support", "reference/thd", "optimized/tables"},
    "optimized/attention": {"reference/attention", "optimized/device", "optimized/tables"},
    "optimized/attention/f32": {
        *("reference/rows", "reference/attention"),
        *("optimized/device", "optimized/tables", "optimized/attention"),
    },
    "optimized/attention/mma": {"optimized/device", "optimized/tables", "optimized/attention"},
    "optimized/attention/hopper/machine": {"reference/support", "optimized/device"},
    "optimized/attention/hopper": {
        "optimized/tables",
        *("reference/support", "reference/rows", "optimized/attention"),
        "optimized/attention/hopper/machine",
    },
    "optimized/attention/hopper/forward": {
        *("reference/attention", "reference/rows"),
        *("optimized/device", "optimized/tables", "optimized/attention"),
        *("optimized/attention/hopper/machine", "optimized/attention/hopper"),
    },
    "optimized/attention/hopper/forward/instances": {"optimized/attention/hopper/forward"},
    "optimized/attention/hopper/backward/shared": {
        *("optimized/tables", "optimized/attention"),
        *("optimized/attention/hopper/machine", "optimized/attention/hopper"),
    },
    "optimized/attention/hopper/backward/produce": {
        *("optimized/tables", "optimized/tables/sums", "optimized/attention/hopper"),
        *("optimized/attention/hopper/machine", "optimized/attention/hopper/backward/shared"),
    },
    "optimized/attention/hopper/backward/consume": {
        *("optimized/attention/hopper/machine", "optimized/attention/hopper/backward/shared"),
    },
    "optimized/attention/hopper/backward/send": {
        *("optimized/attention/hopper/machine", "optimized/attention/hopper/backward/shared"),
    },
    "optimized/attention/hopper/backward": {
        *("optimized/device", "optimized/tables", "optimized/attention", "optimized/attention/mma"),
        *("optimized/attention/hopper/machine", "optimized/attention/hopper"),
        *("optimized/attention/hopper/backward/shared", "optimized/attention/hopper/backward/send"),
        "optimized/attention/hopper/backward/produce",
        "optimized/attention/hopper/backward/consume",
    },
    "optimized/attention/hopper/backward/instances": {"optimized/attention/hopper/backward"},
    "optimized/exchange": {"reference/attention", "optimized/device", "optimized/tables"},
    "optimized/thd": {"optimized/device", "optimized/tables/thd"},
    "optimized/links": {
        *("reference/support", "optimized/device", "optimized/tables"),
        "optimized/tables/schedules",
    },
    "optimized/program": {
        *("reference/support", "reference/plan", "optimized/device", "optimized/tables"),
        *("optimized/tables/schedules", "optimized/tables/sums", "optimized/attention"),
        *("optimized/exchange", "optimized/links"),
    },
    "optimized/program/conformance": {
        *("reference/execute", "optimized/attention", "optimized/device", "optimized/program"),
        *("optimized/tables", "optimized/tables/sums"),
    },
    "optimized/ranks": {
        *("reference/rows", "reference/schedule", "optimized/device", "optimized/tables"),
        *("optimized/tables/schedules", "optimized/program", "optimized/links"),
    },
    "optimized/interpreter/machine": set(),
    "optimized/interpreter/text": {"optimized/interpreter/machine"},
    "optimized/interpreter/instructions": {
        *("optimized/interpreter/machine", "optimized/interpreter/text"),
    },
    "optimized/interpreter/runtime": {"optimized/interpreter/machine"},
    "bindings/core": {
        *("reference/support", "reference/rows", "reference/plan", "reference/verify"),
        *("reference/partition", "reference/transport", "reference/attention"),
        *("reference/execute", "reference/thd", "reference/schedule"),
        *("reference/schedule/run", "reference/schedule/verify"),
        *("reference/estimate", "reference/sockets"),
    },
    "bindings/cuda": {
        *("reference/support", "reference/verify", "reference/thd", "bindings/core"),
        *("optimized/attention", "optimized/device", "optimized/tables", "optimized/program"),
        *("optimized/tables/thd", "optimized/thd", "optimized/links", "optimized/ranks"),
    },
}
# Tests of a folder may also make random cases and plans, and try what they test on all of them.
TESTS_MAY_INCLUDE = {name for name in MAY_INCLUDE if name.startswith("reference/")}

# Of the package; "" is its face (ringside/__init__.py), which re-exports what users call.
MAY_IMPORT = {
    "_core": set(),
    "_extras": set(),
    "_json": set(),
    "_rows": {"_core"},
    "_words": {"_core"},
    "_pictures": {"_core", "_extras", "_words"},
    "_arguments": {"_core"},
    "_attention": {"_core", "_arguments"},
    "_arrays": {"_core", "_attention"},
    "_group": {"_core"},
    "_ranks": {"_core", "_arguments", "_attention", "_arrays", "_group"},
    "_time": {"_core", "_json"},
    "_page": {"_core", "_pictures"},
    "_plan": {
        *("_core", "_extras", "_rows", "_arguments", "_attention", "_arrays", "_group", "_ranks"),
        *("_words", "_pictures", "_page", "_time", "_json"),
    },
    "_plan/device": {
        *("_core", "_arguments", "_attention", "_arrays", "_group", "_ranks", "_plan"),
    },
    "thd": {"_core", "_rows", "_arguments", "_arrays"},
    "lengths": {"_core", "_json"},
    "flash": {"_core", "_arguments", "_attention"},
    "micro_sequences": {"_core", "_arguments", "_plan"},
    "": {
        *("_core", "_arguments", "_attention", "_group", "_pictures", "_plan", "_plan/device"),
        *("_time", "thd", "lengths"),
        *("flash", "micro_sequences"),
    },
    "_torch_operator": {"_attention", "_arrays", "_plan", "_plan/device"},
    "_torch_arguments": {"_core", "_plan", "_plan/device"},
    "_torch_traced": {"_core"},
    "torch": {
        *("_core", "_attention", "_arrays", "_group", "_plan", "_plan/device"),
        *("_torch_arguments", "_torch_operator", "_torch_traced"),
    },
    "testing/_libraries": {"", "_rows"},
    "testing": {"", "_core", "_extras", "_rows", "_attention", "_plan", "testing/_libraries"},
    "testing/faults": {"", "_extras", "testing"},
    "testing/stand_ins": {""},
    "testing/peers": {"", "_extras", "testing", "testing/stand_ins"},
    "learn/figures": {"", "_core", "_extras", "_pictures", "_plan"},
    "learn/faults": {"_core", "_rows", "testing"},
    "learn": {
        *("", "_core", "_extras", "_rows", "_time", "_plan", "lengths", "testing"),
        *("learn/figures", "learn/faults"),
    },
    "_bench": {"", "_core", "_plan", "_time", "lengths", "thd", "testing"},
    "_bench/gpu": {
        *("", "_core", "_plan", "_plan/device", "_time", "_arrays", "_group", "thd", "torch"),
        *("testing", "lengths", "_bench"),
    },
    "cli": {
        *("", "_core", "_extras", "_group", "_plan", "_time", "_words", "lengths", "testing"),
        *("_bench", "_bench/gpu", "_page", "_pictures", "testing/peers", "learn"),
    },
    "__main__": {"cli"},
}
PACKAGE = Path("bindings/ringside")

Read = Callable[[Path], str]


def includes(text: str) -> Iterator[tuple[int, str]]:
    """Line and path of every include of a file of ours."""
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r'\s*#\s*include\s*"([^"]+)"', line):
            yield number, match[1]


def wrong_includes(files: list[Path], read: Read) -> Iterator[str]:
    """Arrows between C++ folders that the table does not have."""
    for path in files:
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"} or "consumer_test" in path.parts:
            continue
        here = str(path.parent)
        is_test = path.stem.endswith("_test") or path.name.startswith("test_")
        allowed = MAY_INCLUDE.get(here)
        if allowed is None:
            yield f"{path}: .dev/rooms.py has no row for {here}; add one below what uses it"
            continue
        allowed = allowed | (TESTS_MAY_INCLUDE if is_test else set()) | {here}
        for number, name in includes(read(path)):
            if (there := str(Path(name).parent)) not in allowed:
                yield f"{path}:{number}: {here} includes {there}; expected {sorted(allowed)}"


def room_of(module: str, modules: set[str]) -> str:
    """The row of MAY_IMPORT for a module of the package: its folder, or itself at the top."""
    parts = module.split(".")[1:]
    is_package = any(other.startswith(module + ".") for other in modules)
    if len(parts) > 1 and not is_package:
        parts = parts[:-1]
    return "/".join(parts)


def module_of(path: Path) -> str:
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


def imports(text: str, modules: set[str]) -> Iterator[tuple[int, str]]:
    """Line and module of every import of the package's own, at any depth of the code."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            whole = [f"{origin}.{name.name}" for name in node.names]
            names = [name if name in modules or name in EXTENSIONS else origin for name in whole]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "ringside":
                yield node.lineno, name


EXTENSIONS = {"ringside._core", "ringside._cuda_core"}


def wrong_imports(files: list[Path], read: Read) -> Iterator[str]:
    """Arrows between folders of the Python package that the table does not have."""
    sources = [path for path in files if path.suffix == ".py" and PACKAGE in path.parents]
    modules = {module_of(path) for path in sources}
    for path in sources:
        here = room_of(module_of(path), modules)
        if here not in MAY_IMPORT:
            yield f"{path}: .dev/rooms.py has no row for {here}; add one below what uses it"
            continue
        allowed = MAY_IMPORT[here] | {here}
        for number, module in imports(read(path), modules):
            if (there := room_of(module, modules)) not in allowed:
                yield f"{path}:{number}: {here} imports {there}; expected {sorted(allowed)}"


def climbing_rows() -> Iterator[str]:
    """Rows that may use something below them in the table: all arrows point one way."""
    for table in (MAY_INCLUDE, MAY_IMPORT):
        rows = list(table)
        for place, (row, allowed) in enumerate(table.items()):
            for name in sorted(allowed):
                if name not in rows[:place]:
                    yield f".dev/rooms.py: {row} may use {name}, which does not stand above it"


def crowded_folders(files: list[Path]) -> Iterator[str]:
    """Folders whose listing hides their structure. reference/ keeps a test beside each source."""
    counts = Counter(path.parent for path in files if not path.stem.endswith("_test"))
    for folder, count in sorted(counts.items()):
        if count > MAX_FILES:
            yield f"{folder}: {count} files; aim at {MAX_FILES} or fewer"
