"""Processes that serve all tests of a file."""

import pytest
from group_processes import started


@pytest.fixture(scope="module")
def workers():
    """Two; a file may have others of this name."""
    with started(2) as both:
        yield both
