"""Results that public functions return say what their page says; records below them are data alone."""

from pathlib import Path

import pytest

from adiabat.api.with_page import with_page
from adiabat.core.errors import JobError
from adiabat.report import pages
from adiabat.results.record import read_result, write_result
from tests.report.sample_results import full_result


def test_a_returned_result_has_the_text_of_its_page_and_its_file_has_not(tmp_path: Path) -> None:
    returned = with_page(full_result(), tmp_path)
    assert (returned.headline, returned.reasons) == pages.verdict(full_result())
    assert returned.summary() == pages.summary(full_result())
    assert returned.page == tmp_path / "report.html"
    write_result(returned, tmp_path)
    assert read_result(tmp_path / "result.json") == returned
    assert returned.to_json() == full_result().to_json()


def test_a_record_that_nobody_gave_a_page_says_so() -> None:
    with pytest.raises(JobError, match="returned"):
        _ = full_result().headline
