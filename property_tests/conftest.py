"""Hypothesis profiles: pytest property_tests --hypothesis-profile=dev|ci|nightly."""

import os

from hypothesis import Phase, settings

# Else JAX, where a test imports it, takes three quarters of a GPU that all tests share.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=300, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("nightly", max_examples=20_000, deadline=None, print_blob=True)
# For property_tests/mutants.py: red is enough, nobody reads the shrunk case.
settings.register_profile(
    "mutants",
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("dev")


def pytest_sessionfinish(session, exitstatus):
    """Writes what the GPU tests saw, where ./dev gpu-test asks for it."""
    path = os.environ.get("RINGSIDE_GPU_RESULTS")
    if not path:
        return
    import cuda_cases

    if cuda_cases.REASON:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    outcomes = ("passed", "failed", "skipped", "error")
    counts = {name: len(reporter.stats.get(name, [])) for name in outcomes}
    cuda_cases.write_results(path, counts)
