"""Every example in every public docstring runs and prints what it says."""

import doctest
import inspect
import itertools

import pytest
from ringside.testing import cases, strategies

import ringside as rs

# What needs no example: constants and exceptions, things that the library makes and users only read.
READ_ONLY = {rs.Message, rs.PlanCost, rs.PlanProof, rs.Step, rs.Tile}


def is_method(member):
    return inspect.isroutine(member) or isinstance(member, staticmethod | classmethod)


def documented_objects():
    """(name, object, must have an example) of everything public with a docstring of its own."""
    yield "ringside", rs, True
    yield "ringside.testing", inspect.getmodule(cases).__spec__ and __import__("ringside.testing").testing, True
    for name in rs.__all__:
        value = getattr(rs, name)
        if inspect.isclass(value):
            yield f"ringside.{name}", value, not issubclass(value, Exception) and value not in READ_ONLY
            for attribute, member in vars(value).items():
                if not attribute.startswith("_") and (is_method(member) or isinstance(member, property)):
                    takes_arguments = is_method(member) and value not in READ_ONLY
                    yield f"ringside.{name}.{attribute}", getattr(value, attribute), takes_arguments
        elif callable(value):
            yield f"ringside.{name}", value, True
    for name in ("Arrays", "Case", "Results"):
        yield f"ringside.testing.{name}", getattr(cases, name), name == "Case"
    yield "ringside.testing.strategies", strategies, True
    for name in strategies.__all__:
        yield f"ringside.testing.strategies.{name}", getattr(strategies, name), True


OBJECTS = {name: (value, needs) for name, value, needs in documented_objects()}
# Its one argument is what to_json returned; the example is there.
WITHOUT_EXAMPLE = {"ringside.Plan.from_json"}


def examples_of(name, value):
    parser = doctest.DocTestParser()
    context = dict(vars(strategies)) if name.startswith("ringside.testing") else {}
    context.update(vars(cases) if name.startswith("ringside.testing") else {})
    return parser.get_doctest(inspect.getdoc(value) or "", context, name, name, 0)


@pytest.mark.parametrize("name", OBJECTS)
def test_examples_print_what_they_say(name):
    test = examples_of(name, OBJECTS[name][0])
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


@pytest.mark.parametrize("name", OBJECTS)
def test_everything_public_is_documented(name):
    value, needs_example = OBJECTS[name]
    text = inspect.getdoc(value) or ""
    if not isinstance(value, property):
        assert len(text) > 20, f"{name} has no docstring"
    if needs_example and name not in WITHOUT_EXAMPLE:
        assert examples_of(name, value).examples, f"{name} has no example"


def test_there_are_examples_enough_to_believe_that_they_were_found():
    count = sum(len(examples_of(name, value).examples) for name, (value, _) in OBJECTS.items())
    assert count > 80


def test_the_documented_methods_include_those_written_in_cpp():
    names = set(itertools.chain(OBJECTS))
    assert {"ringside.Mask.visible", "ringside.PackedLayout.from_lengths", "ringside.attention"} <= names
    assert {"ringside.Plan.verify", "ringside.Plan.unshard", "ringside.plan"} <= names
