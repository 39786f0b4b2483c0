"""What the CPU benchmark says of the machine beside its numbers."""

import os

import pytest
from ringside._bench import cpu


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_cores_are_those_that_the_process_may_use():
    before = os.sched_getaffinity(0)
    assert cpu.machine()["cores"] == len(before)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert cpu.machine()["cores"] == 1
    finally:
        os.sched_setaffinity(0, before)
