"""Answers to exercise 9: one that holds, and what one writes first."""

import numpy as np


def bound(merges, unit_roundoff, largest):
    # Each merge rounds a sum that is no larger than the largest value.
    return merges * unit_roundoff * largest


def wrong_folklore(merges, unit_roundoff, largest):
    return 1e-2


def wrong_one_rounding(merges, unit_roundoff, largest):
    return unit_roundoff * largest


def wrong_roundings_cancel(merges, unit_roundoff, largest):
    return np.sqrt(merges) * unit_roundoff * largest


def wrong_values_are_of_size_1(merges, unit_roundoff, largest):
    return merges * unit_roundoff


def wrong_whatever_the_type(merges, unit_roundoff, largest):
    return merges * 2.0**-8 * largest


def wrong_nothing_is_rounded(merges, unit_roundoff, largest):
    return 0.0


def is_small(merges):
    return merges.merges <= 16
