"""What tests of training share."""

from collections.abc import Iterator

import pytest
import torch

from tests.compiled import graphs as graphs


@pytest.fixture(autouse=True)
def _threads_are_given_back() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Passes in two threads, on whatever machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
