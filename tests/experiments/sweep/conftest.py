"""What sweeps read; jobs inside of them leave no pages, which others test and which take most of the time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.experiments.sweep import training_world, world
from tests.pages import without_pages


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        without_pages(patch)
        yield


@pytest.fixture(name="world")
def _world(tmp_path: Path) -> Path:
    """What a sweep over ``tune`` reads."""
    world.write_world(tmp_path)
    return tmp_path


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """What a sweep over ``train`` reads."""
    training_world.write_world(tmp_path)
    return tmp_path
