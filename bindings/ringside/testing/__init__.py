"""Random cases of packed attention, to fuzz Ringside or an implementation of your own.

>>> from ringside.testing import Case
>>> import ringside as rs
>>> Case(rs.PackedLayout([0, 2]), cp_size=2).largest_error() < 1e-12
True

`from ringside.testing import strategies` gives Hypothesis strategies that draw such cases; it needs
the package hypothesis, this module does not.
"""

from ringside.testing.cases import Arrays, Case, Results

__all__ = ["Arrays", "Case", "Results"]
