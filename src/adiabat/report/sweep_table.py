"""A sweep as tables for the terminal."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from adiabat.core.text import DASH, counted
from adiabat.report.evaluation_table import empty_table
from adiabat.report.format import cut_name
from adiabat.report.ranking_table import ranking_tables
from adiabat.report.sweep_cases import Case, Overview, comparisons_of, outcome, overview_of, pair_counts
from adiabat.report.sweep_columns import outcome_cell
from adiabat.report.sweep_values import case_cell, case_head, sides
from adiabat.report.sweep_wording import headline
from adiabat.results.evaluation_result import Verdict
from adiabat.results.sweep_result import SweepResult

MOST_TASKS = 4
"""Tasks that stand side by side; more of them are in the report."""

MOST_ROWS = 60
"""Settings up to which all are shown; of more, the first."""

NAME_LENGTH = 10
"""Characters of a task's name over its column."""

_STYLES: dict[Verdict | None, str] = {"worse": "bold red", "no evidence": "dim", "better": "bold blue", None: ""}


def sweep_tables(result: SweepResult) -> Group:
    """Settings by tasks, language pairs, and runs that failed.

    Texts of the user's are shown as they are: square brackets in a name are no styling.
    """
    seen = overview_of(result)
    if result.verb == "train" and result.ranking is not None:
        return Group(ranking_tables(result.ranking, result.title), *([_failed(seen)] if seen.failed else []))
    tables = [
        _by_task(seen),
        *([_pairs(seen)] if comparisons_of(seen.done, result.tasks) else []),
        *([_failed(seen)] if seen.failed else []),
    ]
    return Group(*tables, Text(headline(seen), style="italic"))


def _by_task(seen: Overview) -> Table:
    table = empty_table(cut_name(seen.result.title, limit=200), case_head(seen))
    shown = seen.ordered[:MOST_TASKS]
    for task in shown:
        target = " *" * (task in seen.result.targets)
        table.add_column(Text(f"{cut_name(task, limit=NAME_LENGTH)}{target}"), justify="right", no_wrap=True)
    table.add_column("runs", justify="right", no_wrap=True)
    for case in seen.cases[:MOST_ROWS]:
        table.add_row(_name(seen, case), *(_cell(case, task) for task in shown), _runs(case))
    left_out = [(len(seen.cases) - MOST_ROWS, "setting"), (len(seen.ordered) - MOST_TASKS, "task")]
    more = [f"and {counted(number, what)} more in the report" for number, what in left_out if number > 0]
    told = "* a target of tuning; improvement of the main measure" if seen.result.targets else "improvement of the main measure"
    table.caption = Text("; ".join([told, *more]))
    return table


def _name(seen: Overview, case: Case) -> Text:
    return Text(cut_name(case_cell(seen, case), limit=80))


def _cell(case: Case, task: str) -> Text:
    found, cell = outcome(case, task), outcome_cell(case, task)
    return Text(" ".join(filter(None, [cell.text, cell.sign])), style=_STYLES[found.verdict if found else None])


def _runs(case: Case) -> Text:
    done, every = len(case.done), len(case.runs)
    return Text(str(every)) if done == every else Text(f"{done} of {every}" if done else "failed", style="bold red")


def _pairs(seen: Overview) -> Table:
    table = empty_table("", case_head(seen))
    for heading in ("improved/worsened", "by the z-test"):
        table.add_column(heading, justify="right", no_wrap=True)
    for compared in comparisons_of(seen.done, seen.result.tasks):
        task, *by = compared
        table.add_row(Text(cut_name(f"{task}: {', '.join(filter(None, by))}", limit=80), style="bold"))
        for case in seen.cases[:MOST_ROWS]:
            counts = pair_counts(case.done, compared)
            cells = (
                (DASH, DASH) if counts is None else (sides(counts.improved, counts.worsened), sides(counts.improved_z, counts.worsened_z))
            )
            table.add_row(Text("  ") + _name(seen, case), *cells)
        table.add_section()
    table.caption = Text("language pairs")
    return table


def _failed(seen: Overview) -> Table:
    table = empty_table("", "failed")
    table.add_column("reason", overflow="fold")
    for run in seen.failed[:MOST_ROWS]:
        table.add_row(Text(cut_name(run.name, limit=80)), Text(cut_name(run.reason, limit=300)))
    return table
