"""Stores, and the data of a suite, for the tests of the evaluation room."""

from pathlib import Path

import pytest

from tests.evaluation.world import write_world
from tests.stats.conftest import make_store as make_store


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    return folder
