"""The page of a suite, made from its record alone; see `page` for what a page may hold.

Beside that it holds one script of its own, which sorts tables and filters rows. The page's policy names that script by its hash and
allows no other; without it everything is there to be read.
"""

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from adiabat.measure.results import Change
from adiabat.measure.suite_results import Score, SuiteModel, SuiteTask, UnitRow
from adiabat.report import suite_plots as plots
from adiabat.report import suite_wording as words
from adiabat.report import wording
from adiabat.report.comparison_wording import millions
from adiabat.report.suite_grids import grids_of
from adiabat.report.suite_overview import Overview, Tally, by_kind, finding, kind_means, mark_of, tallies
from adiabat.report.templates import gathered, given, picture, source, template

TEXT_LENGTH = 240
"""Characters of a unit's text that the page shows; of each where they are two."""

OPEN_TASKS = 1
"""Tasks whose figures stand open when the page is loaded."""


def render_suite(seen: Overview) -> str:
    """The page of a suite.

    Args:
        seen: Its result.

    Returns:
        A complete HTML document, self-contained.
    """
    result = seen.result
    groups = by_kind(result.tasks)
    return template("suite.html.j2").render(
        result=result,
        command=result.command,
        script=Markup(script()),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src '{script_hash()}'",
        tone=words.tone(seen),
        headline=words.headline(seen),
        reservations=words.reservations(seen),
        key=words.key(seen),
        groups=[{"name": words.KINDS[kind], "tasks": len(tasks)} for kind, tasks in groups],
        columns=[_column(seen, task) for _, tasks in groups for task in tasks],
        rows=[_row(seen, model, [task for _, tasks in groups for task in tasks]) for model in result.models],
        compared=result.baseline is not None,
        tallies=[_tally(tally) for tally in tallies(seen)],
        means=[{"name": words.KINDS[one.kind], **_mean(one.measure, one.tasks, one.values)} for one in kind_means(seen)],
        tasks=[_task(seen, task, place) for place, task in enumerate(result.tasks)],
        notes=gathered([(model.name, model.notes) for model in result.models], every="all models"),
        task_notes=gathered([(task.name, task.notes) for task in result.tasks], every="all tasks"),
        paired=bool(result.pairings),
        models=[_model(model) for model in result.models],
        facts=_facts(seen),
        given=given(("inputs", "Inputs", result.inputs), ("settings", "Settings", result.settings)),
        versions=sorted(result.versions.items()),
        open_tasks=OPEN_TASKS,
    )


def script() -> str:
    """What sorts and filters.

    Returns:
        JavaScript, as it stands between the tags.
    """
    return source("sorting.js")


def script_hash() -> str:
    """The script by its hash, for the page's policy.

    Returns:
        Such as ``sha256-AbC=``.
    """
    return f"sha256-{base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()}"


def _first(*, lower_is_better: bool) -> str:
    """How a first click sorts: the best on top."""
    return "ascending" if lower_is_better else "descending"


def _column(seen: Overview, task: SuiteTask) -> dict[str, str]:
    return {
        "name": task.name,
        "measure": words.measure(seen, task),
        "direction": "lower is better" if task.lower_is_better else "",
        "first": _first(lower_is_better=task.lower_is_better),
    }


def _row(seen: Overview, model: SuiteModel, tasks: Sequence[SuiteTask]) -> dict[str, Any]:
    runs = words.runs_of(model)
    return {
        "name": model.name,
        "baseline": model.name == seen.result.baseline,
        "runs": f"mean of {wording.counted(runs, 'run')}" if runs > 1 else "",
        "cells": [_cell(seen, seen.scores.get((task.name, model.name))) for task in tasks],
    }


def _cell(seen: Overview, score: Score | None) -> dict[str, Any] | None:
    if score is None:
        return None
    mark = mark_of(seen, score.task, score.model)
    kind = "best" if mark.best else "even" if mark.even else ""
    # On paper, many columns leave no room for an interval on one line.
    shown = {**_level(score, decimals=3), "bounds": words.bounds(score).replace(wording.NO_BREAK, " ")}
    return {**shown, "kind": kind, "sign": words.sign_of(mark), "found": (mark.found or "").replace(" ", "-")}


def _level(score: Score, *, decimals: int) -> dict[str, Any]:
    return {"number": score.value, "value": words.value(score.value, decimals=decimals), "bounds": words.bounds(score, decimals=decimals)}


def _tally(tally: Tally) -> dict[str, Any]:
    return {
        "name": tally.name,
        "tasks": tally.tasks,
        "best": tally.best,
        "clearly": tally.clear,
        "even": tally.even,
        "found": None if tally.found is None else [tally.found[verdict] for verdict in ("better", "no evidence", "worse")],
        "rank": words.rank(tally),
        "order": "" if tally.rank is None else tally.rank,
    }


