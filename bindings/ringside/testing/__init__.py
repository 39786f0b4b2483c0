"""Random cases of packed attention, to fuzz Ringside or an implementation of your own.

>>> import ringside as rs
>>> from ringside.testing import Case, check_attention
>>> case = Case(rs.PackedLayout([0, 3, 5]), dtype="float32")
>>> def mine(q, k, v, *, layout_q, layout_k, mask, softmax_scale):
...     return rs.attention(q, k, v, layout_q, layout_k, mask=rs.Mask.full())[0]
>>> check_attention(mine, case)  # doctest: +ELLIPSIS
Traceback (most recent call last):
ringside.testing._report.Disagreement: ...mine disagrees with the definition
out is wrong at row 0 of document 0, head 0:
...
  this row read key 1 (weight ..., should be 0)
...

`check_context_parallel` does the same for all ranks of a context-parallel one. From here on:

* `fuzz` makes a test of a function, run by pytest,
* `strategies` draws such cases with Hypothesis; `ringside fuzz` does it from the command line,
* `adapters` wraps functions of torch and JAX arrays, `dense` those of batches and of CuPy's,
* `locate` names the step, rank and tile where an implementation of plans goes wrong,
* `tolerance` derives how large an error rounding explains,
* `faults` is a gallery of known silent faults, each caught.

strategies and faults need Hypothesis; this module does not.
"""

from ringside.testing._fuzz import fuzz
from ringside.testing._locate import Location, locate
from ringside.testing._report import Disagreement, Finding
from ringside.testing.cases import Arrays, Case, Results
from ringside.testing.check import Demands, Report, check_attention, check_context_parallel
from ringside.testing.tolerance import Precision

__all__ = [
    "Arrays",
    "Case",
    "Demands",
    "Disagreement",
    "Finding",
    "Location",
    "Precision",
    "Report",
    "Results",
    "check_attention",
    "check_context_parallel",
    "fuzz",
    "locate",
]
