"""One thread for every test of this folder; jobs inside a sweep leave no pages, which others test and which take most of the time."""

from collections.abc import Iterator

import pytest

from adiabat.report import evaluation_page as page
from tests.commands import one_thread


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, one_thread():
        patch.setattr(page, "render_page", lambda result: "")
        yield
