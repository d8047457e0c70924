"""The ranking of a sweep's variants as tables for the terminal."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from adiabat.core.text import integer, share
from adiabat.report import ranking_wording as words
from adiabat.report.evaluation_table import NAME_LENGTH, empty_table
from adiabat.report.format import cut_name, millions
from adiabat.results.sweep_result import Ranking, Standing

_STYLES = {"worse": "bold red", "no evidence": "dim", "better": "bold blue"}


def ranking_tables(found: Ranking, title: str) -> Group:
    """The ranking, and what each variant took.

    Texts of the user's are shown as they are: square brackets in a name are no styling.
    """
    return Group(_ranking(found, title), _costs(found))


def _ranking(found: Ranking, title: str) -> Table:
    table = empty_table(cut_name(title, limit=200), "variant", caption=words.headline(found))
    for column in (f"{found.measure} [95 %]", "to the first [95 %]"):
        table.add_column(Text(column), justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for one in found.standings:
        told = Text(words.verdict(one, found), style="bold blue" if one.to_best is None else _STYLES[one.to_best.verdict])
        table.add_row(_name(one), words.level(one.overall), words.contrast(one.to_best), told)
    for start in found.starts:
        table.add_row(Text(words.start_name(start), style="dim"), Text(words.level(start.overall), style="dim"))
    return table


def _costs(found: Ranking) -> Table:
    backbones = found.compares_models
    table = empty_table("", "variant")
    for column in ("P(best)", "gain on untrained [95 %]", *(("parameters", "texts/s") if backbones else ("pairs", "passes")), "step"):
        table.add_column(Text(column), justify="right", no_wrap=True)
    for one in found.standings:
        own = (millions(one.parameters), words.rate(one.speed)) if backbones else (integer(one.pairs), f"{one.passes:.2g}")
        table.add_row(_name(one), share(one.best_share), words.contrast(one.gain), *own, words.step_time(one.step_seconds))
    return table


def _name(one: Standing) -> Text:
    return Text(cut_name(one.name, limit=NAME_LENGTH))
