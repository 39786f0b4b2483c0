"""The table of GPU support in data/results says what the results say, gaps too."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = {
    "gpu": "A GPU",
    "driver": "1.2",
    "commit": "0123456789",
    "kernel_families": ["mma", "float32"],
    "sanitizers": "memcheck: ERROR SUMMARY: 0 errors; racecheck: SUMMARY: 0 hazards displayed",
    "tests": {"passed": 7, "failed": 1, "skipped": 0, "error": 0},
    "cases": {f"mma float16 {p} p2p": 2 for p in ("contiguous", "zigzag", "striped", "custom")},
    "worst_error_over_tolerance": {
        "mma float16 zigzag p2p out": 0.25,
        "mma float16 zigzag p2p lse": 0.5,
        "mma float16 zigzag a2a+p2p out": 0.75,
    },
}


@pytest.fixture
def table():
    path = ROOT / ".dev" / "support_table.py"
    spec = importlib.util.spec_from_file_location("support_table", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cells_count_cases_name_gaps_and_give_the_worst_error(table):
    lines = list(table.table_of(RESULTS))
    assert "7 tests passed, 1 failed; compute-sanitizer found nothing" in lines[0]
    assert lines[2] == "| arrays | kernels | p2p | all_gather | a2a | a2a+p2p | fetch |"
    assert lines[4:] == [
        "| float16 | mma | 8 (0.50), not whole_pack, whole_pack_zigzag, balanced | untested | "
        "untested | untested | untested |"
    ]


@pytest.mark.parametrize(
    "found",
    [
        "memcheck: ERROR SUMMARY: 3 errors",
        "racecheck: RACECHECK SUMMARY: 92 hazards displayed (92 errors, 0 warnings)",
    ],
)
def test_sanitizers_that_found_something_are_quoted(table, found):
    assert found in next(iter(table.table_of({**RESULTS, "sanitizers": found})))
    assert "did not run" in next(iter(table.table_of({**RESULTS, "sanitizers": ""})))


def test_only_the_marked_section_is_rewritten(table, tmp_path):
    results = tmp_path / "gpu_a.json"
    results.write_text(json.dumps(RESULTS))
    readme = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    written = table.updated(readme, [results])
    assert written.startswith("before\n") and written.endswith("\nafter\n")
    assert "old" not in written and "A GPU" in written
    assert table.updated(written, [results]) == written
    with pytest.raises(SystemExit, match="expected one line"):
        table.updated("no marks", [results])


def test_the_document_is_in_step(table):
    readme = (ROOT / "data/results/README.md").read_text(encoding="utf-8")
    results = sorted((ROOT / "data" / "results").glob("gpu_*.json"))
    assert table.updated(readme, results) == readme
