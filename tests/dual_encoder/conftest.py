"""One thread for every test of this folder that does not ask for more."""

from collections.abc import Iterator

import pytest

from tests.commands import one_thread


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield
