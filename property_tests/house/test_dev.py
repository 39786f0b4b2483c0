"""./dev decides well what to build: its functions, run by bash with other programs in the path."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def settings_of(purpose, folder, gpus, **environment):
    """What pip is told for a purpose where nvidia-smi lists these GPUs."""
    smi = folder / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\nprintf '{gpus}'\n", encoding="utf-8")
    smi.chmod(0o755)
    text = (ROOT / "dev").read_text(encoding="utf-8")
    functions = text[text.index("has_gpu()") : text.index("pip_install()")]
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.check_output(
        ["bash", "-euc", f"{functions}\npackage_settings {purpose}"],
        env=path | environment,
        text=True,
    ).split()


def test_the_package_is_quick_to_build_where_nothing_could_run_the_kernels(tmp_path):
    assert settings_of("run", tmp_path, "") == ["--config-settings=cmake.define.RINGSIDE_CUDA=OFF"]
    assert settings_of("run", tmp_path, "GPU 0: NVIDIA H200\\n") == []


@pytest.mark.parametrize("asked", ["ON", "OFF", "AUTO"])
def test_who_asks_is_obeyed(tmp_path, asked):
    for gpus in ("", "GPU 0: NVIDIA H200\\n"):
        for purpose in ("run", "test"):
            settings = settings_of(purpose, tmp_path, gpus, RINGSIDE_CUDA=asked)
            assert f"--config-settings=cmake.define.RINGSIDE_CUDA={asked}" in settings


def test_the_tests_build_in_the_folder_of_the_c_plus_plus_tests(tmp_path):
    settings = settings_of("test", tmp_path, "")
    assert "--config-settings=build-dir=build/ci" in settings
    assert "--config-settings=cmake.define.RINGSIDE_CUDA=AUTO" in settings
