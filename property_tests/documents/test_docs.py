"""Every example in every public docstring runs and prints what it says."""

import doctest
import importlib
import inspect
import itertools
import pkgutil
import re
from pathlib import Path

import pytest
import ringside as rs
from cuda_cases import REASON as NO_GPU
from ringside import learn, testing
from ringside.testing import cases, strategies

STRATEGIES = "ringside.testing.strategies"

# Made by the library, only read by users: no example needed.
READ_ONLY = (
    *(rs.Message, rs.PlanCost, rs.PlanProof, rs.Step, rs.Tile, rs.thd.StepMetadata),
    *(learn.Revealed, learn.Verdict),
)


MODULES = {
    "ringside": rs,
    "ringside.thd": rs.thd,
    "ringside.lengths": rs.lengths,
    "ringside.testing": testing,
    "ringside.learn": learn,
    STRATEGIES: strategies,
}


def names_of(module):
    """__all__, or what the module defines itself."""
    defined = [
        n for n, x in vars(module).items() if getattr(x, "__module__", "") == module.__name__
    ]
    return getattr(module, "__all__", [name for name in defined if not name.startswith("_")])


def members_of(kind):
    """(name, member, takes arguments) of what a class says in public."""
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if inspect.isroutine(member) or isinstance(member, staticmethod | classmethod):
            yield name, getattr(kind, name), True
        elif isinstance(member, property):
            yield name, member, False


def documented_objects():
    """(name, object, must have an example) of everything public."""
    yield "ringside", rs, True
    yield "ringside.testing", testing, True
    yield "ringside.learn", learn, True
    yield "ringside.testing.strategies", strategies, True
    yield "ringside.thd", rs.thd, False
    yield "ringside.lengths", rs.lengths, False
    for prefix, module in MODULES.items():
        for name in names_of(module):
            value = getattr(module, name)
            if not callable(value):
                continue
            is_class = inspect.isclass(value)
            made_by_users = not (is_class and issubclass(value, (*READ_ONLY, Exception, tuple)))
            yield f"{prefix}.{name}", value, made_by_users
            for member, what, takes_arguments in members_of(value) if is_class else ():
                yield f"{prefix}.{name}.{member}", what, takes_arguments and made_by_users


OBJECTS = {name: (value, needs) for name, value, needs in documented_objects()}
# Used in the example of to_json, or of the class.
WITHOUT_EXAMPLE = {
    "ringside.Plan.from_json",
    "ringside.testing.Case.arrays",
    "ringside.testing.Case.by_definition",
    "ringside.testing.Case.by_plan",
    "ringside.testing.Case.largest_error",
    "ringside.testing.Case.plan",
    "ringside.testing.Case.replace",
    "ringside.testing.Case.script",
}


# Their examples hold device arrays; without a GPU they are only read.
NEEDS_GPU = ("ringside.DevicePlan",)
ON_GPU = re.compile(r">>> .*(DevicePlan\(|cuda)")


def examples_of(name, value):
    parser = doctest.DocTestParser()
    context = dict(vars(strategies)) if name.startswith("ringside.testing") else {}
    context.update(vars(cases) if name.startswith("ringside.testing") else {})
    return parser.get_doctest(inspect.getdoc(value) or "", context, name, name, 0)


@pytest.mark.parametrize("name", OBJECTS)
def test_examples_print_what_they_say(name):
    test = examples_of(name, OBJECTS[name][0])
    if name.startswith(NEEDS_GPU) and NO_GPU:
        for example in test.examples:
            compile(example.source, name, "single")
        return
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def modules_with_examples():
    """Every module of the package whose file holds an example, whoever reads it."""
    for module in pkgutil.walk_packages(rs.__path__, "ringside."):
        path = module.module_finder.find_spec(module.name).origin or ""
        if path.endswith(".py") and ">>>" in Path(path).read_text(encoding="utf-8"):
            yield module.name


READ = {inspect.getdoc(value) for value, _ in OBJECTS.values()}


@pytest.mark.parametrize("name", [*modules_with_examples()])
def test_examples_of_what_is_not_public_print_what_they_say_too(name):
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE, verbose=False)
    for test in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)):
        if inspect.cleandoc(test.docstring) in READ or (ON_GPU.search(test.docstring) and NO_GPU):
            continue  # run above, or read there
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
    assert {
        "ringside.Mask.visible",
        "ringside.PackedLayout.from_lengths",
        "ringside.attention",
    } <= names
    assert {"ringside.Plan.verify", "ringside.Plan.unshard", "ringside.Plan.cost"} <= names
