"""A suite as tables for the terminal."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from adiabat.measure.results import Verdict
from adiabat.measure.suite_results import Score, SuiteResult, SuiteTask
from adiabat.report import suite_wording as words
from adiabat.report.suite_overview import Overview, Tally, finding, mark_of, overview_of, tallies
from adiabat.report.table import NAME_LENGTH, empty_table
from adiabat.report.wording import DASH, cut

MOST_ROWS = 80
"""Rows up to which every model is shown on every task; of more, only the best and those not measurably worse."""

_STYLES: dict[Verdict, str] = {"worse": "bold red", "no evidence": "dim", "better": "bold blue"}


def suite_table(result: SuiteResult) -> Group:
    """Models on every task, then over all tasks.

    Texts of the user's are shown as they are: square brackets in a name are no styling.

    Args:
        result: Of a suite.

    Returns:
        What to print; the caption under it is the head line of the report.
    """
    seen = overview_of(result)
    return Group(_by_task(seen), _over_tasks(seen))


def _by_task(seen: Overview) -> Table:
    table = empty_table(cut(seen.result.title, limit=200), "task, model")
    for column in ("value [95 %]", "difference [95 %]"):
        table.add_column(Text(column), justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    short = len(seen.scores) > MOST_ROWS
    for task in seen.result.tasks:
        table.add_row(Text(cut(task.name, limit=NAME_LENGTH), style="bold"), Text(_head(task), style="dim"))
        scores = [score for score in seen.on(task.name) if not short or _near_the_top(seen, score)]
        for score in scores:
            table.add_row(*_row(seen, score))
        if left_out := len(seen.on(task.name)) - len(scores):
            table.add_row(Text(f"  and {left_out} more", style="dim"))
        table.add_section()
    return table


def _head(task: SuiteTask) -> str:
    """What the figures are of."""
    lower = ", lower is better" * task.lower_is_better
    return cut(f"{task.measure}{lower}", limit=NAME_LENGTH)


def _near_the_top(seen: Overview, score: Score) -> bool:
    return seen.even(score.task, score.model) is not False


def _row(seen: Overview, score: Score) -> list[Text]:
    mark = mark_of(seen, score.task, score.model)
    style = "bold" if mark.best else ""
    row = [Text(f"  {cut(score.model, limit=NAME_LENGTH)}", style=style), Text(words.level(score), style=style)]
    pairing = seen.pairings.get((score.task, score.model))
    if pairing is not None:
        return [*row, Text(words.difference(pairing.change)), Text(words.verdict(pairing), style=_STYLES[finding(pairing)])]
    if seen.against.get(score.task) != score.model:
        return row
    lead = "baseline" if score.model == seen.result.baseline else "clearly best" if seen.clear(score.task) else "best"
    return [*row, Text(DASH), Text(lead)]


def _over_tasks(seen: Overview) -> Table:
    table = empty_table("", "model", caption=words.headline(seen))
    compared = seen.result.baseline is not None
    for column in ("tasks", "best", *(("better", "no evidence", "worse") if compared else ("clearly", "not worse")), "mean rank"):
        table.add_column(Text(column), justify="right", no_wrap=True)
    for tally in tallies(seen):
        table.add_row(Text(cut(tally.name, limit=NAME_LENGTH)), *_counts(tally, compared=compared), words.rank(tally))
    return table


def _counts(tally: Tally, *, compared: bool) -> list[str]:
    counts = [str(tally.tasks), str(tally.best)]
    if not compared:
        return [*counts, str(tally.clear), str(tally.even)]
    return [*counts, *(DASH if tally.found is None else str(tally.found[verdict]) for verdict in ("better", "no evidence", "worse"))]
