"""Hypothesis profiles: pytest property_tests --hypothesis-profile=dev|ci|nightly.

All but `mutants` draw anew in every run and say by which seed; see draw_anew.
"""

import gc
import os
import random
import signal
from pathlib import Path

import draw_anew
import pytest
from hypothesis import Phase, is_hypothesis_test, settings

INTERPRETED = bool(os.environ.get("RINGSIDE_INTERPRETED"))
if INTERPRETED:  # before anybody asks for kernels
    import interpreted

# Else JAX, where a test imports it, takes three quarters of a GPU that all tests share.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# Each shape is compiled, and most of them run once: half of the time, where no GPU is to be had.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# What tests import stays: nobody looks for garbage in it until all are collected.
gc.disable()

# Workers share the processor: threads of torch that wait for each other would spin.
if os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell has what it runs in the background ignore Ctrl-C, which tests send to it and to processes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Workers of pytest-xdist take GPUs in turn, of those named here ("0,1,2"); before CUDA starts.
if os.environ.get("RINGSIDE_TEST_GPUS") and os.environ.get("PYTEST_XDIST_WORKER"):
    gpus = os.environ["RINGSIDE_TEST_GPUS"].split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus[
        int(os.environ["PYTEST_XDIST_WORKER"][2:]) % len(gpus)
    ]

# Where CI is set, Hypothesis's own defaults are derandomised, and a profile inherits them.
ANEW = settings(deadline=None, derandomize=False)
settings.register_profile("dev", ANEW, max_examples=50)
settings.register_profile("ci", ANEW, max_examples=100, print_blob=True)
settings.register_profile("nightly", ANEW, max_examples=20_000, print_blob=True)
settings.register_profile("interpreted", ANEW, max_examples=9, print_blob=True)
# For property_tests/mutants/mutants.py: red is enough, nobody reads the shrunk case.
settings.register_profile(
    "mutants",
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("dev")
SEED = pytest.StashKey()
HERE = Path(__file__).parent
ALONE = {"test_interrupts.py", "test_speed_of_pictures.py"}
BY_FILE = {"group", "group_cuda", "peers", "explorer", "test_kit_processes.py"}


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Gives Hypothesis the seed of this run; the profile `mutants` has none."""
    if config.getoption("--hypothesis-profile") != "mutants":
        told = getattr(config, "workerinput", {}).get("seed")
        asked = config.getoption("--hypothesis-seed")
        seed = draw_anew.seed_of_run(asked) if told is None else told
        config.option.hypothesis_seed = config.stash[SEED] = seed


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Workers of pytest-xdist draw by the seed of the run that starts them."""
    if SEED in node.config.stash:
        node.workerinput["seed"] = node.config.stash[SEED]


def is_at(path, places):
    """Whether a file is one of these or lies in one, wherever the checkout is."""
    return bool(places & {*path.relative_to(HERE).parts})


def is_interpreted(item):
    """Whether a test needs kernels, and no GPU for what they do not."""
    needs_more = any(mark.args[0] for mark in item.iter_markers("skipif"))
    return item.get_closest_marker("kernels") is not None and not needs_more


def pytest_ignore_collect(collection_path, config):
    """What -m leaves out is not imported, where it names one marker alone: see ./dev test."""
    places = {"alone": ALONE, "by_file": BY_FILE}.get(config.option.markexpr)
    if places and collection_path.suffix == ".py" and not is_at(collection_path, places):
        return True
    return None


def pytest_collection_modifyitems(config, items):
    """Marks tests that look at the clock, and those that start processes: see ./dev test.

    Where a GPU is interpreted, those of kernels that need no other are left, or a share of them
    that the seed draws.
    """
    for item in items:
        for marker, places in (("alone", ALONE), ("by_file", BY_FILE)):
            if is_at(item.path, places):
                item.add_marker(marker)
    if INTERPRETED:
        rng = random.Random(config.stash.get(SEED, 0))
        drawn = {x for x in items if rng.random() < interpreted.SHARE and is_interpreted(x)}
        config.hook.pytest_deselected(items=[x for x in items if x not in drawn])
        items[:] = [x for x in items if x in drawn]


def pytest_collection_finish(session):
    """Looks for garbage from now on, in what tests leave; see gc.disable above."""
    gc.enable()


def pytest_report_header(config):
    """How to repeat this run, before anything runs."""
    return draw_anew.words(config.stash[SEED]) if SEED in config.stash else []


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Runs a property twice: its fixed examples, then those of this run."""
    if SEED not in pyfuncitem.config.stash or not is_hypothesis_test(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    draw_anew.run_in_parts(pyfuncitem.obj, lambda: pyfuncitem.obj(**arguments))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """How to repeat this run, beside every failure."""
    report = yield
    if report.failed and SEED in item.config.stash:
        report.sections.append(("Seed of this run", draw_anew.words(item.config.stash[SEED])))
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Keeps what a worker of pytest-xdist saw on the GPU; a worker that died says nothing."""
    import cuda_cases

    cuda_cases.add_seen(getattr(node, "workeroutput", {}).get("cuda_cases", {}))


def pytest_sessionfinish(session, exitstatus):
    """Writes what the GPU tests saw, where ./dev gpu-test asks for it."""
    path = os.environ.get("RINGSIDE_GPU_RESULTS")
    if not path:
        return
    import cuda_cases

    if cuda_cases.REASON:
        return
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cuda_cases"] = cuda_cases.seen()
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    outcomes = ("passed", "failed", "skipped", "error")
    counts = {name: len(reporter.stats.get(name, [])) for name in outcomes}
    cuda_cases.write_results(path, counts)
