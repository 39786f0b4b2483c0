"""The table of several GPUs in data/results says what was measured."""

import csv

import marked
import pytest
import scaling_table
from ringside._bench.gpu.ranks import Line, ways_of

LINES = [
    Line("16k", "16/16", "zigzag", "p2p", "peer", 2, 4.0, 7.0, 0.875, 400.0, 3.5, 1.0, 1.0, 0.1),
    Line("16k", "16/16", "zigzag", "a2a", "nccl", 2, 5.0, 7.0, 0.7, 300.0, 3.5, 1.0, 1.0, 0.2),
    Line(*("16k", "16/16", "torch context_parallel", "alltoall", "nccl", 2, 8.5, 7.0, 0.4, 200.0),
         *(6.0, 1.0, 2.0, 0.1)),
    Line("64k", "32/8", "balanced", "fetch", "peer", 4, 60.0, 230.0, 0.96, 490.0, 58, 1, 1, 0.02),
]  # fmt: skip


@pytest.fixture
def results(tmp_path):
    path = tmp_path / "bench_cp_a_gpu.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([Line._fields, *LINES])
    return path


def test_the_quickest_plan_of_each_pack_is_named_beside_pytorch(results):
    written = scaling_table.section([results]).splitlines()
    assert written[2].count("GPUs: quickest plan") == 2
    assert written[4] == (
        "| 16k | 16/16 | 7.0 | zigzag, p2p, peer | 4.00 | 0.88 | 10 % | 8.50 |  |  |  |  |  |"
    )
    assert written[5] == (
        "| 64k | 32/8 | 230.0 |  |  |  |  |  | balanced, fetch, peer | 60.00 | 0.96 | 2 % |  |"
    )


def test_only_the_marked_section_is_rewritten(results):
    readme = f"before\n{scaling_table.BEGIN}\nold\n{scaling_table.END}\nafter\n"
    written = scaling_table.updated(readme, [results])
    assert written.startswith("before\n") and written.endswith("\nafter\n") and "old" not in written
    assert scaling_table.updated(written, [results]) == written
    with pytest.raises(SystemExit, match="expected one line"):
        scaling_table.updated("no marks", [results])


def test_the_document_is_in_step(capsys):
    assert scaling_table.main(["--check"]) == 0, capsys.readouterr().out


def test_what_is_out_of_step_is_said_and_left(monkeypatch, tmp_path, capsys):
    (tmp_path / "README.md").write_text("old")
    monkeypatch.setattr(marked, "ROOT", tmp_path)
    assert marked.main("about", "a table is old", lambda text: "new", ["--check"]) == 1
    assert "a table is old" in capsys.readouterr().out
    assert (tmp_path / "README.md").read_text() == "old"
    assert marked.main("about", "", lambda text: "new", []) == 0
    assert (tmp_path / "README.md").read_text() == "new"


def test_what_keeps_keys_and_values_is_measured_over_peer_copies():
    assert list(ways_of(("peer", "nccl"), "p2p")) == [
        ("peer", False, "peer"),
        ("peer", True, "peer (kept)"),
        ("nccl", False, "nccl"),
    ]
    assert list(ways_of(("peer",), "a2a")) == [("peer", False, "peer")]
    assert list(ways_of(("auto",), "fetch")) == [("auto", False, "auto")]
