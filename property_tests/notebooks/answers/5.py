"""Answers to exercise 5: one that holds, and what one writes first."""


def owner(rank, step, cp_size):
    return (rank - step) % cp_size


def wrong_the_ring_turns_the_other_way(rank, step, cp_size):
    return (rank + step) % cp_size


def wrong_everybody_holds_the_same(rank, step, cp_size):
    return step


def wrong_no_wrap(rank, step, cp_size):
    return rank - step


def wrong_one_step_late(rank, step, cp_size):
    return (rank - step - 1) % cp_size


def wrong_the_sender(rank, step, cp_size):
    return (rank - 1) % cp_size if step else rank


def wrong_in_pairs(rank, step, cp_size):
    return rank ^ step if rank ^ step < cp_size else rank


def is_small(case):
    return case.cp_size <= 3
