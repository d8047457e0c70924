"""The page of a sweep, its files and its terminal tables."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from adiabat.core.text import DASH, counted, cut, duration, integer
from adiabat.report import sweep_captions as captions
from adiabat.report import sweep_curves as curves
from adiabat.report import sweep_drift as drift
from adiabat.report import sweep_figures as figures
from adiabat.report import sweep_wording as words
from adiabat.report.charts import Chart
from adiabat.report.format import cut_name, number
from adiabat.report.page import Figure, Group, Notes, Page, Terms, gathered
from adiabat.report.ranking_section import ranking_groups, ranking_tables
from adiabat.report.sweep_cases import Case, Overview, comparisons_of, overview_of, pair_counts
from adiabat.report.sweep_columns import columns_of, drift_columns, drift_groups, measure_columns, outcome_cell
from adiabat.report.sweep_exports import sweep_csv, sweep_latex, sweep_markdown
from adiabat.report.sweep_gain_tradeoff import at_equal_gain
from adiabat.report.sweep_layers import LayerTable, most_changed
from adiabat.report.sweep_values import case_cell, case_head, rate, sides
from adiabat.report.tables import Cell, Column, Section, Table
from adiabat.results.sweep_result import SweepResult, SweepRun

OPEN_ROWS = 12
"""Runs up to which their table stands open when the page is loaded."""

OPEN_NOTES = 5
"""Notes that stand open when the page is loaded; more of them are folded."""

MOST_TASKS = 4
"""Tasks that stand side by side in the terminal; more of them are on the page."""

MOST_ROWS = 60
"""Settings up to which the terminal shows all; of more, the first."""

_TERMS = [
    (
        "Improvement",
        "Of the main measure, in percent of what the untuned tower scores; above zero is better, also where a lower value is. Where the "
        "untuned "
        "tower scores 0 the plain difference stands.",
    ),
    (
        "Verdict",
        "Tuned and untuned tower answered the same queries, and are compared query by query. Better and worse: the paired "
        "95\N{NO-BREAK SPACE}% interval "
        "leaves zero out and p is below 0.05, for this run and this task alone. No evidence is not proof of equality; the interval says "
        "how large "
        "a loss may be.",
    ),
    (
        "Several seeds",
        "The value is their mean, and the two figures below it are the lowest and the highest; that is no interval. A task counts as "
        "worse where it "
        "is in any run.",
    ),
    (
        "Language pairs",
        "Cells of a language grid: better/worse by the paired test after Benjamini–Hochberg over the cells. The z-test is the source’s: "
        "it takes "
        "pairs of texts for independent, though many share a text, and compares two proportions.",
    ),
]
_LAYERS = (
    "Most changed tensors",
    "By the source’s two measures, whose largest weights say nothing of all others, and by the Frobenius norm, which weighs them all.",
)
_JUDGED = (
    "The limit lets drift raise the noise by about a tenth: what the untuned tower finds for the same probes moves, too, when only the "
    "mark at their "
    "end comes or goes. A limit is a hit if drift leaves it at the rate where labels first show damage, each task by itself at "
    "5\N{NO-BREAK SPACE}%; targets do "
    "not count. Untested: the rates end before both begin, or both begin below the lowest."
)


def page(result: SweepResult) -> Page:
    """The page of a sweep."""
    view = overview_of(result)
    varied = [f"{setting.label} ({len(setting.values)})" for setting in view.settings if len(setting.values) > 1]
    seeds = len({run.seed for run in result.runs})
    layers, prefix = most_changed(view)
    return Page(
        record=result,
        name="sweep",
        headline=words.headline(view),
        tone=words.tone(view),
        reservations=words.reservations(view),
        about=[
            ("tuned from" if result.verb == "tune" else "trained from", result.model),
            ("varied", ", ".join(varied) or "nothing"),
            ("runs", f"{len(result.runs)}, of {counted(len(view.cases), 'setting')} and {counted(seeds, 'seed')}"),
        ],
        sections=[
            *([] if result.ranking is None else ranking_groups(result.ranking)),
            _settings(view),
            *_figures(view),
            _trade(view),
            _layers(view, layers, prefix) if layers else None,
            _drift(view),
            _runs(view, has_layers=bool(layers)),
        ],
        facts=[
            *(("made", result.created), ("seeds of the runs", ", ".join(map(str, sorted({run.seed for run in result.runs}))))),
            *(("seed of the statistics", str(result.seed)), ("time in all", duration(result.seconds))),
            ("devices", ", ".join(dict.fromkeys(run.device for run in result.runs if run.device))),
        ],
        tables=[("inputs", "Inputs", result.inputs), ("settings", "Settings", result.settings)],
    )


def exports(result: SweepResult) -> dict[str, Callable[[], str]]:
    """The tables and figures beside the page."""
    view = overview_of(result)
    tables = {"table.csv": sweep_csv, "table.md": sweep_markdown, "table.tex": sweep_latex}
    files: dict[str, Callable[[], str]] = {name: (lambda write=write: write(view)) for name, write in tables.items()}  # type: ignore[misc]
    return {**files, **{f"figures/{chart.name}.svg": chart.file for chart in map(figures.chart_of, figures.pictures(view))}}


def _table(view: Overview, columns: Sequence[Column], **parts: Any) -> Table | None:
    """A row for each setting; None where there is nothing to show."""
    return Table(columns=columns, rows=view.cases, sortable=True, look="matrix", **parts) if columns and view.cases else None


def _settings(view: Overview) -> Group | None:
    if not view.cases:
        return None
    best = words.best_of(view) if len(view.cases) > 1 else None
    harmless = " without making another task measurably worse" * bool(view.others)
    shaded = [f"shaded: the one that gained most on the target{'s' * (len(view.result.targets) > 1)}{harmless}"] if best is not None else []
    table = _table(
        view,
        columns_of(view),
        caption=["; ".join([*captions.key(view), *shaded, "– not measured"])],
        row_class=lambda case: "safe" if case is best else "",
    )
    measures = measure_columns(view)
    return Group(
        id="settings-table",
        title="Settings and what they changed",
        lead="A row is a setting; tasks show the improvement of their main measure on the untuned tower.",
        sections=[table, _table(view, measures, id="all-measures", title="All measures", folded=True)],
    )


def _figures(view: Overview) -> list[Group]:
    """The figures of each setting that things are drawn against."""
    groups = []
    for position, series in enumerate(curves.series_of(view)):
        about = captions.about_series(series)
        groups.append(
            Group(
                id=f"against-{position}",
                title=f"Against {cut(series.setting.label, limit=80)}",
                lead=f"{cut(series.setting.name, limit=120)}{'. ' if about else ''}{about}",
                sections=[_figure(picture) for picture in figures.against(view, series)],
            )
        )
    if not groups and view.cases and figures.trade_picture(view) is None:
        return [Group(id="figures", title="Figures", lead=captions.no_figures(view), sections=[])]
    return groups


def _figure(picture: figures.Picture, more: str = "") -> Figure:
    title = cut(picture.title, limit=200)
    chart: Chart = figures.chart_of(picture)
    caption = captions.caption(picture.kind, picture.series) + more
    return Figure(charts=[chart], title=title, caption=caption, label=f"{title}; the table above holds the numbers")


def _trade(view: Overview) -> Group | None:
    """What gains cost: the figure, and ways to tune beside each other at one gain."""
    drawn, equal = figures.trade_picture(view), at_equal_gain(view)
    if drawn is None:
        return None
    table = None
    if equal is not None:
        words_of = captions.equal_gain(view, equal)
        columns = [_text_column(position, head) for position, head in enumerate(words_of.head)]
        table = Table(title="At equal gain", lead=words_of.lead, columns=columns, rows=words_of.rows)
    return Group(id="trade", title="What gains cost", sections=[_figure(drawn, captions.undrawn(view)), table])


def _text_column(position: int, head: str, *, numbers: bool = True) -> Column:
    kind = "number" if position and numbers else "name"
    return Column(cut(head, limit=60), lambda row: cut(row[position], limit=120), kind)  # type: ignore[arg-type]


def _layers(view: Overview, layers: Sequence[LayerTable], prefix: str) -> Group:
    names = f" Names are shown without {cut(prefix, limit=120)}" if prefix else ""

    def table(layer: LayerTable) -> Table:
        def tensors(row: Any) -> Cell:
            first, *more = [f"{cut(name, limit=120)} {rate(value)}" for name, value in row.tensors]
            return Cell(first, more)

        columns = [Column(cut(case_head(view), limit=60), lambda row: cut(case_cell(view, row.case), limit=120), "name")]
        return Table(
            title=layer.measure.title, lead=layer.measure.formula, columns=[*columns, Column("tensors", tensors, "code")], rows=layer.rows
        )

    return Group(
        id="layers",
        title="Most changed tensors",
        folded=True,
        said=counted(len(layers[0].rows), "setting"),
        lead=f"The two that come first at each setting, by three measures; values are means over seeds, of tensors that tuning "
        f"changed.{names}",
        sections=[Group(title="", sections=list(map(table, layers)), side_by_side=True)],
    )


def _drift(view: Overview) -> Group | None:
    columns = drift_columns(view)
    if not columns or not view.cases:
        return None
    probes = max((run.drift.probes for run in view.done if run.drift is not None), default=0)
    judged = drift.judged(view)
    judgements = None
    if judged:
        heads = (*(["runs with"] if judged[0].series else []), *drift.HEAD)
        judgements = Table(
            id="judged",
            title="Without labels, and with them",
            lead=_JUDGED,
            columns=[_text_column(position, head, numbers=False) for position, head in enumerate(heads)],
            rows=[judgement.cells() for judgement in judged],
        )
    groups: list[Section | None] = [_table(view, drift_columns(view, group), title=cut(group, limit=80)) for group in drift_groups(view)]
    return Group(
        id="drift",
        title="Drift of probes",
        lead=f"Means over {probes} probe texts without labels: 0 where the tuned tower finds what the untuned one did. ±: one standard "
        f"error.",
        sections=[
            _table(view, columns),
            judgements,
            Group(title=f"By group of probes ({len(groups)})", folded=True, sections=groups) if groups else None,
        ],
    )


def _runs(view: Overview, *, has_layers: bool) -> Group | None:
    runs = view.result.runs
    if not runs:
        return None

    def done(shown: Callable[[SweepRun], str]) -> Callable[[SweepRun], str]:
        return lambda run: shown(run) if run.status == "done" else DASH

    def ended(run: SweepRun) -> Cell:
        failed = run.status != "done"
        return Cell(f"{'failed: ' * failed}{cut(run.reason or DASH, limit=300)}", tone="bad" if failed else "")

    columns = [
        Column("run", lambda run: cut(run.name, limit=120), "name"),
        Column("ended", ended, "name"),
        Column("steps", done(lambda run: integer(run.steps)), "number"),
        Column("epochs", done(lambda run: integer(run.epochs)), "number"),
        Column("best epoch", done(lambda run: integer(run.best_epoch)), "number"),
        Column("loss", lambda run: _best(run, dict(run.validation_loss), number), "number"),
        Column("errors", lambda run: _best(run, dict(run.validation_errors), integer), "number"),
        Column("trained weights", done(lambda run: integer(run.trainable)), "number"),
        Column("time", lambda run: Cell(duration(run.seconds), value=run.seconds), "number", (), "descending"),
        Column("device", lambda run: cut(run.device or DASH, limit=60), "name"),
    ]
    every = {task: list(dict.fromkeys(note for run in view.done if (own := run.task(task)) for note in own.notes)) for task in view.ordered}
    notes = gathered(list(every.items()), every="all tasks")
    table = Table(columns=columns, rows=runs, sortable=True)
    return Group(
        id="runs",
        title="Runs",
        lead="Every run by itself. Loss and errors are of validation, at the start and at the epoch that was kept.",
        sections=[
            Group(title=counted(len(runs), "run"), folded=True, opened=len(runs) <= OPEN_ROWS, sections=[table]),
            Notes(title="Notes on tasks", notes=notes, shown=OPEN_NOTES) if notes else None,
            Terms(terms=[*_TERMS, *([_LAYERS] if has_layers else [])]),
        ],
    )


def _best(run: SweepRun, points: dict[int, Any], shown: Callable[[Any], str]) -> str:
    """A figure of the validation at the start and at the best epoch."""
    if 0 not in points or run.best_epoch not in points:
        return DASH
    return f"{shown(points[0])} \N{RIGHTWARDS ARROW} {shown(points[run.best_epoch])}"


def terminal(result: SweepResult) -> list[Table]:
    """The ranking of trained variants, or settings by tasks and language pairs, then runs that failed."""
    view = overview_of(result)
    failures = [Column("failed", lambda run: run.name, "name"), Column("reason", lambda run: cut_name(run.reason, limit=300), "name")]
    failed = [Table(columns=failures, rows=view.failed[:MOST_ROWS])] if view.failed else []
    if result.verb == "train" and result.ranking is not None:
        return [*ranking_tables(result.ranking, result.title), *failed]
    shown = view.ordered[:MOST_TASKS]
    left_out = [(len(view.cases) - MOST_ROWS, "setting"), (len(view.ordered) - MOST_TASKS, "task")]
    more = [f"and {counted(count, what)} more in the report" for count, what in left_out if count > 0]
    key = f"{'* a target of tuning; ' * bool(result.targets)}improvement of the main measure"

    def task_column(task: str) -> Column:
        head = f"{cut_name(task, limit=10)}{' *' * (task in result.targets)}"
        return Column(head, lambda case: _short(outcome_cell(case, task)), "number")

    columns = [
        Column(case_head(view), lambda case: case_cell(view, case), "name"),
        *map(task_column, shown),
        Column("runs", _count, "number"),
    ]
    tables = [Table(title=result.title, columns=columns, rows=view.cases[:MOST_ROWS], caption=["; ".join([key, *more])])]
    tables += [_pairs(view)] if comparisons_of(view.done, result.tasks) else []
    tables += failed
    return [*tables[:-1], replace(tables[-1], caption=[*tables[-1].caption, words.headline(view)])]


def _short(cell: Cell) -> Cell:
    return Cell(cell.text, sign=cell.sign, sign_tone=cell.sign_tone)


def _count(case: Case) -> Cell:
    done, every = len(case.done), len(case.runs)
    if done == every:
        return Cell(str(every))
    return Cell(f"{done} of {every}" if done else "failed", tone="bad")


def _pairs(view: Overview) -> Table:
    """Language pairs by the paired test and by the z-test, a block for each comparison."""
    rows: list[tuple[Cell, str, str]] = []
    for compared in comparisons_of(view.done, view.result.tasks):
        task, *by = compared
        rows.append((Cell(f"{task}: {', '.join(filter(None, by))}", bold=True), "", ""))
        for case in view.cases[:MOST_ROWS]:
            counts = pair_counts(case.done, compared)
            paired, z = (
                (DASH, DASH) if counts is None else (sides(counts.improved, counts.worsened), sides(counts.improved_z, counts.worsened_z))
            )
            rows.append((Cell(f"  {case_cell(view, case)}"), paired, z))
    columns = [
        Column(case_head(view), lambda row: row[0], "name"),
        Column("improved/worsened", lambda row: Cell(row[1]), "number"),
        Column("by the z-test", lambda row: Cell(row[2]), "number"),
    ]
    return Table(columns=columns, rows=rows, caption=["language pairs"])
