"""NumPy is all that plans and attention need; what needs more names the packages of its extra.

Packages are hidden from fresh interpreters by a hook in front of every other way to import.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ringside._extras import EXTRAS, MissingExtra, extra, require

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = sorted(package for packages in EXTRAS.values() for package in packages)
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""
NUMPY_ALONE = """
import numpy as np, ringside as rs, ringside.testing as kit
layout = rs.PackedLayout.from_lengths([5, 7, 0, 3], pad_to_multiple_of=4)
plan = rs.plan(layout, cp_size=4, comm="all_gather")
plan.verify(), plan.explain(), plan.cost(), rs.Plan.from_json(plan.to_json())
q, k, v, dout = np.random.default_rng(0).normal(size=(4, layout.num_rows, 1, 8))
out, lse = plan.attention(q, k, v)
plan.attention_backward(dout, q, k, v, out, lse)
want, _ = rs.attention(q, k, v, layout, options=rs.Options())
assert np.allclose(out, want, rtol=0, atol=1e-14)
rs.thd.partition_indices(layout.cu_seqlens_padded, 2, 0), rs.lengths.load(rs.lengths.names()[0])
kit.check_attention(rs.attention, kit.Case(layout), backward=rs.attention_backward)
import ringside.testing.adapters, ringside.testing.tolerance, ringside.testing.trace
import ringside.learn; ringside.learn.notebooks()
print(sorted({name.partition(".")[0] for name in sys.modules} & OPTIONAL))
"""


def install(name):
    """Packages by their names: PyPI's "ringside" is another project."""
    return f"fix: pip install {' '.join(EXTRAS[name])}"


def run_without(packages, code):
    """A fresh interpreter in which these packages cannot be imported."""
    program = HIDE.format(packages=set(packages)) + f"OPTIONAL = {set(OPTIONAL)!r}\n" + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def command_without(packages, *arguments):
    """python -m ringside, likewise."""
    code = f"sys.argv = {['ringside', *map(str, arguments)]!r}\n"
    code += "import runpy; runpy.run_module('ringside', run_name='__main__')"
    return run_without(packages, code)


def test_plans_attention_and_checks_need_numpy_alone():
    ended = run_without(OPTIONAL, NUMPY_ALONE)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "[]\n"


NEEDS = {
    "a drawing": ("plot", "matplotlib", "rs.plan(rs.PackedLayout([0, 4]), cp_size=2).draw()"),
    "strategies": ("testing", "hypothesis", "import ringside.testing.strategies"),
    "one strategy": ("testing", "hypothesis", "from ringside.testing.strategies import cases"),
    "the gallery": ("testing", "hypothesis", "import ringside.testing.faults"),
    "an exercise": ("learn", "hypothesis", "import ringside.learn as x; x.check(1, print)"),
    "a picture of a notebook": (
        *("learn", "matplotlib"),
        "import ringside.learn as x; x.figure_of_documents([3])",
    ),
    "the application": ("cli", "typer", "from ringside.cli import app"),
    "its tables": ("cli", "rich", "import ringside.cli.report"),
}


@pytest.mark.parametrize(("name", "package", "code"), NEEDS.values(), ids=NEEDS.keys())
def test_what_needs_an_extra_names_its_packages(name, package, code):
    caught = f"try:\n    {code}\nexcept ImportError as error:\n    print(error.name, error)"
    ended = run_without([package], f"import ringside as rs\n{caught}")
    assert ended.returncode == 0, ended.stderr
    expected = rf"{package} got no package {package}; expected it, .*{install(name)}\n"
    assert re.fullmatch(expected, ended.stdout), ended.stdout


@pytest.mark.parametrize("package", EXTRAS["cli"])
@pytest.mark.parametrize("arguments", [(), ("--help",), ("verify", "--tokens", 8)])
def test_the_command_says_in_a_sentence_what_it_needs(package, arguments):
    ended = command_without([package], *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    wanted = (
        f"Error: got no package {package}; expected it, which the ringside command needs; "
        "fix: pip install typer rich\n"
    )
    assert ended.stderr == wanted


@pytest.mark.parametrize(
    ("package", "arguments", "name"),
    [
        ("matplotlib", ("plan", "--draw", "nowhere/plan.png"), "plot"),
        ("hypothesis", ("fuzz", "--implementation", "ringside:attention"), "testing"),
    ],
)
def test_a_command_that_needs_more_says_so_before_anything_is_computed(package, arguments, name):
    ended = command_without([package], *arguments)
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    said = " ".join(ended.stderr.split())
    assert said.startswith(f"Error: got no package {package}; expected it, which ")
    assert said.endswith(install(name))


def test_the_other_commands_do_without():
    for arguments in (("verify", "--random", 2), ("plan", "--tokens", 64, "--cp", 2)):
        ended = command_without(["matplotlib", "hypothesis"], *arguments)
        assert ended.returncode == 0 and ended.stdout, ended.stderr


def test_notebooks_are_copied_without_what_they_need(tmp_path):
    ended = command_without(["matplotlib", "hypothesis", "jupyterlab"], "learn", tmp_path)
    assert ended.returncode == 0 and install("learn")[5:] in ended.stdout, ended.stderr
    assert sorted(path.suffix for path in tmp_path.iterdir())[-1] == ".ipynb"


def test_what_is_missing_for_another_reason_is_not_hidden():
    with pytest.raises(ModuleNotFoundError, match="No module named 'numpi'") as other:
        with extra("plot", "a picture"):
            raise ModuleNotFoundError("No module named 'numpi'", name="numpi")
    assert not isinstance(other.value, MissingExtra)
    require("testing", "this test")


# --- pyproject.toml


def listed(name):
    """The strings of a list in pyproject.toml; tomllib is younger than Python 3.10."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(rf"^{name} = \[(.*?)\]$", text, re.DOTALL | re.MULTILINE)
    return re.findall(r'"([^"]+)"', found[1])


def packages_of(name):
    return tuple(re.match(r"[\w-]+", requirement)[0] for requirement in listed(name))


def test_pip_installs_what_the_messages_say():
    assert packages_of("dependencies") == ("numpy",)
    assert {name: packages_of(name) for name in EXTRAS} == EXTRAS
    by_tests = [name for name in EXTRAS if name != "learn"]  # which adds JupyterLab, for readers
    assert f"ringside[{','.join(by_tests)}]" in listed("test")
    assert set(EXTRAS["learn"]) == {"jupyterlab", *EXTRAS["plot"], *EXTRAS["testing"]}
