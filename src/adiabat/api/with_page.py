"""Results as public functions return them: with their directory, and with what their page says."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from adiabat.report.pages import summary, verdict
from adiabat.results.record import Record, Shown

RecordT = TypeVar("RecordT", bound=Record)


def with_page(result: RecordT, folder: Path | None) -> RecordT:
    """The result with its directory, None for one that is not written, and the text of its page."""
    headline, reasons = verdict(result)
    return replace(result, folder=folder, shown=Shown(headline, reasons, summary(result)))
