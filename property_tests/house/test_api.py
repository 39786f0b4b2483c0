"""The public surface: what __all__ says, what repr prints, what travels with the package."""

import copy
import enum
import inspect
import pickle
import subprocess
import sys
import types
from importlib import resources

import pytest
import ringside as rs
from hypothesis import given
from hypothesis import strategies as st
from ringside.testing import Case, strategies

NAMESPACE = {name: getattr(rs, name) for name in ("Mask", "PackedLayout", "Segment")}


def public_names(module):
    """Names without underscore that the module defines itself or takes from its own parts."""
    for name, value in vars(module).items():
        if name.startswith("_") or isinstance(value, types.ModuleType):
            continue
        origin = getattr(value, "__module__", "ringside") or "ringside"
        if origin.split(".")[0] == "ringside" or isinstance(value, str | tuple | enum.Enum):
            yield name


def test_public_names_are_those_of_all():
    assert set(public_names(rs)) <= set(rs.__all__)
    assert all(hasattr(rs, name) for name in rs.__all__)
    assert len(set(rs.__all__)) == len(rs.__all__)


def test_the_package_says_that_it_is_typed():
    assert resources.files("ringside").joinpath("py.typed").is_file()


def test_the_version_is_one():
    assert [part.isdigit() for part in rs.__version__.split(".")] == [True] * 3


def test_importing_ringside_imports_no_test_or_drawing_package():
    code = "import ringside, sys; print({'hypothesis', 'matplotlib', 'jax'} & set(sys.modules))"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "set()"


@given(strategies.layouts())
def test_the_repr_of_a_layout_is_its_constructor_call(layout):
    assert eval(repr(layout), NAMESPACE) == layout


@given(strategies.masks())
def test_the_repr_of_a_mask_is_its_constructor_call(mask):
    assert eval(repr(mask), NAMESPACE) == mask


SMALL = st.integers(0, 99)


@given(st.builds(rs.Segment, seq=SMALL, pos=SMALL, len=SMALL, stride=SMALL, row=SMALL))
def test_the_repr_of_a_segment_is_its_constructor_call(segment):
    assert eval(repr(segment), NAMESPACE) == segment


@given(strategies.cases())
def test_the_repr_of_a_case_is_its_constructor_call(case):
    assert eval(repr(case), {**NAMESPACE, "Case": Case}) == case


def test_the_script_of_a_case_runs():
    case = Case(rs.PackedLayout([0, 5], [0, 8]), cp_size=2, partition="striped")
    printed = subprocess.run(
        [sys.executable, "-c", case.script()], capture_output=True, text=True, check=True
    )
    proof, error = printed.stdout.splitlines()
    assert proof == repr(case.plan().verify())
    assert float(error) < 1e-12


def test_named_partitions_and_transports_are_listed():
    assert {"contiguous", "zigzag", "striped", "whole_pack", "balanced"} <= set(rs.PARTITIONS)
    assert rs.COMMS == ("p2p", "all_gather", "a2a", "a2a+p2p", "fetch")


def test_errors_are_the_builtin_kinds_that_a_caller_expects():
    assert issubclass(rs.InvalidArgument, ValueError)
    assert issubclass(rs.Unsupported, RuntimeError)
    assert issubclass(rs.PlanError, RuntimeError)


@pytest.mark.parametrize(
    "value", [rs.PackedLayout([0, 2]), rs.Mask.full(), rs.Segment(0, 0, 1)], ids=repr
)
def test_values_differ_from_things_of_another_kind(value):
    assert value != 5
    assert value is not None
    assert not value == "text"


def test_plans_and_layouts_cannot_be_written_to():
    layout = rs.PackedLayout([0, 2])
    with pytest.raises(AttributeError):
        layout.cu_seqlens = [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        layout.cu_seqlens[0] = 7
    assert layout.cu_seqlens.tolist() == [0, 2]
    with pytest.raises(AttributeError):
        rs.plan(layout, cp_size=1).mask = rs.Mask.full()
    with pytest.raises(TypeError):
        hash(rs.plan(layout, cp_size=1))


def test_plans_are_made_by_a_function():
    layout = rs.PackedLayout([0, 5])
    plan = rs.plan(layout, cp_size=2)
    assert inspect.isfunction(rs.plan) and rs.plan.__name__ == "plan"
    assert type(plan) is rs.Plan is type(rs.Plan.from_json(plan.to_json()))
    assert isinstance(plan, rs.Plan)


def test_the_class_still_makes_plans_and_says_how_to_spell_it():
    layout = rs.PackedLayout([0, 5])
    with pytest.warns(DeprecationWarning, match=r"got .*ringside\.Plan; expected ringside\.plan"):
        plan = rs.Plan(layout, cp_size=2, partition="striped")
    assert plan == rs.plan(layout, cp_size=2, partition="striped")


@pytest.mark.filterwarnings("error")
def test_who_makes_plans_rightly_is_not_warned():
    case = Case(rs.PackedLayout([0, 5]), cp_size=2)
    rs.Plan.from_json(case.plan().to_json())
    copy.deepcopy(case.plan())
    rs.MicroSequenceBuffer(rs.PackedLayout([0, 5]), [0, 2, 5])

    class Mine(rs.Plan):
        pass

    assert Mine(case.layout_q, cp_size=2) == case.plan()


def methods_in_python(kind):
    """(name, function) of what a class has of its own, in public."""
    return [
        pytest.param(name, value, id=name)
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and not name.startswith("_")
    ]


@pytest.mark.parametrize(("name", "method"), methods_in_python(rs.Plan))
def test_methods_from_files_of_their_own_look_like_those_of_the_class(name, method):
    assert pickle.loads(pickle.dumps(method)) is method
    assert inspect.unwrap(method).__qualname__ == f"Plan.{name}"
    assert str(inspect.signature(method)).startswith(("(self,", "(self)"))
    assert vars(sys.modules[method.__module__])["Plan"] is rs.Plan  # for annotations
    with pytest.raises(TypeError, match=rf"^Plan\.{name}\(\) (got|missing)"):
        method(rs.plan(rs.PackedLayout([0, 5]), cp_size=2), unheard_of=1)


def test_plans_have_methods_of_many_files():
    names = {name.id for name in methods_in_python(rs.Plan)}
    assert {"attention", "attention_rank", "shard", "draw", "who", "show", "to_json"} <= names
