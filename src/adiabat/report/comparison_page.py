"""The page of a comparison, made from its record alone, and its two files; see `templates` for what a page may hold."""

from collections.abc import Callable
from functools import partial
from typing import Any

from adiabat.report import comparison_plots as plots
from adiabat.report import comparison_wording as words
from adiabat.report import format as wording
from adiabat.report.page_templates import given, picture, template
from adiabat.results.comparison_result import Comparison, Contrast, Level, Standing, Start


def files(found: Comparison) -> dict[str, Callable[[], str]]:
    """The page."""
    return {"report.html": partial(render_comparison, found)}


def render_comparison(found: Comparison) -> str:
    """The page of a comparison."""
    return template("comparison_page.html.j2").render(
        found=found,
        command=found.command,
        tone=words.tone(found),
        headline=words.headline(found),
        reservations=words.reservations(found),
        ranking=picture(plots.ranking(found)),
        rows=[_row(place, one, found) for place, one in enumerate(found.standings, start=1)],
        starts=[_start(start) for start in found.starts],
        heat=picture(plots.tasks(found)),
        task_rows=[
            *(_levels(one.name, one.tasks) for one in found.standings),
            *(_levels(words.start_name(s), s.tasks) for s in found.starts),
        ],
        tasks=[_task(found, place) for place in range(len(found.tasks))],
        speed=picture(plots.speed(found)),
        costs=[_cost(one) for one in found.standings],
        measures=list(found.standings[0].measures),
        measure_rows=[
            *((one.name, _scores(one.measures)) for one in found.standings),
            *((words.start_name(start), _scores(start.measures)) for start in found.starts),
        ],
        facts=_facts(found),
        given=given(("settings", "Settings", found.settings)),
        versions=sorted(found.versions.items()),
    )


def _row(place: int, one: Standing, found: Comparison) -> dict[str, Any]:
    runs = ", ".join(f"{value:.4f}" for value in one.runs) if len(one.runs) > 1 else ""
    return {
        "place": place,
        "name": one.name,
        "about": one.trained_on if found.compared == "data" else one.model,
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


def _task(found: Comparison, place: int) -> dict[str, Any]:
    task = found.tasks[place]
    ranked = "whole corpus ranked" if task.kind == "ranking" else "listed candidates ranked"
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


def _facts(found: Comparison) -> list[tuple[str, str]]:
    seeds = ", ".join(map(str, found.seeds))
    timed = [one.speed for one in found.standings if one.speed is not None]
    facts = [
        ("made", found.created),
        ("seeds of the runs", seeds),
        ("seed of the bootstrap", str(found.seed)),
        ("resamples", wording.integer(found.resamples)),
        ("time for training and measuring", wording.duration(found.seconds)),
    ]
    if timed:
        facts.append(("speed", f"median of {timed[0].rounds} rounds of {wording.counted(timed[0].texts, 'document')}, untrained model"))
    return facts
