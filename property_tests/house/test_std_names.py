"""The guard of includes notices each name of the standard library that nothing of ours brings."""

import doctest
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("std_names", ROOT / ".dev" / "std_names.py")
std_names = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(std_names)

TILES, PLAN, MASK = (Path(f"reference/{name}") for name in ("a/tiles.cpp", "b/plan.h", "c/mask.h"))


def told(tiles, plan="", mask=""):
    """What is said of a file, where it may include two others."""
    texts = {TILES: tiles, PLAN: plan, MASK: mask}
    return list(std_names.missing_includes(list(texts), texts.__getitem__))


def test_a_name_without_its_header_is_told_with_the_file_and_the_header():
    (said,) = told("#include <vector>\nstd::vector<std::optional<int>> all;\n")
    assert said == "reference/a/tiles.cpp: names std::optional; expected #include <optional>"


@pytest.mark.parametrize("name", std_names.HEADER_OF)
def test_every_known_name_is_looked_for(name):
    header = std_names.HEADER_OF[name]
    assert len(told(f"auto x = std::{name}(1);\n")) == 1
    assert told(f"#include <{header}>\nauto x = std::{name}(1);\n") == []


def test_files_of_ours_bring_what_they_include_however_far_away():
    uses = '#include "reference/b/plan.h"\nstd::map<int, int> rows;\n'
    assert told(uses, "#include <map>\n") == []
    assert told(uses, '#include "reference/c/mask.h"\n', "#include <map>\n") == []
    assert len(told(uses, '#include "reference/c/mask.h"\n')) == 1
    circle = '#include "reference/b/plan.h"\n'
    assert len(told(uses, '#include "reference/c/mask.h"\n', circle)) == 1


def test_files_of_others_bring_nothing_and_words_are_no_names():
    assert len(told("#include <gtest/gtest.h>\nstd::map<int, int> rows;\n")) == 1
    assert told('// std::map\nconst char* s = "std::map";  /* std::set */\n') == []


def test_its_examples_say_what_they_print():
    assert doctest.testmod(std_names).failed == 0
