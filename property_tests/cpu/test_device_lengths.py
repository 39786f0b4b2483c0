"""What DevicePlan.set_lengths takes, on arrays that only say they lie on a device."""

import numpy as np
import pytest
from ringside._arrays import cuda as _cuda
from ringside._plan.device_lengths import DeviceLengths


class Library:
    """Owns the arrays that it made."""

    def __init__(self, device=0):
        self.on, self.made = device, []

    def array(self, *values, dtype=np.int32):
        self.made.append(np.array(values, dtype=dtype))
        return self.made[-1]

    def owns(self, x):
        return any(x is mine for mine in self.made)

    def device(self, x):
        return self.on

    def ready(self, x):
        return x


@pytest.fixture
def library(monkeypatch):
    library = Library()
    monkeypatch.setattr(_cuda, "library_of", lambda x: library)
    return library


def lengths(library, q, q_padded=None, k=None, k_padded=None):
    return DeviceLengths(3, q, q_padded, k, k_padded)


def test_keys_have_the_lengths_of_the_queries_unless_told(library):
    q, padded, k = (library.array(*x) for x in ([0, 2], [0, 4], [0, 3]))
    assert [x is q for x in lengths(library, q).arrays.values()] == [True] * 4
    taken = lengths(library, q, padded).arrays
    assert taken["cu_seqlens_k"] is q and taken["cu_seqlens_k_padded"] is padded
    assert lengths(library, q, padded, k).arrays["cu_seqlens_k_padded"] is k


def test_arrays_that_do_not_fit_are_refused(library):
    q = library.array(0, 2)
    with pytest.raises(ValueError, match="pass both"):
        lengths(library, q, None, None, q)
    with pytest.raises(TypeError, match="expected int32"):
        lengths(library, library.array(0, 2, dtype=np.int64))
    with pytest.raises(ValueError, match="one batch of at most max_sequences=3"):
        lengths(library, library.array(0, 1, 2, 3, 4))
    with pytest.raises(ValueError, match="one batch"):
        lengths(library, q, library.array(0, 2, 4))
    with pytest.raises(ValueError, match="one batch"):
        lengths(library, library.array())
    with pytest.raises(TypeError, match="not its kind of array"):
        lengths(library, q, np.array([0, 2], np.int32))


def test_one_library_and_one_device_order_the_work(library):
    taken = lengths(library, library.array(0, 2))
    taken.require_with(library, 0)
    with pytest.raises(TypeError, match="lies on device 0 and the other arrays on 1"):
        taken.require_with(library, 1)
    with pytest.raises(TypeError, match="one library"):
        taken.require_with(Library(), 0)
