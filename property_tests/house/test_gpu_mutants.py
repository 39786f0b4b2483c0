"""What the runner of faults in kernels counts as noticed, played without a GPU."""

import os

import gpu_mutants
import pytest
from copies.scratch import Failure


@pytest.mark.parametrize(
    ("minutes", "code", "said"),
    [("60", 0, "a red test on GPU 5"), ("0", 1, "0 of 1 killed, 1 not tried")],
)
def test_a_fault_that_time_left_untried_is_not_killed(monkeypatch, capsys, minutes, code, said):
    class Copy:
        def __init__(self, mutant, healthy, folder):
            self.test = self.package = self.folder = folder / "played"

        def plant(self):
            return []

        def link(self, objects):
            pass

        def red(self, gpu, noticed):
            return f"a red test on GPU {gpu}"

    monkeypatch.setattr(gpu_mutants, "Copy", Copy)
    monkeypatch.setattr(gpu_mutants, "Healthy", lambda build: None)
    monkeypatch.setattr(gpu_mutants, "prove_healthy", lambda healthy: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert gpu_mutants.main(["--only", "float32: output is not", "--minutes", minutes]) == code
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("script", "red"),
    [("echo RACECHECK SUMMARY: 0 hazards", ""), ("echo RACECHECK SUMMARY; exit 1", "racecheck")],
)
def test_a_race_is_what_the_sanitizer_says(monkeypatch, tmp_path, script, red):
    assert gpu_mutants.red_race(played_sanitizer(monkeypatch, tmp_path, script), "0") == red


def test_a_sanitizer_that_does_not_end_clears_nobody(monkeypatch, tmp_path):
    test = played_sanitizer(monkeypatch, tmp_path, "echo no driver; exit 1")
    with pytest.raises(Failure, match="no driver"):
        gpu_mutants.red_race(test, "0")


def played_sanitizer(monkeypatch, folder, script):
    """A compute-sanitizer in front of any other, that only runs a script."""
    played = folder / "compute-sanitizer"
    played.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    played.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "test"
