"""A scaling experiment, or a plan, as tables for the terminal."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from adiabat.core.text import DASH, flop, integer, share
from adiabat.report.evaluation_table import empty_table
from adiabat.report.format import cut_name, number
from adiabat.report.scaling_wording import CHOICE_HEAD, choice_cells, errors, headline, reservations
from adiabat.results.scaling_result import Advice, ScalingResult

MOST_ROWS = 8
"""Options that are shown."""

NOT_SHOWN = ("FLOP", "memory")
"""Columns of the page for which a terminal has no room."""


def scaling_tables(result: ScalingResult) -> Group:
    """What runs say, or what to train.

    Texts of the user's are shown as they are: square brackets in a name are no styling.
    """
    table = _kinds(result) if result.advice is None else _options(result, result.advice)
    said = [Text(headline(result), style="bold"), *(Text(f"- {one}") for one in reservations(result))]
    return Group(table, *said)


def _kinds(result: ScalingResult) -> Table:
    table = empty_table(cut_name(result.title, limit=200), "models and method")
    for heading in ("runs", "least loss", "at", "error on the largest model", "budget"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in result.kinds:
        line = one.frontier
        least = min(((value, budget) for value, budget in zip(line.values, line.at, strict=True)), default=None) if line else None
        cells = [
            integer(one.runs),
            DASH if least is None else number(least[0]),
            DASH if least is None else flop(least[1]),
            *errors(one),
        ]
        table.add_row(Text(str(one.kind)), *map(Text, cells))
    return table


def _options(result: ScalingResult, advice: Advice) -> Table:
    table = empty_table(cut_name(result.title, limit=200), CHOICE_HEAD[0], narrowest=False)
    shown = [place for place, heading in enumerate(CHOICE_HEAD) if heading not in NOT_SHOWN]
    for place in shown[1:]:
        table.add_column(CHOICE_HEAD[place], justify="right", no_wrap=True)
    for number_of, one in enumerate(advice.candidates[:MOST_ROWS]):
        cells = choice_cells(one)
        style = "bold blue" if number_of == 0 and advice.best is not None else ""
        table.add_row(*(Text(cells[place]) for place in shown), style=style)
    if advice.additions:
        told = "; ".join(f"{one.run} at {flop(one.budget)}, seed {one.seed} ({share(one.gain)})" for one in advice.additions)
        table.caption = Text(f"runs that would narrow the answer most: {told}")
    return table
