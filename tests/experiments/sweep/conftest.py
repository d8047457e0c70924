"""One thread for every test of this folder; jobs inside a sweep leave no pages, which others test and which
take most of the time.
"""

from collections.abc import Iterator

import pytest

from tests.pages import without_pages


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        without_pages(patch)
        yield
