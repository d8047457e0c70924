"""The page of a suite, made from its record alone; see `templates` for what a page may hold."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from adiabat.report import suite_plots as plots
from adiabat.report import suite_values as figures
from adiabat.report import suite_wording as words
from adiabat.report import wording
from adiabat.report.evaluation_headline import named
from adiabat.report.page_templates import gathered, given, picture, script, script_hash, template
from adiabat.report.suite_analysis import KindMeans, Overview, Tally, by_kind, finding, kind_means, mark_of, tallies
from adiabat.report.suite_grids import grids_of
from adiabat.report.suite_headline import headline, tone
from adiabat.results.evaluation_result import Change
from adiabat.results.suite_result import Fact, Score, SuiteModel, SuiteTask, UnitRow, equal_values

TEXT_LENGTH = 240
"""Characters of a unit's text that the page shows; of each where they are two."""

OPEN_NOTES = 5
"""Notes that stand open when the page is loaded; more of them are folded away."""

OPEN_TASKS = 1
"""Tasks whose figures stand open when the page is loaded."""


def render_suite(seen: Overview) -> str:
    """The page of a suite."""
    result = seen.result
    groups = by_kind(result.tasks)
    return template("suite_page.html.j2").render(
        result=result,
        command=result.command,
        script=Markup(script()),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src '{script_hash()}'",
        tone=tone(seen),
        headline=headline(seen),
        reservations=words.reservations(seen),
        references=words.references(seen),
        key=words.key(seen),
        groups=[{"name": words.KINDS[kind], "tasks": len(tasks)} for kind, tasks in groups],
        columns=[_column(seen, task) for _, tasks in groups for task in tasks],
        rows=[_row(seen, model, [task for _, tasks in groups for task in tasks]) for model in result.models],
        baseline=None if result.baseline is None else named(result.baseline),
        tallies=[_tally(tally) for tally in tallies(seen)],
        means=[_mean(one) for one in kind_means(seen)],
        tasks=[_task(seen, task, place) for place, task in enumerate(result.tasks)],
        notes=gathered([(model.name, model.notes) for model in result.models], every="all models"),
        task_notes=gathered([(task.name, task.notes) for task in result.tasks], every="all tasks"),
        paired=bool(result.pairings),
        mixed=seen.mixed(),
        elsewhere=len(seen.beside_best()),
        pnd=any(score.measure.startswith("PND") for score in result.scores),
        models=[_model(model) for model in result.models],
        facts=_facts(seen),
        given=given(("inputs", "Inputs", result.inputs), ("settings", "Settings", _settings(result.settings))),
        versions=sorted(result.versions.items()),
        open_tasks=OPEN_TASKS,
        open_notes=OPEN_NOTES,
    )


def _first(*, lower_is_better: bool) -> str:
    """How a first click sorts: the best on top."""
    return "ascending" if lower_is_better else "descending"


def _direction(*, lower_is_better: bool) -> str:
    """What a reader takes for granted is not said."""
    return "lower is better" if lower_is_better else ""


def _column(seen: Overview, task: SuiteTask) -> dict[str, str]:
    return {
        "name": task.name,
        "measure": words.measure(seen, task),
        "direction": _direction(lower_is_better=task.lower_is_better),
        "beside": words.beside(seen, task.name),
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
    shown = {**_level(score, decimals=3), "bounds": figures.bounds(score).replace(wording.NO_BREAK, " ")}
    return {**shown, "kind": kind, "sign": words.sign_of(mark), "found": (mark.found or "").replace(" ", "-")}


def _level(score: Score, *, decimals: int) -> dict[str, Any]:
    value, bounds = figures.value(score.value, decimals=decimals), figures.bounds(score, decimals=decimals)
    return {"number": score.value, "value": value, "bounds": bounds}


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


def _mean(mean: KindMeans) -> dict[str, Any]:
    return {
        "name": words.KINDS[mean.kind],
        "measure": mean.measure,
        "tasks": mean.tasks,
        "direction": _direction(lower_is_better=mean.lower_is_better),
        "first": _first(lower_is_better=mean.lower_is_better),
        "values": [(wording.DASH, "") if value is None else (figures.value(value), value) for value in mean.values],
    }


def _task(seen: Overview, task: SuiteTask, place: int) -> dict[str, Any]:
    result = seen.result
    against = seen.against.get(task.name)
    pairings = [seen.pairings[task.name, model.name] for model in result.models if (task.name, model.name) in seen.pairings]
    every = [score for score in result.scores if score.task == task.name]
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
        "all": [*map(_measured, every), *(_fact(fact) for fact in result.facts if fact.task == task.name)],
        "unit_length": _of_unit_length(every),
        "all_first": _first(lower_is_better=all(score.lower_is_better for score in every)),
        "grids": grids_of([grid for grid in result.grids if grid.task == task.name], against=against),
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
        "detectable": wording.DASH if change.detectable is None else figures.value(change.detectable),
        "detectable_order": "" if change.detectable is None else change.detectable,
    }


