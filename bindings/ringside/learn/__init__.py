"""Ten notebooks, each a question, and the property tests that their exercises are judged by.

`ringside learn` copies the notebooks out of the installed package. Each ends with a function to
write; `check` tries it on random cases and says "not yet", "refuted", with the smallest case it
found and a picture of it, or "holds".

>>> import numpy as np
>>> from ringside import learn
>>> def positions(cu_seqlens, cu_seqlens_padded):
...     return np.arange(cu_seqlens_padded[-1])  # as if the pack were one document
>>> verdict = learn.check(1, positions)
>>> verdict.word
'refuted'

check needs Hypothesis and Matplotlib; this module does not.
"""

from ringside.learn._balance import Balance, Share, balance, share_of
from ringside.learn._check import Verdict, check
from ringside.learn._merging import Partials, partials
from ringside.learn._moves import Moves, moves
from ringside.learn._reveal import Revealed, reveal
from ringside.learn._shipped import copy_notebooks, notebooks
from ringside.learn._steps import errors_after_steps, figure_of_steps
from ringside.learn._times import Time, first_exposed, times_by_ranks
from ringside.learn._traffic import bytes_received, least_traffic, traffic_by_ranks
from ringside.learn.faults.gallery import SILENT_FAULTS, RingModel, SilentFault
from ringside.learn.faults.habits import errors_of_faults, seen_by_habit
from ringside.learn.figures.digits import figure_of_errors_by_step
from ringside.learn.figures.errors import figure_of_error_table, figure_of_habits
from ringside.learn.figures.exchanges import figure_of_exchange, figure_of_micro_sequences
from ringside.learn.figures.halves import figure_of_halves
from ringside.learn.figures.masks import figure_of_masks
from ringside.learn.figures.packs import figure_of_documents, figure_of_rows
from ringside.learn.figures.ring import figure_of_ring, figure_of_story
from ringside.learn.figures.times import figure_of_timelines, figure_of_times_by_ranks
from ringside.learn.figures.traffic import (
    figure_of_holdings,
    figure_of_need,
    figure_of_traffic,
    figure_of_traffic_by_ranks,
)

__all__ = [
    "SILENT_FAULTS",
    "Balance",
    "Moves",
    "Partials",
    "Revealed",
    "RingModel",
    "Share",
    "SilentFault",
    "Time",
    "Verdict",
    "balance",
    "bytes_received",
    "check",
    "copy_notebooks",
    "errors_after_steps",
    "errors_of_faults",
    "figure_of_documents",
    "figure_of_error_table",
    "figure_of_errors_by_step",
    "figure_of_exchange",
    "figure_of_habits",
    "figure_of_halves",
    "figure_of_holdings",
    "figure_of_masks",
    "figure_of_micro_sequences",
    "figure_of_need",
    "figure_of_ring",
    "figure_of_rows",
    "figure_of_steps",
    "figure_of_story",
    "figure_of_timelines",
    "figure_of_times_by_ranks",
    "figure_of_traffic",
    "figure_of_traffic_by_ranks",
    "first_exposed",
    "least_traffic",
    "moves",
    "notebooks",
    "partials",
    "reveal",
    "seen_by_habit",
    "share_of",
    "times_by_ranks",
    "traffic_by_ranks",
]
