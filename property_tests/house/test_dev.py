"""./dev decides well what to build: its functions, run by bash with other programs in the path."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def script(folder, name, text):
    """A program in front of all others in the path."""
    (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def said_by(folder, begin, end, command, **environment):
    """What bash prints that runs a command after the functions of ./dev from one to another."""
    text = (ROOT / "dev").read_text(encoding="utf-8")
    functions = text[text.index(begin) : text.index(end)]
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-euc", f"{functions}\n{command}"],
        env={**path, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def settings_of(purpose, folder, gpus, **environment):
    """What pip is told for a purpose where nvidia-smi lists these GPUs."""
    script(folder, "nvidia-smi", f"printf '{gpus}'")
    command = f"package_settings {purpose}"
    return said_by(folder, "has_gpu()", "pip_install()", command, **environment).stdout.split()


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


def test_kernels_that_nothing_runs_are_compiled_to_be_checked_and_others_in_full(tmp_path):
    for gpus, quick in (("", "ON"), ("GPU 0: NVIDIA H200\\n", "OFF")):
        wanted = f"--config-settings=cmake.define.RINGSIDE_QUICK_KERNELS={quick}"
        assert wanted in settings_of("test", tmp_path, gpus)
        assert not any("QUICK" in setting for setting in settings_of("run", tmp_path, gpus))


@pytest.mark.parametrize(("purpose", "extras"), [("run", "cli,plot,testing"), ("test", "test")])
def test_every_verb_installs_the_packages_that_it_needs(tmp_path, purpose, extras):
    script(tmp_path, "python", 'echo "$@"')
    helpers = "has_cmake() { :; }; has_ninja() { :; }; has_gpu() { :; }; package_settings() { :; }"
    helpers += '; with_progress() { "$@"; }; rm() { :; }; uv_install() { echo "$@"; }'
    ended = said_by(tmp_path, "pip_install()", "setup()", f"{helpers}; pip_install {purpose}")
    assert ended.returncode == 0, ended.stderr
    build, wheel, _, package = ended.stdout.splitlines()
    assert "scikit-build-core" in build and "pybind11" in build
    assert "pip wheel" in wheel and "--no-deps" in wheel
    assert package.split()[-1].endswith(f".whl[{extras}]")


def test_a_build_says_what_it_compiles(tmp_path):
    lines = "".join(f"  [{i}/45] Building CXX object part_{i}.o\\n" for i in range(1, 46))
    command = f"printf 'noise\\n{lines}' | show_compiled"
    shown = said_by(tmp_path, "show_compiled()", "with_progress()", command).stdout.splitlines()
    assert shown == [f"[{i}/45] Building CXX object part_{i}.o" for i in (20, 40, 45)]


def test_a_verb_for_the_gpu_names_the_modules_that_no_python_has(tmp_path):
    script(tmp_path, "python3", "exit 1")
    refuse = "die() { echo got $1, fix: $3; exit 1; }"
    ended = said_by(
        tmp_path,
        "gpu_python()",
        "gpu_build()",
        f"{refuse}; type() {{ echo {tmp_path}/python3; }}; gpu_python gpu-bench torch typer rich",
    )
    assert ended.returncode == 1
    assert ended.stdout.startswith("got no Python with torch, typer, rich, fix: install them")
    assert "./dev gpu-bench" in ended.stdout
    script(tmp_path, "python3", 'test "$2" = "import torch, typer"')
    ended = said_by(tmp_path, "gpu_python()", "gpu_build()", "gpu_python gpu-bench torch typer")
    assert ended.stdout == f"{tmp_path}/python3\n", ended


@pytest.mark.parametrize(
    ("gpus", "cache", "said"),
    [
        ("GPU 0: NVIDIA H200\\n", "", "got a machine with a GPU, fix: ./dev gpu-test"),
        ("", "RINGSIDE_CUDA:STRING=AUTO", "got no CUDA Toolkit, fix: install it"),
    ],
)
def test_kernels_are_interpreted_where_there_is_a_compiler_and_no_gpu(tmp_path, gpus, cache, said):
    script(tmp_path, "nvidia-smi", f"printf '{gpus}'")
    (tmp_path / "build/ci").mkdir(parents=True)
    (tmp_path / "build/ci/CMakeCache.txt").write_text(cache, encoding="utf-8")
    helpers = "has_gpu() { nvidia-smi | grep -q .; }; setup() { :; }; "
    helpers += "die() { echo got $1, fix: $3; exit 1; }; step() { shift; echo $@; }"
    command = f"{helpers}; cd {tmp_path}; kernels --gtest_filter=Boxes*"
    ended = said_by(tmp_path, "kernels()", "fuzz()", command)
    assert ended.returncode == 1 and ended.stdout.startswith(said)
    if not gpus:
        there = "RINGSIDE_HAS_CUDA_TESTS:INTERNAL=ON"
        (tmp_path / "build/ci/CMakeCache.txt").write_text(there, encoding="utf-8")
        ended = said_by(tmp_path, "kernels()", "fuzz()", command)
        assert ended.stdout.endswith(
            "ringside_optimized_test --gtest_brief=1 --gtest_filter=Boxes*\n"
        )


def test_every_verb_is_one_function_and_help_lists_it():
    text = (ROOT / "dev").read_text(encoding="utf-8")
    functions = re.findall(r"^([a-z_]+)\(\) \{", text, re.MULTILINE)
    assert len(functions) == len(set(functions)), "a later one would silently take another's place"
    verbs = re.search(r"^verbs=\((.*)\)$", text, re.MULTILINE)[1].split()
    assert set(verbs) < set(functions)
    told = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True)
    listed = [line.split()[0] for line in told.stdout.splitlines()[1:]]
    assert sorted(listed) == sorted(x.removesuffix("_all").replace("_", "-") for x in verbs)


def installed_by(function, folder, *there, may="may_install() { :; }"):
    """What a function of `./dev test` installs with apt-get where only these programs are."""
    for name in ("bash", "xargs", "echo"):
        (folder / name).symlink_to(shutil.which(name))
    for name in there:
        script(folder, name, "")
    doubles = f'step() {{ shift && "$@"; }}; {may}; apt_install() {{ echo "$@"; }}'
    functions = "missing_programs()", "system_packages()"
    ended = said_by(folder, *functions, f"{doubles}; {function}", PATH=str(folder))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


def test_a_browser_is_installed_where_there_is_none(tmp_path):
    assert installed_by("browser", tmp_path) == ["chromium"]


@pytest.mark.parametrize("name", ["chromium", "google-chrome"])
def test_a_browser_that_is_there_is_taken(tmp_path, name):
    assert installed_by("browser", tmp_path, name) == []


@pytest.mark.parametrize(
    ("there", "missing"),
    [((), ["openmpi-bin", "iproute2"]), (("mpirun",), ["iproute2"]), (("mpirun", "ip"), [])],
)
def test_programs_that_tests_run_are_installed_where_they_may_be(tmp_path, there, missing):
    assert installed_by("programs", tmp_path, *there) == missing


def test_where_nothing_may_be_installed_the_tests_go_on_without(tmp_path):
    assert installed_by("programs", tmp_path, may="may_install() { false; }") == []
