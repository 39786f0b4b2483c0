"""The planted faults still have their places; whether tests notice them, ./dev mutants says."""

import pytest
from mutants import Failure, check_list
from mutants_list import MUTANTS, Mutant
from mutants_of_kernels import MUTANTS_OF_KERNELS
from mutants_of_primitives import MUTANTS_OF_PRIMITIVES


def test_every_fault_has_exactly_one_place_and_its_own_name():
    check_list(MUTANTS + MUTANTS_OF_PRIMITIVES + MUTANTS_OF_KERNELS)


def test_a_stale_fault_is_refused():
    with pytest.raises(Failure, match="occurs 0 times in dev"):
        check_list([Mutant("no such line", "dev", "this line is nowhere in dev", "")])