def _measured(score: Score) -> dict[str, Any]:
    direction = _direction(lower_is_better=score.lower_is_better)
    return {
        **{"model": score.model, "measure": score.measure, "direction": direction, "similarity": score.similarity},
        **_level(score, decimals=4),
    }


def _of_unit_length(scores: Sequence[Score]) -> list[str]:
    """Models that others rank by dot product or distance beside the cosine, but they do not: by all of them they rank alike."""
    by_model: dict[str, set[str]] = {}
    for score in scores:
        by_model.setdefault(score.model, set()).add(score.similarity)
    more = {"dot", "distance"} & set().union(*by_model.values())
    return [model for model, similarities in by_model.items() if more and "cosine" in similarities and not more & similarities]


def _fact(fact: Fact) -> dict[str, Any]:
    return {
        **{"model": fact.model, "measure": fact.name, "direction": "", "similarity": wording.DASH},
        **{"number": fact.value, "value": figures.figure(fact.value), "bounds": ""},
    }


def _unit(row: UnitRow, models: Sequence[str], task: SuiteTask) -> dict[str, Any]:
    """Values side by side, the best in bold where they are not all alike."""
    known = [row.values[model] for model in models if model in row.values]
    best = (min if task.lower_is_better else max)(known, default=0.0)
    told = not all(equal_values(value, best) for value in known)
    return {
        "unit": row.unit,
        "text": "\n".join(wording.cut(line, limit=TEXT_LENGTH) for line in row.text.split("\n", maxsplit=1)),
        "values": [_unit_value(row.values.get(model), best=best if told else None) for model in models],
    }


def _unit_value(value: float | None, *, best: float | None) -> dict[str, Any]:
    if value is None:
        return {"number": "", "shown": wording.DASH, "best": False}
    return {"number": value, "shown": figures.value(value), "best": best is not None and equal_values(value, best)}


def _model(model: SuiteModel) -> dict[str, str]:
    return {
        "name": model.name,
        "model": model.model,
        "runs": ", ".join(model.runs),
        "parameters": wording.DASH if model.parameters is None else wording.millions(model.parameters),
        "width": wording.DASH if model.width is None else wording.integer(model.width),
        "query_prompt": repr(model.query_prompt) if model.query_prompt else wording.DASH,
        "document_prompt": repr(model.document_prompt) if model.document_prompt else wording.DASH,
    }


def _facts(seen: Overview) -> list[tuple[str, str]]:
    result = seen.result
    facts = [
        ("compared with", _against(seen)),
        ("made", result.created),
        ("seed", str(result.seed)),
        ("resamples", wording.integer(result.resamples)),
        ("time for encoding and measuring", wording.duration(result.seconds)),
    ]
    return [fact for fact in facts if fact[1]]


def _against(seen: Overview) -> str:
    """Whom models are compared with, in few words."""
    best = "the best of each task" if seen.beside_best() else ""
    return f"{seen.result.baseline}; {best} that it did not do" if seen.mixed() else best or seen.result.baseline or ""


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without the measures of retrieval that no task takes, each having its own, and without what tasks leave empty."""
    tasks = [{key: value for key, value in task.items() if value not in ({}, [])} for task in settings.get("tasks", ())]
    ranked = [task for task in tasks if task.get("kind") in ("retrieval", "triplets")]
    shown = dict(settings) | ({"tasks": tasks} if tasks else {})
    if tasks and all("measures" in task for task in ranked):
        shown["measure"] = {key: value for key, value in settings.get("measure", {}).items() if key != "measures"}
    return shown
