"""The page of a sweep, its files and its terminal tables."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from adiabat.core.text import DASH, NO_BREAK, counted, cut, duration, integer
from adiabat.report import suite_page
from adiabat.report.captions import glossary, text_of
from adiabat.report.format import VERDICT_MARKS, cut_name, number, signed, three_digits
from adiabat.report.pages import Figure, Files, Group, Page, Sections, Terms, group, notes_section
from adiabat.report.sweep_costs import cost_table, costs_section
from adiabat.report.sweep_figures import Drawing, against, axes_of, drawings, gain_axis, trade
from adiabat.report.sweep_headline import headline, reservations, tone
from adiabat.report.sweep_tables import (
    case_column,
    described,
    drift_columns,
    label_of,
    layer_table,
    main_columns,
    method_labels,
    pair_columns,
    runs_column,
    setting_columns,
    sweep_csv,
    table_of,
    task_columns,
)
from adiabat.report.tables import Cell, Column, ColumnKind, Content, Table
from adiabat.results.sweep_result import Cost, DriftLimit, SweepResult, SweepRun

OPEN_ROWS = 12
"""Maximum number of runs for which their table is open at first."""

MOST_ROWS = 60
"""Maximum number of rows of a table in the terminal; the page shows all."""

NumberT = TypeVar("NumberT", int, float)


def page(result: SweepResult) -> Page:
    """The page of a sweep."""
    view = result.variation
    seeds = sorted({run.seed for run in result.runs})
    varied = []
    for index in view.differing:
        values = view.settings[index].values
        varied.append(f"{label_of(view, index)} ({len(values)})")
    cases, count = counted(len(view.cases), "setting"), counted(len(seeds), "seed")
    runs = f"{len(result.runs)}, of {cases} and {count}"
    devices = dict.fromkeys(run.device for run in result.runs if run.device)
    settings = [_settings(result), *_figures(result), _trade(result)] if view.cases else []
    compared = suite_page.comparison(result)
    # Of trained models, the question is which one is best; of rates, what they changed.
    start, first = "tuned from", [*settings, *compared]
    if result.verb == "train":
        start, first = "trained from", [*compared, *settings]
    return Page(
        record=result,
        name="sweep",
        headline=headline(result),
        tone=tone(result),
        reservations=reservations(result),
        about=[
            (start, result.model),
            ("varied", ", ".join(varied) or "nothing"),
            ("runs", runs),
        ],
        sections=[*first, costs_section(result), _layers(result), _drift(result), _runs(result)],
        facts=[
            ("seeds of the runs", ", ".join(map(str, seeds))),
            ("devices", ", ".join(devices)),
        ],
        seed="seed of the statistics",
        time="time in all",
    )


# --- Sections ---


def _settings(result: SweepResult) -> Group:
    """Every setting with what its runs changed, the best one shaded."""
    caption, best = [_legend()], result.variation.best
    if best is not None:
        caption.append(text_of("sweep", "shaded"))
    every = setting_columns(result)
    for task in result.ordered:
        every += task_columns(result, task)
    main = table_of(main_columns(result), best=best, caption=caption)
    measures = table_of(every, id="all-measures", title="All measures", folded=True)
    return group("sweep", "settings-table", main, measures)


def _legend() -> str:
    """The meaning of the marks in a table of settings."""
    signs = [f"{mark} {verdict}" for verdict, mark in VERDICT_MARKS.items()]
    return text_of("sweep", "legend", marks=", ".join(signs))


def _figures(result: SweepResult) -> list[Group]:
    """Figures against each setting; without any, a group says why."""
    groups = []
    for index, axis in enumerate(axes_of(result)):
        label, name = cut(axis.label, limit=80), cut(axis.name, limit=120)
        lead = text_of("sweep", "against", setting=name, shown=len(axis.curves), of=axis.of)
        figures = list(map(_figure, against(result, axis)))
        groups.append(Group(id=f"against-{index}", title=f"Against {label}", lead=lead, sections=figures))
    return groups or [group("sweep", "figures")]


def _figure(drawing: Drawing) -> Figure:
    """A figure for the page, below the table of its numbers."""
    title = cut(drawing.title, limit=200)
    label = f"{title}; the table above holds the numbers"
    return Figure(charts=[drawing.chart], title=title, caption=drawing.caption, label=label)


def _trade(result: SweepResult) -> Group | None:
    """Costs of gains: the figure, and methods beside each other at one gain."""
    axis, figures = gain_axis(result), list(map(_figure, trade(result)))
    if axis is None or not figures:
        return None
    table = equal_gain_table(result)
    return group("sweep", "trade", *figures, table, shown=len(axis.curves), of=axis.of)


def equal_gain_table(result: SweepResult) -> Table | None:
    """Methods compared at one gain that they share; None if there is none."""
    view, equal = result.variation, result.variation.equal_gain
    if equal is None:
        return None
    heads = [cut(task, limit=60) for task in result.others]
    heads += ["drift, overlap loss", "largest gain with nothing worse"]
    columns = [Column("method", "name"), *(Column(head, "number") for head in heads)]
    lead = text_of("sweep", "equal-gain", gain=_percent(equal.gain))
    table = Table(title="At equal gain", lead=lead, columns=columns)
    labels = method_labels(view)
    for cost in equal.costs:
        cells = [_percent(cost.changes[task]) for task in result.others]
        cells.append(DASH if cost.drift is None else number(cost.drift))
        method = cut(labels[cost.method], limit=120)
        read = [_read(cost, cell) for cell in cells]
        table.add(method, *read, _percent(cost.harmless))
    return table


def _read(cost: Cost, text: str) -> str:
    """A cost, marked if it was read between two settings."""
    if not cost.interpolated or text == DASH:
        return text
    return f"≈{NO_BREAK}{text}"


def _percent(value: float | None) -> str:
    """A signed change in percent; a dash for None."""
    if value is None:
        return DASH
    return f"{signed(value, decimals=2)}{NO_BREAK}%"


def _layers(result: SweepResult) -> Group | None:
    """The most changed tensors of each setting, folded; None if no tensor changed."""
    table = layer_table(result)
    if table is None:
        return None
    lead, rows = text_of("sweep", "layers"), counted(len(result.variation.cases), "setting")
    title = "Most changed tensors"
    return Group(id="layers", title=title, folded=True, subtitle=rows, lead=lead, sections=[table])


def _drift(result: SweepResult) -> Group | None:
    """Drift of each setting: over all probes, beside the limits, and for each group of probes."""
    drifts = [run.drift for run in result.runs_of() if run.drift is not None]
    if not drifts:
        return None
    settings = setting_columns(result)
    groups: Sections = []
    names = set[str]()
    for drift in drifts:
        names |= drift.groups.keys()
    for name in sorted(names):
        columns = [*settings, *drift_columns(result, name)]
        groups.append(table_of(columns, title=cut(name, limit=80)))
    over_all = table_of([*settings, *drift_columns(result)])
    sections: Sections = [over_all, drift_limit_table(result)]
    if groups:
        sections.append(Group(title=f"By group of probes ({len(groups)})", folded=True, sections=groups))
    return group("sweep", "drift", *sections, probes=max(drift.probes for drift in drifts))


def drift_limit_table(result: SweepResult) -> Table | None:
    """Drift limits beside labelled damage, if there are any."""
    view, limits = result.variation, result.variation.drift_limits
    if not limits:
        return None
    others = [index for index in view.differing if index != view.rate]
    rows = []
    for limit in limits:
        first = view.cases[limit.cases[0]]
        harmed = ", ".join(limit.harmed) or "nothing"
        row = {
            "runs with": cut(described(view, first, others), limit=120),
            "drift by": limit.measure,
            "limit": number(limit.limit),
            "safe by drift up to": _rate(limit.safe),
            "harmless by labels up to": _rate(limit.harmless),
            "then worse": cut(harmed, limit=120),
            "drift is": limit.agreement,
            "limits that hit": _bracket(limit),
        }
        rows.append(row)
    kinds: dict[str, ColumnKind] = dict.fromkeys(rows[0], "name")
    return Table.of(rows, kinds, id="judged", title="Drift limits beside labels")


def _rate(value: float | None) -> str:
    """A learning rate; None if not even the lowest one qualifies."""
    if value is None:
        return "no rate"
    return three_digits(value)


def _bracket(limit: DriftLimit) -> str:
    """Limits that would have been a hit."""
    low, high = limit.bracket
    if high is None:
        return f"from {number(low)}"
    # No limit separates rates that are harmless from others if a harmful one drifts less.
    if low >= high:
        return "none"
    return f"{number(low)} to {number(high)}"


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
    is_short = len(runs) <= OPEN_ROWS
    every = Group(title=counted(len(runs), "run"), folded=True, opened=is_short, sections=[table])
    notes = notes_section("Notes on tasks", _task_notes(result), everyone="all tasks")
    return group("sweep", "runs", every, notes, Terms(id="how-to-read-settings", terms=glossary("sweep")))


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
    start, kept = text(points[0]), text(points[run.best_epoch])
    return f"{start} \N{RIGHTWARDS ARROW} {kept}"


def _task_notes(result: SweepResult) -> list[tuple[str, list[str]]]:
    """Each task with its notes, once for every run."""
    notes = []
    for run in result.runs_of():
        notes += [(outcome.task, outcome.notes) for outcome in run.tasks]
    return notes


# --- Files and terminal ---


def exports(result: SweepResult) -> Files:
    """The tables and figures beside the page."""
    files: Files = {
        "table.csv": partial(sweep_csv, result),
        "table.md": partial(_markdown, result),
        "table.tex": partial(_latex, result),
    }
    for drawing in drawings(result):
        files[f"figures/{drawing.name}.svg"] = drawing.chart.file
    return files


def _markdown(result: SweepResult) -> str:
    """The main table with headline and reservations, and the most changed tensors."""
    layers, tables = layer_table(result), [table_of(main_columns(result))]
    if layers is not None:
        tables.append(layers)
    return suite_page.markdown_file(result.title, headline(result), tables, [_legend()], reservations(result))


def _latex(result: SweepResult) -> str:
    """The main table, behind headline and reservations as comments."""
    comments = [result.title, headline(result), _legend(), *reservations(result)]
    return suite_page.latex_file(comments, table_of(main_columns(result)))


def terminal(result: SweepResult) -> list[Table]:
    """The comparison of trained settings, or settings by tasks and language pairs; then failed runs."""
    if result.verb == "train" and result.pairings:
        tables = [*suite_page.terminal(result), cost_table(result)]
    else:
        columns = [case_column(result)]
        for task in result.ordered:
            columns += task_columns(result, task)[:1]
        tables = [table_of([*columns, runs_column(result)], title=result.title)]
        if pairs := pair_columns(result):
            tables.append(table_of([case_column(result), *pairs]))
        tables[-1] = replace(tables[-1], caption=[headline(result)])
    failed = Table(columns=[Column("failed", "name"), Column("reason", "name")])
    for run in result.runs_of(status="failed"):
        failed.add(run.name, cut_name(run.reason, limit=300))
    if failed.rows:
        tables.append(failed)
    return [replace(table, rows=table.rows[:MOST_ROWS]) for table in tables]


def notes(result: SweepResult) -> list[str]:
    """Notes below the tables of the terminal."""
    return suite_page.notes(result)