def _mean(measure: str, tasks: int, values: Sequence[float | None]) -> dict[str, Any]:
    return {
        "measure": measure,
        "tasks": tasks,
        "values": [(wording.DASH, "") if value is None else (words.value(value), value) for value in values],
    }


def _task(seen: Overview, task: SuiteTask, place: int) -> dict[str, Any]:
    result = seen.result
    against = seen.against.get(task.name)
    pairings = [seen.pairings[task.name, model.name] for model in result.models if (task.name, model.name) in seen.pairings]
    return {
        "id": f"task-{place}",
        "name": task.name,
        "said": words.said_of_best(seen, task),
        "about": words.about(seen, task),
        "measure": words.measure(seen, task),
        "first": _first(lower_is_better=task.lower_is_better),
        "against": against,
        "is_baseline": against is not None and against == result.baseline,
        "forest": picture(plots.forest(pairings, name=f"forest-{place}")),
        "rows": [_compared(seen, score) for score in seen.on(task.name)],
        "all": [_measured(score) for score in result.scores if score.task == task.name],
        "grids": grids_of([grid for grid in result.grids if grid.task == task.name]),
        "models": [score.model for score in seen.on(task.name)],
        "units": [_unit(row, [score.model for score in seen.on(task.name)], task) for row in result.units if row.task == task.name],
    }


def _compared(seen: Overview, score: Score) -> dict[str, Any]:
    mark = mark_of(seen, score.task, score.model)
    by = "" if len({one.similarity for one in seen.on(score.task)}) == 1 else score.similarity
    row = {"model": score.model, "by": by, **_level(score, decimals=4), "best": mark.best, "change": None}
    pairing = seen.pairings.get((score.task, score.model))
    if pairing is not None:
        found = finding(pairing)
        row |= {"change": _change(pairing.change), "badge": found.replace(" ", "-"), "verdict": words.verdict(pairing)}
    return row


def _change(change: Change) -> dict[str, Any]:
    units = wording.DASH if change.gained is None or change.lost is None else f"+{change.gained:,} {wording.MINUS}{change.lost:,}"
    return {
        "number": change.difference,
        "difference": wording.difference(change, with_interval=False),
        "interval": wording.difference_interval(change),
        "order": change.p if change.p is not None else "",
        "p": wording.p_value(change),
        "test": change.test or "",
        "effect": wording.DASH if change.effect is None else wording.signed(change.effect, decimals=2),
        "effect_order": "" if change.effect is None else change.effect,
        "units": units,
        "net": "" if change.gained is None or change.lost is None else change.gained - change.lost,
        "detectable": wording.DASH if change.detectable is None else words.value(change.detectable),
        "detectable_order": "" if change.detectable is None else change.detectable,
    }


def _measured(score: Score) -> dict[str, Any]:
    return {"model": score.model, "measure": score.measure, "similarity": score.similarity, **_level(score, decimals=4)}


def _unit(row: UnitRow, models: Sequence[str], task: SuiteTask) -> dict[str, Any]:
    """Values side by side, the best in bold where they are not all alike."""
    known = [row.values[model] for model in models if model in row.values]
    best = (min if task.lower_is_better else max)(known, default=0.0)
    told = len(set(known)) > 1
    return {
        "unit": row.unit,
        "text": "\n".join(wording.cut(line, limit=TEXT_LENGTH) for line in row.text.split("\n", maxsplit=1)),
        "values": [_unit_value(row.values.get(model), best=told and row.values.get(model) == best) for model in models],
    }


def _unit_value(value: float | None, *, best: bool) -> dict[str, Any]:
    return {"number": "" if value is None else value, "shown": wording.DASH if value is None else words.value(value), "best": best}


def _model(model: SuiteModel) -> dict[str, str]:
    return {
        "name": model.name,
        "model": model.model,
        "runs": ", ".join(model.runs),
        "parameters": wording.DASH if model.parameters is None else millions(model.parameters),
        "width": wording.DASH if model.width is None else wording.integer(model.width),
        "query_prompt": repr(model.query_prompt) if model.query_prompt else wording.DASH,
        "document_prompt": repr(model.document_prompt) if model.document_prompt else wording.DASH,
    }


def _facts(seen: Overview) -> list[tuple[str, str]]:
    result = seen.result
    facts = [
        ("compared with", result.baseline or ("the best of each task" if result.pairings else "")),
        ("made", result.created),
        ("seed", str(result.seed)),
        ("resamples, sign flips", wording.integer(result.resamples)),
        ("time for encoding and measuring", wording.duration(result.seconds)),
    ]
    return [fact for fact in facts if fact[1]]
