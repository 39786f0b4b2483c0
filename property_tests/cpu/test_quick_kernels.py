"""A build whose kernels were compiled to be checked, not to be run, says so before it runs them."""

import types
import warnings

import pytest
import ringside as rs
from ringside._arrays import cuda


@pytest.fixture
def require(monkeypatch):
    """What a call asks before it runs on a GPU, in a build with these properties."""

    def require(*, quick, problem=""):
        core = types.SimpleNamespace(problem=lambda: problem, QUICK_KERNELS=quick)
        monkeypatch.setattr(cuda, "has_cuda_core", lambda: True)
        monkeypatch.setattr(cuda, "cuda_core", lambda: core)
        cuda.require_cuda.__wrapped__()

    return require


def test_slow_kernels_are_told_with_what_to_do(require):
    with pytest.warns(RuntimeWarning, match=r"hardly optimized.*expected.*pip install \."):
        require(quick=True)


def test_others_are_not(require):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        require(quick=False)


def test_where_nothing_can_run_that_is_all_that_is_told(require):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(rs.Unsupported, match="no driver"):
            require(quick=True, problem="no driver")


def test_the_compiled_module_knows_what_it_is():
    if not cuda.has_cuda_core():
        pytest.skip("this build has no CUDA")
    assert cuda.cuda_core().QUICK_KERNELS in (False, True)
