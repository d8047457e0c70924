"""Every test runs without a network; `make test-shapes` also checks the shape annotations of the package at
each call.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Read by the hub's client when it is first imported, so it must come before everything else.
os.environ["HF_HUB_OFFLINE"] = "1"
# Read by OpenMP when torch is imported: by default a second thread burns a core while it waits for the next
# of these tiny matrices.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# On matrices this small, threads wait for each other longer than they compute.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.checking import SHAPES, check_shapes

# Modules imported before this line would go unchecked: nothing above imports the package.
if SHAPES:
    check_shapes("adiabat")


# The same cases in every run, few enough for the time that the suite has.
settings.register_profile("adiabat", derandomize=True, max_examples=40, deadline=None, database=None)
settings.load_profile("adiabat")


def pytest_collection_finish() -> None:
    """What is loaded by now stays: collections of garbage, of which every run of a sweep makes one, need not
    look at it again.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is left in the cache of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """Thousands of writes would: what the disk itself holds matters where the power fails, but a killed
    process loses no write.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_stack_is_noted() -> Iterator[None]:
    """Where no GPU is in use, torch notes the stack of each call that seeds its generators, and those of
    tests are deep.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("traceback.format_stack", lambda: [])
        yield


@pytest.fixture(scope="session", autouse=True)
def _machines_are_measured_briefly() -> Iterator[None]:
    """Every encoder embeds texts twice where bfloat16 is native, and every run collects garbage for its peak
    of memory: `test_device`.
    """
    with pytest.MonkeyPatch.context() as patch:
        if device := sys.modules.get("adiabat.models.device"):
            patch.setattr(device, "PROBE", device.PROBE[:3])
        for name in {"adiabat.dual_encoder.train", "adiabat.experiments.scaling"} & sys.modules.keys():
            patch.setattr(sys.modules[name], "reset_peak_memory", lambda device: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_is_heard() -> Iterator[None]:
    """A shell lets what it runs in the background ignore Ctrl-C, and with it the commands that tests
    start.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def _charts_are_not_laid_out() -> Iterator[None]:
    """To make room for letters takes more than half of the time of a page; `test_charts` looks at charts as
    users see them.
    """
    from adiabat.report.charts import Chart

    def draw(chart: Chart) -> "Figure":
        from matplotlib.figure import Figure

        chart.plot(figure := Figure())
        return figure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chart, "draw", draw)
        yield
