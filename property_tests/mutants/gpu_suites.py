"""The tests that faults in kernels are put to on a GPU: a suite says which of them is red first.

C++ tests come before property tests, which take longer. Tests made for a kind of fault come before
all. A race need not show in results: such faults are put to the interpreter (gpu_mutants.py).
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from copies.scratch import ROOT, Failure, Patience, run
from copies.suites import NO_SUCH_TEST, ending, red_gtest
from in_kernels.heads import MUTANTS_OF_HEADS
from in_kernels.hopper_backward import MUTANTS_OF_HOPPER_BACKWARD
from in_kernels.hopper_dq import MUTANTS_OF_HOPPER_DQ
from in_kernels.hopper_forward import MUTANTS_OF_HOPPER
from in_kernels.hopper_shapes import MUTANTS_OF_HOPPER_SHAPES
from in_kernels.hopper_softcap import MUTANTS_OF_HOPPER_SOFTCAP
from in_kernels.interpreter import MUTANTS_OF_INTERPRETER
from in_kernels.kernels import MUTANTS_OF_KERNELS
from in_kernels.lengths_on_device import MUTANTS_OF_DEVICE_LENGTHS
from in_kernels.links import MUTANTS_OF_LENGTHS, MUTANTS_OF_LINKS
from in_kernels.not_finite import MUTANTS_OF_NOT_FINITE
from mutants_list import Mutant

KERNELS = [
    *(MUTANTS_OF_KERNELS + MUTANTS_OF_HOPPER + MUTANTS_OF_HOPPER_SOFTCAP),
    *(MUTANTS_OF_HOPPER_BACKWARD + MUTANTS_OF_HOPPER_SHAPES + MUTANTS_OF_HOPPER_DQ),
    *(MUTANTS_OF_NOT_FINITE + MUTANTS_OF_LENGTHS + MUTANTS_OF_DEVICE_LENGTHS),
    *(MUTANTS_OF_HEADS + MUTANTS_OF_INTERPRETER),
]
ROOM = "kernels"  # of tests in noticed.json
# The C++ tests in parts; what is in none of them comes last.
IN_BINARY = (
    "CudaProgram.*:RoomForLengths.*:RankProgram.*:LengthsOnTheDevice.*",
    "Float16/EveryPlan*",
    "Float32/EveryPlan*",
    "*HopperBackward.Agrees*",
    "BFloat16/EveryPlan*",
)
# Quick ones first; the many cells of the last find little that the others do not.
PROPERTIES = (
    (
        "test_cuda_arrays.py::test_strided_arrays_need_no_copy",
        "test_cuda_attention.py::test_options_agree_with_the_cpu",
        "test_cuda_attention.py::test_a_sink_enters_rows_that_see_nothing",
        "test_cuda_attention.py::test_steps_that_exchange_nothing_go_on_where_the_one_before_ended",
        "test_cuda_attention.py::test_the_largest_of_negative_logits_is_negative",
        "test_cuda_attention.py::"
        "test_blocks_that_see_nothing_and_blocks_that_nobody_sees_hold_zeros",
        "test_cuda_attention.py::test_a_key_among_a_hundred_thousand_keeps_its_digits",
    ),
    (
        "test_cuda_device_plan.py::"
        "test_lengths_that_do_not_fit_give_an_empty_batch_and_check_says_so",
        "test_cuda_device_plan.py::"
        "test_a_captured_graph_replays_other_lengths_without_a_synchronization",
        "test_cuda_device_plan.py::test_many_sequences[2500-bfloat16]",
        "test_cuda_not_finite.py::test_they_are_those_of_the_definition",
        "test_cuda_attention.py::test_any_plan_agrees_with_the_cpu",
        "test_cuda_arrays.py::test_results_are_the_same_bits_from_run_to_run",
    ),
    ("test_cuda_attention.py::test_lengths_around_the_tiles_agree_for_every_head_dimension",),
    ("test_cuda_in_order.py::test_a_hundred_calls_give_the_same_bits",),
    (
        "test_cuda_device_plan.py::test_every_cell_of_documents_longer_than_a_block",
        "test_cuda_attention.py::test_every_cell_agrees_on_documents_longer_than_a_block",
    ),
)
PROPERTIES_OF_LINKS = (
    ("test_group_cuda_results.py::test_every_transport_over_every_way_to_host",),
    ("test_group_cuda_torch.py",),
    ("test_group_cuda_kept.py",),
    ("test_group_cuda_results.py::test_who_is_ahead_waits_for_those_who_still_read",),
    ("test_group_cuda_failures.py",),
    ("test_group_cuda_results.py::test_any_plan",),
    ("test_group_cuda_lengths_set.py",),
)
NOT_FINITE = "cuda/test_cuda_not_finite.py::test_"
MADE_FOR: tuple[tuple[Callable[[Mutant], bool], tuple[str, ...]], ...] = (
    (
        MUTANTS_OF_NOT_FINITE.__contains__,
        (
            f"{ROOM}: CudaProgram.*",
            f"{ROOM}: *HopperBackward.Keeps*",
            f"{ROOM}: *EveryPlan*/8:*EveryPlan*/9:*EveryPlan*/10:*EveryPlan*/11:*NotFinite",
            f"{NOT_FINITE}they_are_those_of_the_definition",
            f"{NOT_FINITE}whoever_does_not_see_the_poison_keeps_his_bits",
            f"{NOT_FINITE}the_largest_logit_is_nan_where_a_score_is",
            "cuda/test_cuda_in_order.py::test_what_is_not_finite_stays_with_those_who_see_it",
            "cuda/test_cuda_short_documents.py::test_what_is_not_finite_reaches_those_who_see_it",
            f"{NOT_FINITE}what_was_saved_of_a_row_that_sees_nothing_is_not_read",
        ),
    ),
    (
        MUTANTS_OF_LENGTHS.__contains__,
        (
            f"{ROOM}: *Lengths*:EmptyIf*:*/Ranks.*",
            "group_cuda/test_group_cuda_lengths_set.py::"
            "test_lengths_that_differ_between_processes_give_an_empty_batch_in_all",
        ),
    ),
    (
        MUTANTS_OF_DEVICE_LENGTHS.__contains__,
        (f"{ROOM}: LengthsOnTheDevice.*:RoomForLengths.*",),
    ),
    (
        MUTANTS_OF_HEADS.__contains__,
        (f"{ROOM}: LengthsOnTheDevice.*:CudaProgram.TakesQ*:RankProgram.SumsUp*",),
    ),
    (
        lambda mutant: mutant.name.startswith("hopper, in turn"),
        (
            f"{ROOM}: *HopperBackward.Agrees*/128_128_*",
            "cuda/test_cuda_in_order.py::test_they_agree_with_the_cpu",
            "cuda/test_cuda_in_order.py::test_they_agree_with_the_cpu_where_many_heads_share_one",
            "cuda/test_cuda_in_order.py",
        ),
    ),
    (
        lambda mutant: "told: " in mutant.name,
        (f"{ROOM}: *HopperBackward.Keeps*",),
    ),
    (
        lambda mutant: mutant.name.startswith("hopper, first keys"),
        (f"{ROOM}: CudaProgram.*FirstKeysStore",),
    ),
)
# Faults of time, and reads of one row too many: on a GPU no result has shown them, as what is
# written too early has been read by then. The interpreter sees each (gpu-mutants --interpreted).
OF_INTERPRETER = {
    "lengths on the device: a block that is alone leaves the buffers to others",
    "mma: keys are used before their copy has landed",
    "mma: one row behind the last is read",
    "hopper: queries of the next item overwrite this one's",
    "hopper: the next item's output overwrites what is being stored",
    "hopper: final dk are written over keys that the other group still multiplies",
    "hopper: keys are loaded over final dk that have not left",
    "hopper: final dv are written over rows that the other group still multiplies",
    "hopper: rows are loaded over final dv that have not left",
    "hopper: rows are loaded over those that final dv will replace",
    "hopper: final dv of an item are taken for those of the next",
    "hopper backward: who leaves no final results goes on before others have counted",
    "hopper backward: nobody asks whether groups have counted for an item that leaves no dk",
    "hopper, split: weights are written over those that the other group has not read",
    "hopper, ahead: scores of the next block are computed before its queries are there",
    "hopper, asked ahead: d(scores) that the other group has not written count as written",
    "hopper, asked ahead: d(scores) have room where others are read",
    "hopper, asked ahead: dq have room where others have not left",
    "hopper, passing: who passes by the first block does not wait for values",
    "hopper, halves: d(scores) overwrite those of two blocks before",
    "hopper, halves: final dq leave before the other group has left its half",
    "hopper, halves: keys of the next item are loaded over this one's",
    "hopper, in turn: the next one is let pass before sums are in memory",
    "hopper, first keys: others are told before dq is in memory",
    "hopper, first keys: the first numbers belong to blocks that may not have begun",
    "hopper: keys come again while the other group multiplies those without",
    "hopper: groups that come by different ways wait at one barrier",
    "hopper: a group meets the other anew where some of it still wait",
    "hopper: dq on their way are asked for before they are in memory",
    "a rehearsal of messages leaves out the word of lengths",
    *(mutant.name for mutant in MUTANTS_OF_INTERPRETER),
}
# NCCL refuses two processes on one GPU: the tests that notice these see all there are.
OF_SEVERAL_GPUS = {
    "tokens that came are taken for those that should have": (
        "test_group_cuda_failures.py::test_other_calls_are_no_messages_of_this_one",
    ),
}
# What only a GPU runs: several streams, and more memory than others have.
NOT_INTERPRETED = "DeviceTables.*:Boxes.Reach*"
PATIENCE = Patience(600)  # with one suite; a kernel may hang


def gpus() -> list[str]:
    """Numbers of the GPUs that tests may use."""
    if seen := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return seen.split(",")
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    return subprocess.check_output(query, text=True).split()


class Place(NamedTuple):
    """Where tests run: a build's test program and Python package, on a GPU."""

    test: Path
    package: Path
    gpu: str
    patience: Patience = PATIENCE


