"""README's table beside FlashAttention 3 says what was measured."""

import fa3_table
import marked
import pytest

HEAD = "# gpu A GPU; cuda 13.0; commit 0123456789; date 2026-11-22\n"
FIELDS = "section,case,work,gpu_tflops,fa3_gpu_tflops,gpu_over_fa3,fault\n"
FORWARD = 'fa3,"d128 h64/8 ragged, mean 1k causal",forward,374.5,401.6,0.9325,\n'
BACKWARD = FORWARD.replace("forward,374.5,401.6,0.9325", "backward,337,353.5,0.953")


@pytest.fixture
def results(tmp_path):
    path = tmp_path / "bench_fa3_a_gpu.csv"
    path.write_text(HEAD + FIELDS + FORWARD + BACKWARD)
    return path


def test_a_line_has_both_passes_of_a_case(results):
    lines = fa3_table.section_of(results).splitlines()
    assert lines[2] == (
        "| 64/8 of 128 | ragged, mean 1k causal | 374 | 402 | 0.93 | 337 | 354 | 0.95 |"
    )
    assert "on one A GPU" in lines[4] and "2026-11-22, commit 0123456," in lines[5]


def test_backward_is_of_a_run_of_its_own_where_there_is_one(results):
    own = results.with_name("fa3_backward_a_gpu.csv")
    rows = (FORWARD + BACKWARD).replace("374.5", "1").replace("353.5,0.953", "400,0.843")
    own.write_text(HEAD.replace("0123456789", "9876543210") + FIELDS + rows)
    lines = fa3_table.section_of(results).splitlines()
    assert lines[2].endswith("| 374 | 402 | 0.93 | 337 | 400 | 0.84 |")
    assert lines[5].endswith("Backward: a run of its own (2026-11-22, 9876543).")
    own.write_text(HEAD + FIELDS + rows.replace("mean 1k", "mean 2k"))
    with pytest.raises(SystemExit, match="other cases than bench_fa3_a_gpu"):
        fa3_table.section_of(results)


@pytest.mark.parametrize("rest", [FORWARD, FORWARD + BACKWARD.replace(",\n", ",wrong\n")])
def test_half_a_case_is_refused(results, rest):
    results.write_text(HEAD + FIELDS + rest)
    with pytest.raises(SystemExit, match="is no whole case"):
        fa3_table.section_of(results)


def test_the_readme_is_in_step(capsys):
    assert fa3_table.main(["--check"]) == 0, capsys.readouterr().out
    assert fa3_table.END in (marked.ROOT / "README.md").read_text()
