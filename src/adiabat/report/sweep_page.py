"""The page of a sweep, its files and its terminal tables."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from adiabat.core.text import DASH, NO_BREAK, counted, cut, duration, integer
from adiabat.report import suite_page
from adiabat.report.computed_tables import Column, Table
from adiabat.report.format import cut_name, number, signed, three_digits
from adiabat.report.pages import Figure, Group, Page, Terms, notes_section
from adiabat.report.sweep_costs import cost_table, costs_section
from adiabat.report.sweep_figures import (
    DRIFTS,
    MOST_METHODS,
    Drawing,
    Series,
    against,
    drawings,
    series_of,
    trade,
)
from adiabat.report.sweep_headline import case_cell, case_head, headline, reservations, sides, tone
from adiabat.report.sweep_tables import (
    change_cell,
    columns_of,
    compared_in,
    drift_columns,
    layer_tables,
    legend,
    measure_columns,
    pairs_of,
    run_count,
    sweep_csv,
    sweep_latex,
    sweep_markdown,
)
from adiabat.report.tables import Cell, Section
from adiabat.report.tables import Table as AnyTable
from adiabat.results.sweep_result import Case, Cost, DriftLimit, SweepResult, SweepRun

OPEN_ROWS = 12
"""Maximum number of runs for which their table is open at first."""

MOST_TASKS = 4
"""Maximum number of tasks side by side in the terminal; the page shows all."""

MOST_ROWS = 60
"""Maximum number of settings in the terminal; the page shows all."""

_TERMS = [
    (
        "Improvement",
        "Change of the main measure in percent of the untuned tower’s score; above "
        "zero is better, even for measures where lower is "
        "better. If the untuned tower scores 0, the plain difference is shown.",
    ),
    (
        "Verdict",
        "The tuned and the untuned tower are compared on the same queries, query by query. Better or worse: "
        "the paired 95\N{NO-BREAK SPACE}% interval excludes zero and p is below 0.05, for this run and this "
        "task alone. Undecided is no proof of equality.",
    ),
    (
        "Several seeds",
        "The value is their mean; the two figures below it are the lowest and the highest, "
        "not a confidence interval. A task counts as "
        "worse if it is worse in any run.",
    ),
    (
        "Language pairs",
        "Cells of a language grid: better/worse by the paired test after "
        "Benjamini–Hochberg over the cells. The "
        "two-proportion z-test of Vasilyev et al. 2024 treats pairs of texts "
        "as independent, though many share a text.",
    ),
    (
        "Drift limits",
        "A limit derived from noise lets drift raise the noise by about a tenth. It is "
        "a hit if drift first exceeds it at the rate where "
        "labels first show damage, each task tested alone at 5\N{NO-BREAK SPACE}%; "
        "targets do not count. Untested: neither begins by "
        "the highest rate, or both have begun at the lowest.",
    ),
]


def page(result: SweepResult) -> Page:
    """The page of a sweep."""
    view = result.variation
    settings = [_settings(result), *_figures(result)]
    comparison = suite_page.comparison(result) if result.models else []
    varied = [
        f"{setting.label} ({len(setting.values)})" for setting in view.settings if len(setting.values) > 1
    ]
    seeds = sorted({run.seed for run in result.runs})
    return Page(
        record=result,
        name="sweep",
        headline=headline(result),
        tone=tone(result),
        reservations=reservations(result),
        about=[
            ("tuned from" if result.verb == "tune" else "trained from", result.model),
            ("varied", ", ".join(varied) or "nothing"),
            (
                "runs",
                f"{len(result.runs)}, of {counted(len(view.cases), 'setting')} "
                f"and {counted(len(seeds), 'seed')}",
            ),
        ],
        sections=[
            *([*comparison, *settings] if result.verb == "train" else [*settings, *comparison]),
            costs_section(result),
            _layers(result),
            _drift(result),
            _runs(result),
        ],
        facts=[
            ("seeds of the runs", ", ".join(map(str, seeds))),
            ("devices", ", ".join(dict.fromkeys(run.device for run in result.runs if run.device))),
        ],
        seed="seed of the statistics",
        time="time in all",
    )


def exports(result: SweepResult) -> dict[str, Callable[[], str]]:
    """The tables and figures beside the page."""
    return {
        "table.csv": lambda: sweep_csv(result),
        "table.md": lambda: sweep_markdown(result),
        "table.tex": lambda: sweep_latex(result),
        **{f"figures/{drawing.name}.svg": drawing.chart.file for drawing in drawings(result)},
    }


def _case_table(result: SweepResult, columns: Sequence[Column], **options: Any) -> Table | None:
    """A row for each setting; None without columns or rows."""
    cases = result.variation.cases
    return (
        Table(columns=columns, rows=cases, sortable=True, look="matrix", **options)
        if columns and cases
        else None
    )


def _settings(result: SweepResult) -> Group | None:
    view = result.variation
    if not view.cases:
        return None
    best = view.best_case if len(view.cases) > 1 else None
    shaded = (
        []
        if best is None
        else [
            "shaded: the largest gain on "
            f"targets{', with no other task measurably worse' * bool(result.others)}"
        ]
    )
    caption = ["; ".join([*legend(result), *shaded, "– not measured"])]
    table = _case_table(
        result, columns_of(result), caption=caption, row_class=lambda case: "safe" if case is best else ""
    )
    return Group(
        id="settings-table",
        title="Settings and what they changed",
        lead="Each row is a setting; task columns show the improvement of the "
        "main measure over the untuned tower.",
        sections=[
            table,
            _case_table(
                result, measure_columns(result), id="all-measures", title="All measures", folded=True
            ),
        ],
    )


def _figures(result: SweepResult) -> list[Group]:
    """Figures against each setting and of the costs of gains; without any, a group says why."""
    groups = [_against(result, series, index) for index, series in enumerate(series_of(result))]
    groups += [group] if (group := _trade(result)) is not None else []
    if groups or not result.variation.cases:
        return groups
    numeric = any(setting.numeric and len(setting.values) > 1 for setting in result.variation.settings)
    reason = (
        "No two settings differ in one number alone, so no curves are drawn; the table shows all of them."
        if numeric
        else "No setting that is a number varies, so no curves are drawn."
    )
    return [Group(id="figures", title="Figures against settings", lead=reason, sections=[])]


def _against(result: SweepResult, series: Series, index: int) -> Group:
    """The figures against one setting."""
    label = cut_name(series.combinations[0].label, limit=200)
    lead = [cut(series.setting.name, limit=120)]
    if series.of > len(series.combinations):
        lead.append(f"drawn: 1 of {series.of} combinations, {label}")
    elif len(series.combinations) == 1 and label:
        lead.append(f"drawn for {label}")
    lead += [f"varies with {', '.join(series.tied)}"] if series.tied else []
    lead += [f"not drawn: {counted(series.alone, 'setting')} without a second point"] if series.alone else []
    return Group(
        id=f"against-{index}",
        title=f"Against {cut(series.setting.label, limit=80)}",
        lead="; ".join(lead),
        sections=list(map(_figure, against(result, series))),
    )


def _figure(drawing: Drawing) -> Figure:
    title = cut(drawing.title, limit=200)
    return Figure(
        charts=[drawing.chart],
        title=title,
        caption=drawing.caption,
        label=f"{title}; the table above holds the numbers",
    )


def _trade(result: SweepResult) -> Group | None:
    """Costs of gains: the figure, and methods beside each other at one gain."""
    drawing = trade(result)
    if drawing is None:
        return None
    view = result.variation
    drawn, unknown = (
        min(len(view.methods), MOST_METHODS),
        len(view.cases) - sum(len(method.cases) for method in view.methods),
    )
    limits = [f"{drawn} of {len(view.methods)} methods are drawn"] * (drawn < len(view.methods))
    limits += [f"{counted(unknown, 'setting')} without a known gain"] if unknown else []
    return Group(
        id="trade",
        title="Cost of gains",
        lead="; ".join(limits),
        sections=[_figure(drawing), equal_gain_table(result)],
    )


def equal_gain_table(result: SweepResult) -> Table | None:
    """Methods compared at one gain that they share; None if there is none."""
    equal = result.variation.equal_gain
    if equal is None:
        return None

    def read(cost: Cost, text: str) -> str:
        return f"≈{NO_BREAK}{text}" if cost.interpolated and text != DASH else text

    def change(task: str) -> Column:
        return Column(cut(task, limit=60), lambda cost: read(cost, _percent(cost.changes[task])), "number")

    interpolated = (
        "≈: interpolated between two settings, which shows too much harm where harm grows faster than gain. "
        "Where a method reaches the gain more than once, its row shows the costs at the least drift."
    )
    without = (
        " Left out because they do not reach it: "
        f"{', '.join(cut_name(label, limit=60) for label in equal.without)}."
        if equal.without
        else ""
    )
    columns = [
        Column("method", lambda cost: cut(cost.method or "all runs", limit=120), "name"),
        *map(change, result.others),
        Column(
            f"drift, {DRIFTS[0]}",
            lambda cost: DASH if cost.drift is None else read(cost, number(cost.drift)),
            "number",
        ),
        Column("largest gain with nothing worse", lambda cost: _percent(cost.harmless, "none"), "number"),
    ]
    lead = (
        f"Costs where the targets gain {_percent(equal.gain)}. {interpolated} "
        f"There are no intervals.{without}"
    )
    return Table(title="At equal gain", lead=lead, columns=columns, rows=equal.costs)


def _percent(value: float | None, missing: str = DASH) -> str:
    return missing if value is None else f"{signed(value, decimals=2)}{NO_BREAK}%"


def _layers(result: SweepResult) -> Group | None:
    tables, prefix = layer_tables(result)
    if not tables:
        return None
    names = f" Names are shown without {cut(prefix, limit=120)}" if prefix else ""
    return Group(
        id="layers",
        title="Most changed tensors",
        folded=True,
        subtitle=counted(len(tables[0].rows), "setting"),
        lead="By two measures of Vasilyev et al. 2024 and the Frobenius norm; means over "
        f"seeds, for tensors that tuning changed.{names}",
        sections=tables,
    )


def _drift(result: SweepResult) -> Group | None:
    columns = drift_columns(result)
    if not columns or not result.variation.cases:
        return None
    drifts = [run.drift for run in result.runs_of() if run.drift is not None]
    names = sorted({name for drift in drifts for name in drift.groups})
    groups: list[Section | None] = [
        _case_table(result, drift_columns(result, name), title=cut(name, limit=80)) for name in names
    ]
    return Group(
        id="drift",
        title="Drift of probes",
        lead=f"Means over {max(drift.probes for drift in drifts)} unlabelled "
        "probe texts; 0 means unchanged results. "
        "±: one standard error.",
        sections=[
            _case_table(result, columns),
            drift_limit_table(result),
            Group(title=f"By group of probes ({len(groups)})", folded=True, sections=groups)
            if groups
            else None,
        ],
    )


def drift_limit_table(result: SweepResult) -> Table | None:
    """Drift limits beside labelled damage, if there are any."""
    limits = result.variation.drift_limits

    def rate(value: float | None) -> str:
        return "no rate" if value is None else three_digits(value)

    def bracket(limit: DriftLimit) -> str:
        low, high = limit.bracket
        if high is None:
            return f"from {number(low)}"
        return f"{number(low)} to {number(high)}" if low < high else "none"

    columns = [
        *(
            [Column("runs with", lambda limit: cut(limit.series, limit=120), "name")]
            if limits and limits[0].series
            else []
        ),
        Column("drift by", lambda limit: limit.measure, "name"),
        Column("limit", lambda limit: number(limit.limit), "name"),
        Column("safe by drift up to", lambda limit: rate(limit.safe), "name"),
        Column("harmless by labels up to", lambda limit: rate(limit.harmless), "name"),
        Column("then worse", lambda limit: cut(", ".join(limit.harmed) or "nothing", limit=120), "name"),
        Column("drift is", lambda limit: limit.agreement, "name"),
        Column("limits that hit", bracket, "name"),
    ]
    return (
        Table(id="judged", title="Drift limits beside labels", columns=columns, rows=limits)
        if limits
        else None
    )


def _runs(result: SweepResult) -> Group | None:
    runs = result.runs
    if not runs:
        return None

    def done(text: Callable[[SweepRun], str]) -> Callable[[SweepRun], str]:
        return lambda run: text(run) if run.status == "done" else DASH

    def ended(run: SweepRun) -> Cell:
        failed = run.status != "done"
        return Cell(
            f"{'failed: ' * failed}{cut(run.reason or DASH, limit=300)}", tone="bad" if failed else ""
        )

    def validation(run: SweepRun, points: dict[int, Any], text: Callable[[Any], str]) -> str:
        if 0 not in points or run.best_epoch not in points:
            return DASH
        return f"{text(points[0])} \N{RIGHTWARDS ARROW} {text(points[run.best_epoch])}"

    columns = [
        Column("run", lambda run: cut(run.name, limit=120), "name"),
        Column("ended", ended, "name"),
        Column("steps", done(lambda run: integer(run.steps)), "number"),
        Column("epochs", done(lambda run: integer(run.epochs)), "number"),
        Column("best epoch", done(lambda run: integer(run.best_epoch)), "number"),
        Column("loss", lambda run: validation(run, dict(run.validation_loss), number), "number"),
        Column("errors", lambda run: validation(run, dict(run.validation_errors), integer), "number"),
        Column("trained weights", done(lambda run: integer(run.trainable)), "number"),
        Column(
            "time", lambda run: Cell(duration(run.seconds), value=run.seconds), "number", (), "descending"
        ),
        Column("device", lambda run: cut(run.device or DASH, limit=60), "name"),
    ]
    outcomes = [(task, run.task(task)) for task in result.ordered for run in result.runs_of()]
    notes = {
        task: list(dict.fromkeys(n for name, o in outcomes if name == task and o for n in o.notes))
        for task in result.ordered
    }
    table = Table(columns=columns, rows=runs, sortable=True)
    return Group(
        id="runs",
        title="Runs",
        lead="Each run separately. Loss and errors are on the validation set, "
        "at the start and at the kept epoch.",
        sections=[
            Group(
                title=counted(len(runs), "run"), folded=True, opened=len(runs) <= OPEN_ROWS, sections=[table]
            ),
            notes_section("Notes on tasks", list(notes.items()), everyone="all tasks"),
            Terms(id="how-to-read-settings", terms=_TERMS),
        ],
    )


def terminal(result: SweepResult) -> list[AnyTable]:
    """The comparison of trained settings, or settings by tasks and language pairs, then failed runs."""
    view = result.variation
    failures = [
        Column("failed", lambda run: run.name, "name"),
        Column("reason", lambda run: cut_name(run.reason, limit=300), "name"),
    ]
    failed = (
        [Table(columns=failures, rows=rows[:MOST_ROWS])] if (rows := result.runs_of(status="failed")) else []
    )
    if result.verb == "train" and result.pairings:
        return [*suite_page.terminal(result), cost_table(result), *failed]
    omitted = [(len(view.cases) - MOST_ROWS, "setting"), (len(result.ordered) - MOST_TASKS, "task")]
    more = [f"and {counted(count, name)} more in the report" for count, name in omitted if count > 0]
    key = f"{'* a target of tuning; ' * bool(result.targets)}improvement of the main measure"

    def task_column(task: str) -> Column:
        head = f"{cut_name(task, limit=10)}{' *' * (task in result.targets)}"
        return Column(head, lambda case: replace(change_cell(case, task), sub=()), "number")

    def runs(case: Case) -> Cell:
        return Cell(
            run_count(case) if case.failed < len(case.runs) else "failed", tone="bad" if case.failed else ""
        )

    columns = [
        Column(case_head(view), lambda case: case_cell(view, case), "name"),
        *map(task_column, result.ordered[:MOST_TASKS]),
        Column("runs", runs, "number"),
    ]
    tables: list[AnyTable] = [
        Table(
            title=result.title,
            columns=columns,
            rows=view.cases[:MOST_ROWS],
            caption=["; ".join([key, *more])],
        )
    ]
    tables += [*([_pairs(result)] if compared_in(result) else []), *failed]
    return [*tables[:-1], replace(tables[-1], caption=[*tables[-1].caption, headline(result)])]


def notes(result: SweepResult) -> list[str]:
    """Notes below the tables of the terminal."""
    return suite_page.notes(result)


def _pairs(result: SweepResult) -> Table:
    """Language pairs by the paired test and by the z-test, a block for each comparison."""
    view, rows = result.variation, list[tuple[Cell, str, str]]()
    for first in compared_in(result):
        rows.append((Cell(f"{first.task}: {', '.join(filter(None, first.compared[1:]))}", bold=True), "", ""))
        for case in view.cases[:MOST_ROWS]:
            counts = pairs_of(case, first.compared)
            paired = DASH if counts is None else sides(counts.improved, counts.worsened)
            by_z = DASH if counts is None else sides(counts.improved_z, counts.worsened_z)
            rows.append((Cell(f"  {case_cell(view, case)}"), paired, by_z))
    columns = [
        Column(case_head(view), lambda row: row[0], "name"),
        Column("improved/worsened", lambda row: Cell(row[1]), "number"),
        Column("by the z-test", lambda row: Cell(row[2]), "number"),
    ]
    return Table(columns=columns, rows=rows, caption=["language pairs"])
