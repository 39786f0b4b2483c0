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
    on_gpu = BACKWARD.replace(
        "backward,337,353.5,0.953", '"backward, lengths on the GPU",1,2,0.886'
    )
    path.write_text(HEAD + FIELDS + FORWARD + BACKWARD + on_gpu)
    return path


def test_a_line_has_both_passes_of_a_case(results):
    lines = fa3_table.section_of(results).splitlines()
    assert lines[2] == (
        "| 64/8 of 128 | ragged, mean 1k causal | 374 | 402 | 0.93 |  | 337 | 354 | 0.95 | 0.89 |"
    )
    assert "on one A GPU" in lines[4] and "2026-11-22, commit 0123456," in lines[5]


@pytest.mark.parametrize("rest", [FORWARD, FORWARD + BACKWARD.replace(",\n", ",wrong\n")])
def test_half_a_case_is_refused(results, rest):
    results.write_text(HEAD + FIELDS + rest)
    with pytest.raises(SystemExit, match="is no whole case"):
        fa3_table.section_of(results)


def test_what_ran_alone_stands_beside_its_aim(tmp_path):
    fields = FIELDS.replace(",fault", ",goals,fault")
    rows = [
        "fa3,d128 h16 1k x32 causal,forward,400,410,0.97,,",
        "fa3,d128 h16 1k x32 causal,backward,300,410,0.73,,",
        'fa3,d128 h16 1k x32 causal,"backward, deterministic",240,,,"GPU 0.80, goal >= 0.85",',
        'fa3,d192/128 h16 long tail causal,forward,658,,,"TFLOP/s 658.00, goal >= 602",',
        "fa3,d192/128 h16 long tail causal,backward,265,,,,",
    ]
    path = tmp_path / "bench_fa3_a_gpu.csv"
    path.write_text(HEAD + fields + "\n".join(rows) + "\n")
    section = fa3_table.section_of(path)
    assert "| 16 of 192/128 | long tail causal | 658 | 602 | 265 |  |" in section
    assert "| 16 of 128 | 1k x32 causal | 400 | 410 | 0.97 |  | 300 | 410 | 0.73 |  |" in section
    assert "240" not in section  # what is deterministic has a file of its own


def test_another_gpu_is_folded_below_its_geometric_means(results):
    first, summary, *_, last = fa3_table.folded(results).splitlines()
    assert (first, last) == ("<details>", "</details>")
    assert "On one A GPU: geometric mean 0.93 forward and 0.95 backward" in summary
    assert fa3_table.section_of(results) in fa3_table.folded(results)


def test_the_readme_is_in_step(capsys):
    assert fa3_table.main(["--check"]) == 0, capsys.readouterr().out
    assert fa3_table.END in (marked.ROOT / "README.md").read_text()