Tests = Callable[[Place], str]  # the first that is red, or nothing


def suites_of(mutant: Mutant) -> tuple[Tests, ...]:
    """The tests that may notice a fault, those made for its kind and quick ones first."""
    if names := OF_SEVERAL_GPUS.get(mutant.name):
        return (on_all_gpus("group_cuda", names),)
    if mutant in MUTANTS_OF_LINKS:
        return tuple(properties("group_cuda", names) for names in PROPERTIES_OF_LINKS)
    made_for_it = [named(test) for of, tests in MADE_FOR if of(mutant) for test in tests]
    in_binary = [conformance(names) for names in IN_BINARY]
    if "/f32/" in mutant.file:  # other types have kernels of their own
        in_binary.sort(key=lambda tests: "Float32" not in tests.__name__)
    rest = conformance(f"*-{':'.join(IN_BINARY)}")
    of_python = [properties("cuda", names) for names in PROPERTIES]
    return (*made_for_it, *in_binary, rest, *of_python)


def over_interpreter(_: Mutant) -> tuple[Tests, ...]:
    """The C++ tests, those of 16 bits, which most kernels are for, first."""
    rest = f"*-{':'.join((*IN_BINARY, NOT_INTERPRETED))}"
    return tuple(map(conformance, (*IN_BINARY, rest)))


