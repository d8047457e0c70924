"""The same verdicts as the page, as a table for the terminal."""

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from adiabat.report import wording
from adiabat.report.evaluation_headline import headline, kept
from adiabat.results.evaluation_result import Change, DatasetResult, Result, TrainingRecord, Verdict

NAME_LENGTH = 48
"""Characters of a data set's name that the table shows."""

NARROWEST = 15
"""Characters of the column of names at the least."""

_STYLES: dict[Verdict, str] = {"better": "bold blue", "worse": "bold red", "no evidence": "dim"}


def result_table(result: Result) -> Table:
    """One row per data set by its main measure; for a result of training alone, one row per validation figure.

    Texts of the data are shown as they are: square brackets in a name are no styling.
    """
    if not result.datasets and result.training is not None:
        return _training_table(result, result.training)
    compared = any(dataset.main_change().before is not None for dataset in result.datasets)
    return _compared_table(result) if compared else _plain_table(result)


def _compared_table(result: Result) -> Table:
    table = _table(result, ["data set", "measure"], ["before", "after", "change [paired 95 %]"])
    table.add_column("verdict", no_wrap=True)
    for dataset in result.datasets:
        change = dataset.main_change()
        before = wording.DASH if change.before is None else wording.score(change.before)
        table.add_row(*_heads(dataset, change), before, wording.score(change.after), wording.improvement(change), _badge(change))
    return table


def _plain_table(result: Result) -> Table:
    table = _table(result, ["data set", "measure"], ["value", "95 % interval"])
    for dataset in result.datasets:
        change = dataset.main_change()
        table.add_row(*_heads(dataset, change), wording.score(change.after), wording.value_interval(change) or wording.DASH)
    return table


def _training_table(result: Result, record: TrainingRecord) -> Table:
    table = _table(result, ["validation"], ["start", f"kept ({kept(record)})"])
    losses, errors = dict(record.validation_loss), dict(record.validation_errors)
    if 0 in losses and record.best_epoch in losses:
        table.add_row("loss", wording.number(losses[0]), wording.number(losses[record.best_epoch]))
    if 0 in errors and record.best_epoch in errors:
        of = f" of {wording.integer(record.validation_pairs)} {record.unit}" if record.validation_pairs else ""
        table.add_row(f"errors{of}", wording.integer(errors[0]), wording.integer(errors[record.best_epoch]))
    for name, points in record.measures.items():
        table.add_row(name, wording.score(points[0][1]), wording.score(dict(points)[record.best_epoch]))
    return table


def _table(result: Result, words: list[str], numbers: list[str]) -> Table:
    """Fits 80 columns: few lines drawn, and names that fold at a width at which they can still be read."""
    first = words[0]
    table = empty_table(wording.cut(result.title, limit=200), first, caption=headline(result), narrowest=first == "data set")
    for column in words[1:]:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(Text(column), justify="right", no_wrap=True)
    return table


def empty_table(title: str, first: str, *, caption: str = "", narrowest: bool = True) -> Table:
    """A table as all reports draw them in the terminal, with the column of names.

    Args:
        title: Above it; none where it is empty.
    """
    table = Table(
        title=Text(title) if title else None,
        caption=Text(caption) if caption else None,
        caption_justify="left",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column(first, overflow="fold", min_width=NARROWEST if narrowest else None)
    return table


def _heads(dataset: DatasetResult, change: Change) -> tuple[Text, Text]:
    role = "target" if dataset.role == "target" else "retain"
    listed = ", listed candidates" * (dataset.kind == "pairs")
    return Text(f"{role}: {wording.cut_name(dataset.name, limit=NAME_LENGTH)}{listed}"), Text(change.measure)


def _badge(change: Change) -> Text:
    return Text(wording.verdict(change), style="" if change.verdict is None else _STYLES[change.verdict])
