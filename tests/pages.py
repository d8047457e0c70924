"""In place of pages that a test does not look at: drawing them takes longer than a tiny run."""

import pytest

from adiabat.report import pages
from adiabat.results.record import Record

real_files = pages.files
EVERY = frozenset({"training", "evaluation", "suite", "sweep", "rate-search", "scaling", "plan", "space"})


def without_pages(patch: pytest.MonkeyPatch, kinds: frozenset[str] = frozenset({"training", "evaluation"})) -> None:
    """Write "page" as the page of records of some kinds, and no further files."""

    def files(record: Record):
        return {"report.html": lambda: "page"} if record.kind in kinds else real_files(record)

    patch.setattr(pages, "files", files)