def suite(make: Callable[..., Tests]) -> Callable[..., Tests]:
    """The same tests are one object, which is proved once, and named after what they are."""

    @functools.cache
    def made(*of: object) -> Tests:
        tests = make(*of)
        tests.__name__ = ", ".join(x if isinstance(x, str) else f"{x[0]}..." for x in of)
        return tests

    return made


@suite
def conformance(names: str) -> Tests:
    return lambda place: red_conformance(place, names)


@suite
def properties(folder: str, names: tuple[str, ...]) -> Tests:
    return lambda place: red_property(place, [f"property_tests/{folder}/{x}" for x in names])


@suite
def on_all_gpus(folder: str, names: tuple[str, ...]) -> Tests:
    tests = properties(folder, names)
    return lambda place: tests(place._replace(gpu=",".join(gpus())))


@suite
def named(name: str) -> Tests:
    """A test that noticed a fault before; green if there is no such test any more."""
    if name.startswith(f"{ROOM}: "):
        return lambda place: red_conformance(place, name.removeprefix(f"{ROOM}: "))
    if not (ROOT / "property_tests" / name.partition("::")[0]).is_file():
        return lambda place: ""
    return lambda place: red_property(place, [f"property_tests/{name}"], may_be_gone=True)


def red_conformance(place: Place, names: str) -> str:
    command = [str(place.test), "--gtest_fail_fast", f"--gtest_filter={names}"]
    code, output = run(command, ROOT, place.patience, CUDA_VISIBLE_DEVICES=place.gpu)
    if not code and "*" in names and "[  PASSED  ] 0 tests" in output:
        raise Failure(f"the conformance test was skipped, nothing was tested\n{output[:600]}")
    if not code:
        return ""
    return f"{ROOM}: {red_gtest(code, output)}"


def red_property(place: Place, tests: list[str], *, may_be_gone: bool = False) -> str:
    options = ["-x", "-v", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-profile=mutants"]
    code, output = run(
        [sys.executable, "-m", "pytest", *options, *tests],
        ROOT,
        place.patience,
        CUDA_VISIBLE_DEVICES=place.gpu,
        PYTHONPATH=str(place.package),
        PYTHONDONTWRITEBYTECODE="1",
        RINGSIDE_GPU_RESULTS="",
    )
    if may_be_gone and code == NO_SUCH_TEST and "not found: " in output:
        return ""
    if not re.search(r"\d+ (passed|failed|error)", output) and code != 124 and code >= 0:
        raise Failure(f"no property test ran\n{output[-600:]}")
    if not code:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) property_tests/(.+?)(?: - .*)?$", output, re.MULTILINE)
    started = re.findall(r"^property_tests/(\S+)", output, re.MULTILINE)
    return failed[1] if failed else f"{started[-1] if started else 'start'} ({ending(code)})"
