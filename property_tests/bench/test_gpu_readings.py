"""Clocks and power beside what is measured: read by nvidia-smi, which is played here."""

import dataclasses
import time

import pytest
from ringside._bench.gpu import run as _bench_gpu
from ringside._bench.gpu.cases import Line
from ringside._bench.gpu.readings import FIELDS, Readings

PLAYED = """#!/bin/sh
echo "$@" > {asked}
printf '3, 345, 2619, 75.10, 31\\n99, 1980, 2619, 690.50, 60\\n'
sleep 0.1
printf '100, 1700, 2619, 700.50, 62\\nFailed to initialize\\n0, 345, [N/A], 80.00, 58\\n'
exec sleep 60
"""


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """The file in which it notes what it was asked for."""
    asked, program = tmp_path / "asked", tmp_path / "nvidia-smi"
    program.write_text(PLAYED.format(asked=asked), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return asked


def readings_of(readings, number):
    """Waits until so many have come."""
    deadline = time.monotonic() + 10
    while len(readings._read) < number:
        assert time.monotonic() < deadline, readings._read
        time.sleep(0.01)


def test_medians_are_of_the_readings_of_a_busy_gpu(nvidia_smi):
    with Readings("GPU-12ab") as readings:
        readings_of(readings, 4)
        found = readings.medians(0.0)
    wanted = (1840, 2619, 695.5, 61)
    assert found == dict(zip(FIELDS, wanted, strict=True))
    asked = nvidia_smi.read_text(encoding="utf-8").split()
    assert asked[0] == "--id=GPU-12ab"
    assert asked[1] == "--query-gpu=utilization.gpu,clocks.sm,clocks.mem,power.draw,temperature.gpu"
    assert readings._process.returncode is not None, "it reads on"


@pytest.mark.usefixtures("nvidia_smi")
def test_readings_count_from_a_moment_on():
    with Readings("0") as readings:
        readings_of(readings, 4)
        last = readings._read[-1][0]
        assert readings.medians(last) == {"sm_clock_mhz": 345, "power_w": 80, "temperature_c": 58}
        assert readings.medians(last + 1) == {}


def test_nothing_is_read_without_nvidia_smi(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with Readings("0") as readings:
        assert readings.medians(0.0) == {}


class Told:
    def medians(self, since):
        assert since <= time.monotonic()
        return {"sm_clock_mhz": 1755.0}


def test_lines_have_the_readings_of_their_task_and_notes_none():
    line = Line("attention", "case", "forward", "hopper", {"call_ms": 1.0})
    task = _bench_gpu.Task("a task", lambda: iter((line, "a note")))
    made, note = _bench_gpu.run_with_readings(task, Told())
    assert note == "a note" and made == dataclasses.replace(line, readings={"sm_clock_mhz": 1755.0})
    row = made.to_dict()
    assert row["call_ms"] == 1 and row["sm_clock_mhz"] == 1755
    assert list(row)[-1] == "sm_clock_mhz", "columns of before have moved"
