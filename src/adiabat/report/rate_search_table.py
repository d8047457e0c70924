"""A search for the largest safe rate as tables: for the terminal, and as CSV."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group
from rich.text import Text

from adiabat.core.text import DASH, duration, integer
from adiabat.report.csv_tables import cell, csv_of
from adiabat.report.evaluation_table import empty_table
from adiabat.report.rate_search_wording import drift_value, ended, ending, headline, last, limit, pace
from adiabat.report.wording import cut_name, setting
from adiabat.results.rate_search_result import Rung, SafeRate


def safe_rate_table(result: SafeRate) -> Group:
    """The runs, and what they say.

    Texts of the user's are shown as they are: square brackets in a name are no styling.
    """
    table = empty_table(cut_name(result.title, limit=200), "rate", narrowest=False)
    for heading in ("seed", "steps", "drift", "band", "time"):
        table.add_column(heading, justify="left" if heading == "band" else "right", no_wrap=True)
    for rung in ordered(result):
        drift = last(rung, result.measure)
        looked = integer(rung.steps[-1]) if rung.steps else DASH
        cells = [str(rung.seed), looked, DASH if drift is None else drift_value(drift), ending(result, rung), duration(rung.seconds)]
        style = "bold red" if ended(result, rung) == "diverged" else "bold blue" if rung.rate == result.rate else ""
        table.add_row(setting(rung.rate), *map(Text, cells), style=style)
    made = "made of noise" if result.noise else "as given"
    table.caption = Text(f"drift by {cut_name(result.measure, limit=40)}; the limit is {limit(result)}, {made}")
    return Group(table, *(Text(said, style="italic") for said in (headline(result), pace(result)) if said))


def ordered(result: SafeRate) -> list[Rung]:
    """The runs as tables show them."""
    return sorted(result.rungs, key=lambda rung: (-rung.rate, rung.seed))


def measures_of(result: SafeRate) -> list[str]:
    """Measures of drift that some run was looked at by."""
    return list(dict.fromkeys([result.measure, *(name for rung in result.rungs for name in rung.drift)]))


def safe_rate_csv(result: SafeRate) -> str:
    """One line for each run.

    Returns:
        CSV with a head line: rate, seed, looks, the step of the last, how the run ended, and where; drift at the last look by each measure,
        unrounded; seconds, device, reason. Nothing where there is nothing to say, and texts that a spreadsheet would compute behind an
        apostrophe.
    """
    rows = [dict(_row(result, rung)) for rung in ordered(result)]
    return csv_of([cell(name) for name in rows[0]] if rows else [], (list(row.values()) for row in rows))


def _row(result: SafeRate, rung: Rung) -> Iterator[tuple[str, Any]]:
    yield from (("rate", rung.rate), ("seed", rung.seed), ("looks", len(rung.steps)), ("last_look", max(rung.steps, default=None)))
    yield from (("ended", ended(result, rung)), ("left_at", rung.left_at))
    yield from ((f"drift: {name}", last(rung, name)) for name in measures_of(result))
    yield from (("seconds", rung.seconds), ("device", rung.device), ("reason", rung.reason))
