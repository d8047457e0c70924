"""The ranking of a sweep's variants, as a section of its page."""

from typing import Any

from adiabat.report import format as wording
from adiabat.report import ranking_plots as plots
from adiabat.report import ranking_wording as words
from adiabat.report.page_templates import picture
from adiabat.results.sweep_result import Contrast, Level, Ranking, Standing, Start


def section(found: Ranking) -> dict[str, Any]:
    """Everything that the section shows."""
    return {
        "measure": found.measure,
        "compares_models": found.compares_models,
        "picture": picture(plots.ranking(found)),
        "rows": [_row(number, one, found) for number, one in enumerate(found.standings, start=1)],
        "starts": [_start(start) for start in found.starts],
        "heat": picture(plots.tasks(found)),
        "task_rows": [
            *(_levels(one.name, one.tasks) for one in found.standings),
            *(_levels(words.start_name(start), start.tasks) for start in found.starts),
        ],
        "tasks": [_task(found, number) for number in range(len(found.tasks))],
        "speed": picture(plots.speed(found)),
        "timed": _timed(found),
        "costs": [_cost(one) for one in found.standings],
        "measures": list(found.standings[0].measures),
        "measure_rows": [
            *((one.name, _scores(one.measures)) for one in found.standings),
            *((words.start_name(start), _scores(start.measures)) for start in found.starts),
        ],
    }


def _row(place: int, one: Standing, found: Ranking) -> dict[str, Any]:
    runs = ", ".join(f"{value:.4f}" for value in one.runs) if len(one.runs) > 1 else ""
    return {
        "place": place,
        "name": one.name,
        "about": one.trained_on if not found.compares_models else one.model,
        **_level(one.overall),
        "runs": runs,
        "to_best": _contrast(one.to_best),
        "share": wording.share(one.best_share),
        "gain": _contrast(one.gain),
        "verdict": words.verdict(one, found),
        "badge": "better" if one.to_best is None else one.to_best.verdict.replace(" ", "-"),
    }


def _start(start: Start) -> dict[str, Any]:
    return {"name": words.start_name(start), "about": start.model, **_level(start.overall)}


def _level(level: Level) -> dict[str, str]:
    return {"score": wording.score(level.score), "interval": words.level_interval(level, decimals=4)}


def _contrast(contrast: Contrast | None) -> dict[str, str]:
    value, _, bounds = words.contrast(contrast, decimals=4).partition(" ")
    return {"value": value, "interval": bounds}


def _levels(name: str, levels: list[Level]) -> dict[str, Any]:
    return {"name": name, "levels": [_level(level) for level in levels]}


def _task(found: Ranking, place: int) -> dict[str, Any]:
    task = found.tasks[place]
    ranked = "whole corpus ranked" if task.kind == "ranking" else "listed variants ranked"
    about = f"{wording.counted(task.queries, 'query')}, {wording.counted(task.documents, 'document')}, {ranked}"
    return {"name": task.name, "about": about, "notes": task.notes}


def _cost(one: Standing) -> dict[str, str]:
    trained = f"{100 * one.trained / one.parameters:.3g}{wording.NO_BREAK}%" if one.parameters else wording.DASH
    return {
        "name": one.name,
        "pairs": wording.integer(one.pairs),
        "steps": wording.integer(one.steps),
        "passes": f"{one.passes:.2g}",
        "parameters": wording.millions(one.parameters),
        "trained": trained,
        "step": words.step_time(one.step_seconds),
        "rate": words.rate(one.speed),
        "range": words.rate_range(one.speed),
    }


def _scores(measures: dict[str, float]) -> list[str]:
    return [wording.score(value) for value in measures.values()]


def _timed(found: Ranking) -> str:
    timed = [one.speed for one in found.standings if one.speed is not None]
    return f"Speed: median of {timed[0].rounds} rounds of {wording.counted(timed[0].texts, 'document')}, untrained model." if timed else ""
