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


@pytest.mark.parametrize("rest", [FORWARD, FORWARD + BACKWARD.replace(",\n", ",wrong\n")])
def test_half_a_case_is_refused(results, rest):
    results.write_text(HEAD + FIELDS + rest)
    with pytest.raises(SystemExit, match="is no whole case"):
        fa3_table.section_of(results)


def test_the_readme_is_in_step(capsys):
    assert fa3_table.main(["--check"]) == 0, capsys.readouterr().out
    assert fa3_table.END in (marked.ROOT / "README.md").read_text()
