"""Answers to exercise 8: one that holds, and what one writes first."""

import numpy as np


def transpose(source, y, cells_before):
    back = np.zeros(cells_before)
    np.add.at(back, source, y)  # what was copied to several places is summed
    return back


def wrong_forward_again(source, y, cells_before):
    return y[source]


def wrong_the_last_copy_replaces(source, y, cells_before):
    back = np.zeros(cells_before)
    back[source] = y
    return back


def wrong_the_inverse_permutation(source, y, cells_before):
    return y[np.argsort(source)][:cells_before]


def wrong_a_plus_that_counts_once(source, y, cells_before):
    back = np.zeros(cells_before)
    back[source] += y
    return back


def wrong_the_mean_of_the_copies(source, y, cells_before):
    copies = np.bincount(source, minlength=cells_before)
    return transpose(source, y, cells_before) / np.maximum(copies, 1)


def wrong_what_nobody_sent_has_no_place(source, y, cells_before):
    return np.bincount(source, weights=y)


def is_small(exchange):
    return exchange.case.layout_q.num_rows <= 3 and exchange.case.cp_size == 2
