"""A suite as tables for the terminal."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from adiabat.core.text import DASH, counted
from adiabat.report import suite_values as figures
from adiabat.report import suite_wording as words
from adiabat.report.evaluation_table import NAME_LENGTH, empty_table
from adiabat.report.suite_analysis import Overview, Tally, finding, mark_of, overview_of, tallies
from adiabat.report.suite_headline import headline
from adiabat.report.wording import cut_name
from adiabat.results.evaluation_result import Verdict
from adiabat.results.suite_result import Score, SuiteResult, SuiteTask

MOST_ROWS = 80
"""Rows up to which every model is shown on every task; of more, only the best and those not measurably worse."""

BESIDE_LENGTH = 28
"""Characters of what a task's models are compared with: as many as a difference with its interval may take."""

_STYLES: dict[Verdict, str] = {"worse": "bold red", "no evidence": "dim", "better": "bold blue"}


def suite_table(result: SuiteResult) -> Group:
    """Models on every task, then over all tasks.

    Texts of the user's are shown as they are: square brackets in a name are no styling.
    """
    seen = overview_of(result)
    return Group(_by_task(seen), _over_tasks(seen))


def _by_task(seen: Overview) -> Table:
    table = empty_table(cut_name(seen.result.title, limit=200), "task, model")
    for column in ("value [95 %]", "difference [95 %]"):
        table.add_column(Text(column), justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    short = len(seen.scores) > MOST_ROWS
    for task in seen.result.tasks:
        beside = cut_name(words.beside(seen, task.name), limit=BESIDE_LENGTH)
        table.add_row(Text(cut_name(task.name, limit=NAME_LENGTH), style="bold"), Text(_head(task), style="dim"), Text(beside, style="dim"))
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
    listed = ", listed candidates" * (task.kind == "triplets")
    return cut_name(f"{task.measure}{lower}{listed}", limit=NAME_LENGTH)


def _near_the_top(seen: Overview, score: Score) -> bool:
    return seen.even(score.task, score.model) is not False


def _row(seen: Overview, score: Score) -> list[Text]:
    mark = mark_of(seen, score.task, score.model)
    style = "bold" if mark.best else ""
    row = [Text(f"  {cut_name(score.model, limit=NAME_LENGTH)}", style=style), Text(figures.level(score), style=style)]
    pairing = seen.pairings.get((score.task, score.model))
    if pairing is not None:
        return [*row, Text(figures.difference(pairing.change)), Text(words.verdict(pairing), style=_STYLES[finding(pairing)])]
    if not score.is_proof:
        return [*row, Text(DASH), Text("trained on it", style="dim")]
    if seen.against.get(score.task) != score.model:
        return row
    lead = "baseline" if score.model == seen.result.baseline else "clearly best" if seen.clear(score.task) else "best"
    return [*row, Text(DASH), Text(lead)]


def _over_tasks(seen: Overview) -> Table:
    table = empty_table("", "model", caption=" ".join(filter(None, [headline(seen), _two_references(seen), words.about_ranks(seen)])))
    every = tallies(seen)
    for column in _counts(seen, every[0]) if every else ():
        table.add_column(Text(column), justify="right", no_wrap=True)
    for tally in every:
        table.add_row(Text(cut_name(tally.name, limit=NAME_LENGTH)), *_counts(seen, tally).values())
    return table


def _two_references(seen: Overview) -> str:
    """What stands beside what, where there are two kinds of comparisons."""
    if not seen.mixed():
        return ""
    baseline, others = cut_name(seen.result.baseline or "", limit=NAME_LENGTH), counted(len(seen.beside_best()), "task")
    told = f"Better, no evidence and worse: beside {baseline}; not worse: than the best, on the other {others}."
    return f"{words.references(seen)} {told}"


def _counts(seen: Overview, tally: Tally) -> dict[str, str]:
    """Head of a column to what stands in it."""
    counts = {"tasks": str(tally.tasks), "best": str(tally.best)}
    if seen.result.baseline is None:
        counts["clearly"] = str(tally.clear)
    else:
        found = tally.found or {}
        counts |= {verdict: str(found.get(verdict, DASH)) for verdict in ("better", "no evidence", "worse")}
    if seen.result.baseline is None or seen.beside_best():
        counts["not worse"] = DASH if tally.even is None else str(tally.even)
    return counts | {"mean rank": words.rank(tally)}
