"""The page of a sweep, made from its record alone; see `templates` for what a page may hold."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup

from adiabat.report import format as wording
from adiabat.report import sweep_captions as captions
from adiabat.report import sweep_curves as curves
from adiabat.report import sweep_drift as safety
from adiabat.report import sweep_plots as plots
from adiabat.report import sweep_wording as words
from adiabat.report.page_templates import gathered, given, picture, script, script_hash, template
from adiabat.report.ranking_section import section
from adiabat.report.sweep_cases import Overview
from adiabat.report.sweep_columns import Column, columns_of, drift_columns, drift_groups, measure_columns
from adiabat.report.sweep_gain_tradeoff import at_equal_gain
from adiabat.report.sweep_layers import LayerTable, most_changed
from adiabat.report.sweep_values import case_cell, case_head, rate
from adiabat.results.sweep_result import SweepRun

OPEN_ROWS = 12
"""Settings up to which the tables of tensors stand open when the page is loaded."""

OPEN_NOTES = 5
"""Notes that stand open when the page is loaded; more of them are folded away."""


def render_page(seen: Overview) -> str:
    """The page of a sweep."""
    result, best = seen.result, words.best_of(seen)
    layers, prefix = most_changed(seen)
    return template("sweep_page.html.j2").render(
        result=result,
        command=result.command,
        script=Markup(script()),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src '{script_hash()}'",
        tone=words.tone(seen),
        headline=words.headline(seen),
        reservations=words.reservations(seen),
        ranked=None if result.ranking is None else section(result.ranking),
        about=_about(seen),
        key=captions.key(seen),
        table=_table(seen, columns_of(seen)),
        measures=_table(seen, measure_columns(seen)),
        sections=_sections(seen),
        trade=_trade(seen),
        no_figures=captions.no_figures(seen),
        best=next((place for place, case in enumerate(seen.cases) if case is best), None) if len(seen.cases) > 1 else None,
        others=bool(seen.others),
        heading=case_head(seen),
        layers=[_layers(seen, table) for table in layers],
        prefix=prefix,
        layers_open=len(seen.cases) <= OPEN_ROWS,
        drift=_table(seen, drift_columns(seen)),
        drift_groups=[{"name": group, "table": _table(seen, drift_columns(seen, group))} for group in drift_groups(seen)],
        judged=safety.judged(seen),
        judged_head=safety.HEAD,
        probes=max((run.drift.probes for run in seen.done if run.drift is not None), default=0),
        runs=[_run(run) for run in result.runs],
        notes=_notes(seen),
        open_notes=OPEN_NOTES,
        facts=_facts(seen),
        given=given(("inputs", "Inputs", result.inputs), ("settings", "Settings", result.settings)),
        versions=sorted(result.versions.items()),
    )


def _about(seen: Overview) -> list[tuple[str, str]]:
    varied = [f"{setting.label} ({len(setting.values)})" for setting in seen.settings if len(setting.values) > 1]
    seeds = len({run.seed for run in seen.result.runs})
    facts = [
        ("tuned from" if seen.result.verb == "tune" else "trained from", seen.result.model),
        ("varied", ", ".join(varied) or "nothing"),
        ("runs", f"{len(seen.result.runs)}, of {wording.counted(len(seen.cases), 'setting')} and {wording.counted(seeds, 'seed')}"),
    ]
    return [fact for fact in facts if fact[1]]


def _table(seen: Overview, columns: Sequence[Column]) -> dict[str, Any] | None:
    if not columns or not seen.cases:
        return None
    groups = [(group, len(list(of))) for group, of in groupby(columns, key=lambda column: column.group)]
    return {"groups": groups, "columns": columns, "rows": [[column.cell(case) for column in columns] for case in seen.cases]}


def _sections(seen: Overview) -> list[dict[str, Any]]:
    """The figures of each setting that things are drawn against."""
    sections: list[dict[str, Any]] = []
    for series in curves.series_of(seen):
        setting, figures = series.setting, [_figure(one) for one in plots.against(seen, series)]
        about = captions.about_series(series)
        sections.append(
            {"id": f"against-{len(sections)}", "name": setting.name, "label": setting.label, "about": about, "figures": figures}
        )
    return sections


def _figure(one: plots.Picture) -> dict[str, Any]:
    return {"svg": picture(plots.inlined(one)), "title": one.title, "caption": captions.caption(one.kind, one.series)}


def _trade(seen: Overview) -> dict[str, Any] | None:
    """What gains cost: the figure, and the ways beside each other."""
    drawn, equal = plots.trade_picture(seen), at_equal_gain(seen)
    if drawn is None:
        return None
    figure = _figure(drawn)
    figure["caption"] += captions.undrawn(seen)
    return {"figure": figure, "equal": None if equal is None else captions.equal_gain(seen, equal)}


def _layers(seen: Overview, table: LayerTable) -> dict[str, Any]:
    rows = [{"setting": case_cell(seen, row.case), "tensors": [(name, rate(value)) for name, value in row.tensors]} for row in table.rows]
    return {"title": table.measure.title, "formula": table.measure.formula, "rows": rows}


def _run(run: SweepRun) -> dict[str, Any]:
    done = run.status == "done"
    return {
        "name": run.name,
        "failed": not done,
        "reason": run.reason or wording.DASH,
        "steps": wording.integer(run.steps) if done else wording.DASH,
        "epochs": wording.integer(run.epochs) if done else wording.DASH,
        "best": wording.integer(run.best_epoch) if done else wording.DASH,
        "loss": _kept(run, dict(run.validation_loss), wording.number),
        "errors": _kept(run, dict(run.validation_errors), wording.integer),
        "trainable": wording.integer(run.trainable) if done else wording.DASH,
        "time": wording.duration(run.seconds),
        "seconds": run.seconds,
        "device": run.device or wording.DASH,
    }


def _kept(run: SweepRun, points: dict[int, Any], shown: Any) -> str:
    """A figure of the validation at the start and at the epoch that was kept."""
    if 0 not in points or run.best_epoch not in points:
        return wording.DASH
    return f"{shown(points[0])} \N{RIGHTWARDS ARROW} {shown(points[run.best_epoch])}"


def _notes(seen: Overview) -> list[tuple[str, str]]:
    """Notes of tasks, each once behind the names that it is about."""
    notes = {task: list(dict.fromkeys(note for run in seen.done if (own := run.task(task)) for note in own.notes)) for task in seen.ordered}
    return gathered(list(notes.items()), every="all tasks")


def _facts(seen: Overview) -> list[tuple[str, str]]:
    result = seen.result
    devices = dict.fromkeys(run.device for run in result.runs if run.device)
    facts = [
        ("made", result.created),
        ("seeds of the runs", ", ".join(map(str, sorted({run.seed for run in result.runs})))),
        ("seed of the statistics", str(result.seed)),
        ("time in all", wording.duration(result.seconds)),
        ("devices", ", ".join(devices)),
    ]
    return [fact for fact in facts if fact[1]]
