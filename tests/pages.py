"""In place of pages that a test does not look at: drawing them takes longer than a tiny run."""

from collections.abc import Iterator

import pytest

from adiabat.report import pages
from adiabat.results.record import Record

real_files = pages.files
EVERY = frozenset(
    {
        "training",
        "evaluation",
        "suite",
        "sweep",
        "rate-search",
        "scaling",
        "plan",
        "space",
        "advice",
        "tenants",
    }
)


def without_pages(
    patch: pytest.MonkeyPatch, kinds: frozenset[str] = frozenset({"training", "evaluation"})
) -> None:
    """Write "page" as the page of records of some kinds, and no further files."""

    def files(record: Record):
        return {"report.html": lambda: "page"} if record.kind in kinds else real_files(record)

    patch.setattr(pages, "files", files)


@pytest.fixture(scope="module", autouse=True)
def no_page() -> Iterator[None]:
    """For a folder whose `conftest` imports it, or a file: pages have tests of their own, and take longer
    than its jobs.
    """
    with pytest.MonkeyPatch.context() as patch:
        without_pages(patch, EVERY)
        yield


@pytest.fixture
def real_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that looks at a page, in a file without them."""
    monkeypatch.setattr(pages, "files", real_files)
