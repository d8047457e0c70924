"""Results as public functions return them: with their directory, and with what their page says."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from adiabat.core.progress import Watch
from adiabat.report.pages import summary, verdict
from adiabat.results.record import RECORD_FILE, Record, Shown
from adiabat.runs.output_dir import write_report

RecordT = TypeVar("RecordT", bound=Record)


def replace_report(result: Record, folder: Path, watch: Watch, *, of: str) -> None:
    """Write a result and its page, and note that an earlier one, such as an evaluation, was replaced."""
    if (folder / RECORD_FILE).exists():
        watch.note(f"replaced the earlier {of} in {folder}")
    write_report(result, folder)


def with_page(result: RecordT, folder: Path | None) -> RecordT:
    """The result with its directory, None for one that is not written, and the text of its page."""
    headline, reasons = verdict(result)
    return replace(result, folder=folder, shown=Shown(headline, reasons, summary(result)))
