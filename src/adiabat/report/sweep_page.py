"""The page of a sweep, its files and its terminal tables."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from adiabat.core.text import DASH, NO_BREAK, counted, cut, duration, integer
from adiabat.report import suite_page
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
    compared_in,
    drift_columns,
    layer_tables,
    legend,
    main_columns,
    measure_columns,
    pairs_of,
    run_count,
    sweep_csv,
    sweep_latex,
    sweep_markdown,
    table_of,
)
from adiabat.report.tables import Cell, Column, Content, Section, Table
from adiabat.results.sweep_result import Case, Cost, DriftLimit, SweepResult, SweepRun

OPEN_ROWS = 12
"""Maximum number of runs for which their table is open at first."""

MOST_TASKS = 4
"""Maximum number of tasks side by side in the terminal; the page shows all."""

MOST_ROWS = 60
"""Maximum number of settings in the terminal; the page shows all."""

NumberT = TypeVar("NumberT", int, float)

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
    settings: list[Section | None] = [_settings(result), *_figures(result)]
    # Of trained models, the question is which one is best; of rates, what they changed.
    first, then = settings, suite_page.comparison(result)
    if result.verb == "train":
        first, then = then, settings
    seeds = sorted({run.seed for run in result.runs})
    varied = []
    for setting in view.settings:
        if len(setting.values) > 1:
            varied.append(f"{setting.label} ({len(setting.values)})")
    runs = f"{len(result.runs)}, of {counted(len(view.cases), 'setting')} and {counted(len(seeds), 'seed')}"
    return Page(
        record=result,
        name="sweep",
        headline=headline(result),
        tone=tone(result),
        reservations=reservations(result),
        about=[
            ("tuned from" if result.verb == "tune" else "trained from", result.model),
            ("varied", ", ".join(varied) or "nothing"),
            ("runs", runs),
        ],
        sections=[*first, *then, costs_section(result), _layers(result), _drift(result), _runs(result)],
        facts=[
            ("seeds of the runs", ", ".join(map(str, seeds))),
            ("devices", ", ".join(dict.fromkeys(run.device for run in result.runs if run.device))),
        ],
        seed="seed of the statistics",
        time="time in all",
    )


def exports(result: SweepResult) -> dict[str, Callable[[], str]]:
    """The tables and figures beside the page."""
    tables = {"table.csv": sweep_csv, "table.md": sweep_markdown, "table.tex": sweep_latex}
    files: dict[str, Callable[[], str]] = {name: partial(text, result) for name, text in tables.items()}
    for drawing in drawings(result):
        files[f"figures/{drawing.name}.svg"] = drawing.chart.file
    return files


def _settings(result: SweepResult) -> Group | None:
    """Every setting with what its runs changed, the best one shaded."""
    view = result.variation
    if not view.cases:
        return None
    marks, best = [*legend(result)], None
    if view.best is not None and len(view.cases) > 1:
        best = view.best
        harmless = ", with no other task measurably worse" if result.others else ""
        marks.append(f"shaded: the largest gain on targets{harmless}")
    caption = "; ".join([*marks, "– not measured"])
    measures = table_of(measure_columns(result), id="all-measures", title="All measures", folded=True)
    return Group(
        id="settings-table",
        title="Settings and what they changed",
        lead="Each row is a setting; task columns show the improvement of the main measure over the untuned "
        "tower.",
        sections=[table_of(main_columns(result), best=best, caption=[caption]), measures],
    )


def _figures(result: SweepResult) -> list[Group]:
    """Figures against each setting and of the costs of gains; without any, a group says why."""
    groups = [_against(result, series, index) for index, series in enumerate(series_of(result))]
    if (costs := _trade(result)) is not None:
        groups.append(costs)
    if groups or not result.variation.cases:
        return groups
    reason = "No setting that is a number varies, so no curves are drawn."
    if any(setting.numeric and len(setting.values) > 1 for setting in result.variation.settings):
        reason = (
            "No two settings differ in one number alone, so no curves are drawn; the table shows all of them."
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
    if series.tied:
        lead.append(f"varies with {', '.join(series.tied)}")
    if series.alone:
        lead.append(f"not drawn: {counted(series.alone, 'setting')} without a second point")
    return Group(
        id=f"against-{index}",
        title=f"Against {cut(series.setting.label, limit=80)}",
        lead="; ".join(lead),
        sections=list(map(_figure, against(result, series))),
    )


def _figure(drawing: Drawing) -> Figure:
    title = cut(drawing.title, limit=200)
    label = f"{title}; the table above holds the numbers"
    return Figure(charts=[drawing.chart], title=title, caption=drawing.caption, label=label)


def _trade(result: SweepResult) -> Group | None:
    """Costs of gains: the figure, and methods beside each other at one gain."""
    drawing = trade(result)
    if drawing is None:
        return None
    view, lead = result.variation, list[str]()
    if len(view.methods) > MOST_METHODS:
        lead.append(f"{MOST_METHODS} of {len(view.methods)} methods are drawn")
    unknown = len(view.cases) - sum(len(method.cases) for method in view.methods)
    if unknown:
        lead.append(f"{counted(unknown, 'setting')} without a known gain")
    sections = [_figure(drawing), equal_gain_table(result)]
    return Group(id="trade", title="Cost of gains", lead="; ".join(lead), sections=sections)


def equal_gain_table(result: SweepResult) -> Table | None:
    """Methods compared at one gain that they share; None if there is none."""
    equal = result.variation.equal_gain
    if equal is None:
        return None
    lead = (
        f"Costs where the targets gain {_percent(equal.gain)}. "
        "≈: interpolated between two settings, which shows too much harm where harm grows faster than gain. "
        "Where a method reaches the gain more than once, its row shows the costs at the least drift. "
        "There are no intervals."
    )
    if equal.without:
        names = ", ".join(cut_name(label, limit=60) for label in equal.without)
        lead += f" Left out because they do not reach it: {names}."
    heads = [*(cut(task, limit=60) for task in result.others), f"drift, {DRIFTS[0]}"]
    heads.append("largest gain with nothing worse")
    columns = [Column("method", "name"), *(Column(head, "number") for head in heads)]
    table = Table(title="At equal gain", lead=lead, columns=columns)
    for cost in equal.costs:
        costs = [_percent(cost.changes[task]) for task in result.others]
        costs.append(DASH if cost.drift is None else number(cost.drift))
        table.add(
            cut(cost.method or "all runs", limit=120),
            *(_read(cost, text) for text in costs),
            _percent(cost.harmless, "none"),
        )
    return table


def _read(cost: Cost, text: str) -> str:
    """A cost, marked if it was read between two settings."""
    return f"≈{NO_BREAK}{text}" if cost.interpolated and text != DASH else text


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
        lead="By two measures of Vasilyev et al. 2024 and the Frobenius norm; means over seeds, for tensors "
        f"that tuning changed.{names}",
        sections=tables,
    )


def _drift(result: SweepResult) -> Group | None:
    """Drift of each setting: over all probes, beside the limits, and for each group of probes."""
    table = table_of(drift_columns(result))
    if table is None:
        return None
    drifts = [run.drift for run in result.runs_of() if run.drift is not None]
    names = set[str]().union(*(drift.groups for drift in drifts))
    groups: list[Section | None] = []
    for name in sorted(names):
        groups.append(table_of(drift_columns(result, name), title=cut(name, limit=80)))
    sections: list[Section | None] = [table, drift_limit_table(result)]
    if groups:
        sections.append(Group(title=f"By group of probes ({len(groups)})", folded=True, sections=groups))
    return Group(
        id="drift",
        title="Drift of probes",
        lead=f"Means over {max(drift.probes for drift in drifts)} unlabelled probe texts; "
        "0 means unchanged results. ±: one standard error.",
        sections=sections,
    )


def drift_limit_table(result: SweepResult) -> Table | None:
    """Drift limits beside labelled damage, if there are any."""
    limits = result.variation.drift_limits
    if not limits:
        return None
    heads = ["drift by", "limit", "safe by drift up to", "harmless by labels up to", "then worse", "drift is"]
    if limits[0].series:
        heads.insert(0, "runs with")
    columns = [Column(head, "name") for head in [*heads, "limits that hit"]]
    table = Table(id="judged", title="Drift limits beside labels", columns=columns)
    for limit in limits:
        table.add(
            *([cut(limit.series, limit=120)] if limits[0].series else []),
            limit.measure,
            number(limit.limit),
            _rate(limit.safe),
            _rate(limit.harmless),
            cut(", ".join(limit.harmed) or "nothing", limit=120),
            limit.agreement,
            _bracket(limit),
        )
    return table


def _rate(value: float | None) -> str:
    return "no rate" if value is None else three_digits(value)


def _bracket(limit: DriftLimit) -> str:
    """Limits that would have been a hit."""
    low, high = limit.bracket
    if high is None:
        return f"from {number(low)}"
    return f"{number(low)} to {number(high)}" if low < high else "none"


def _runs(result: SweepResult) -> Group | None:
    """Each run by itself."""
    runs = result.runs
    if not runs:
        return None
    heads = ["steps", "epochs", "best epoch", "loss", "errors", "trained weights"]
    columns = [Column("run", "name"), Column("ended", "name"), *(Column(head, "number") for head in heads)]
    columns += [Column("time", "number", first="descending"), Column("device", "name")]
    table = Table(columns=columns, sortable=True)
    for run in runs:
        time, device = Cell(duration(run.seconds), value=run.seconds), cut(run.device or DASH, limit=60)
        table.add(cut(run.name, limit=120), *_of_run(run), time, device)
    opened = len(runs) <= OPEN_ROWS
    return Group(
        id="runs",
        title="Runs",
        lead="Each run separately. Loss and errors are on the validation set, at the start and at the kept "
        "epoch.",
        sections=[
            Group(title=counted(len(runs), "run"), folded=True, opened=opened, sections=[table]),
            notes_section("Notes on tasks", _task_notes(result), everyone="all tasks"),
            Terms(id="how-to-read-settings", terms=_TERMS),
        ],
    )


def _of_run(run: SweepRun) -> list[Content]:
    """How a run ended, and its figures; dashes for one without a model."""
    reason = cut(run.reason or DASH, limit=300)
    if run.status != "done":
        return [Cell(f"failed: {reason}", tone="bad"), *[DASH] * 6]
    return [
        reason,
        integer(run.steps),
        integer(run.epochs),
        integer(run.best_epoch),
        _validation(run, dict(run.validation_loss), number),
        _validation(run, dict(run.validation_errors), integer),
        integer(run.trainable),
    ]


def _validation(run: SweepRun, points: Mapping[int, NumberT], text: Callable[[NumberT], str]) -> str:
    """A figure at the start and at the kept epoch."""
    if 0 not in points or run.best_epoch not in points:
        return DASH
    return f"{text(points[0])} \N{RIGHTWARDS ARROW} {text(points[run.best_epoch])}"


def _task_notes(result: SweepResult) -> list[tuple[str, list[str]]]:
    notes: dict[str, list[str]] = {task: [] for task in result.ordered}
    for run in result.runs_of():
        for outcome in run.tasks:
            notes[outcome.task] += [note for note in outcome.notes if note not in notes[outcome.task]]
    return list(notes.items())


def terminal(result: SweepResult) -> list[Table]:
    """The comparison of trained settings, or settings by tasks and language pairs, then failed runs."""
    failed = Table(columns=[Column("failed", "name"), Column("reason", "name")])
    for run in result.runs_of(status="failed")[:MOST_ROWS]:
        failed.add(run.name, cut_name(run.reason, limit=300))
    if result.verb == "train" and result.pairings:
        tables = [*suite_page.terminal(result), cost_table(result)]
        return [*tables, failed] if failed.rows else tables
    tables = [_settings_in_terminal(result)]
    if compared_in(result):
        tables.append(_pairs(result))
    if failed.rows:
        tables.append(failed)
    return [*tables[:-1], replace(tables[-1], caption=[*tables[-1].caption, headline(result)])]


def _settings_in_terminal(result: SweepResult) -> Table:
    """Settings by the first tasks."""
    view, tasks = result.variation, result.ordered[:MOST_TASKS]
    key = ["improvement of the main measure"]
    if result.targets:
        key.insert(0, "* a target of tuning")
    if len(view.cases) > MOST_ROWS:
        key.append(f"and {counted(len(view.cases) - MOST_ROWS, 'setting')} more in the report")
    if len(result.ordered) > MOST_TASKS:
        key.append(f"and {counted(len(result.ordered) - MOST_TASKS, 'task')} more in the report")
    heads = [cut_name(task, limit=10) + (" *" if task in result.targets else "") for task in tasks]
    columns = [Column(case_head(view), "name"), *(Column(head, "number") for head in [*heads, "runs"])]
    table = Table(title=result.title, columns=columns, caption=["; ".join(key)])
    for case in view.cases[:MOST_ROWS]:
        changes = [replace(change_cell(case, task), sub=()) for task in tasks]
        table.add(case_cell(view, case), *changes, _ended(case))
    return table


def _ended(case: Case) -> Cell:
    """The number of runs that left a model, or that none did."""
    if case.failed == len(case.runs):
        return Cell("failed", tone="bad")
    return Cell(run_count(case), tone="bad" if case.failed else "")


def notes(result: SweepResult) -> list[str]:
    """Notes below the tables of the terminal."""
    return suite_page.notes(result)


def _pairs(result: SweepResult) -> Table:
    """Language pairs by the paired test and by the z-test, a block for each comparison."""
    view = result.variation
    columns = [Column(case_head(view), "name"), Column("improved/worsened", "number")]
    columns.append(Column("by the z-test", "number"))
    table = Table(columns=columns, caption=["language pairs"])
    for first in compared_in(result):
        compared = ", ".join(filter(None, first.compared[1:]))
        table.add(Cell(f"{first.task}: {compared}", bold=True), Cell(""), Cell(""))
        for case in view.cases[:MOST_ROWS]:
            counts, cells = pairs_of(case, first.compared), [DASH, DASH]
            if counts is not None:
                by_z = sides(counts.improved_z, counts.worsened_z)
                cells = [sides(counts.improved, counts.worsened), by_z]
            table.add(f"  {case_cell(view, case)}", *cells)
    return table
