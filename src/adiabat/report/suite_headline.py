"""What a suite says in its head line: never more than its comparisons allow."""

from collections.abc import Sequence

from adiabat.core.text import counted
from adiabat.report.evaluation_headline import MOST_NAMED, Tone, listed, named
from adiabat.report.suite_analysis import Overview, Tally, finding, tallies
from adiabat.report.suite_values import difference, level
from adiabat.report.suite_wording import said_of_best
from adiabat.results.evaluation_result import Verdict
from adiabat.results.suite_result import SuiteTask

_STATED: dict[Verdict, str] = {"better": "better", "worse": "worse", "no evidence": "no evidence either way"}


def headline(seen: Overview) -> str:
    """Who is best on how many tasks, or better than the baseline."""
    contested = [task for task in seen.result.tasks if task.name in seen.best]
    if not seen.result.tasks:
        return "Nothing was measured."
    if not contested:
        return _levels(seen)
    if len(contested) == 1:
        return _one_task(seen, contested[0])
    names, elsewhere = [task.name for task in contested], seen.beside_best()
    if seen.result.baseline is None or len(elsewhere) == len(names):
        return f"{_winners(seen, names)}."
    return " ".join(filter(None, [_baseline(seen), _without_baseline(seen, elsewhere)]))


def _levels(seen: Overview) -> str:
    levels = [f"{named(task.name)} {said}" for task in seen.result.tasks if (said := _first_level(seen, task))]
    rest = f" and {len(levels) - MOST_NAMED} more" if len(levels) > MOST_NAMED else ""
    return f"{'; '.join(levels[:MOST_NAMED])}{rest}. No task has two models to compare, so this says nothing about differences."


def _first_level(seen: Overview, task: SuiteTask) -> str:
    return next((f"{task.measure} {level(score)}" for score in seen.on(task.name)), "")


def _one_task(seen: Overview, task: SuiteTask) -> str:
    """The one contest of the suite, with its figures."""
    against = seen.against.get(task.name, "")
    where = f"on {named(task.name)}"
    beside_baseline = against == seen.result.baseline
    first = [against] if beside_baseline else seen.leaders(task.name)
    lead = "is the baseline" if beside_baseline else "is best" if len(first) == 1 else "are best"
    groups: dict[Verdict, list[str]] = {"better": [], "worse": [], "no evidence": []}
    for (name, model), pairing in seen.pairings.items():
        if name == task.name and model not in first:
            groups[finding(pairing)].append(f"{named(model)} ({difference(pairing.change)})")
    reached = f"{task.measure} {level(seen.scores[task.name, first[0]])}"
    parts = [f"{listed([*map(named, first)])} {lead} {where}, {reached}"]
    parts += [f"{_STATED[verdict]}: {listed(names)}" for verdict, names in groups.items() if names]
    return f"{'; '.join(parts)}."


def _baseline(seen: Overview) -> str:
    said = [_against_baseline(tally) for tally in tallies(seen) if tally.found is not None]
    rest = f" and {len(said) - MOST_NAMED} more in the table" if len(said) > MOST_NAMED else ""
    return f"Beside {named(seen.result.baseline or '')}: {'; '.join(said[:MOST_NAMED])}{rest}."


def _against_baseline(tally: Tally) -> str:
    found = tally.found or {}
    total = sum(found.values())
    if not total:
        return f"{named(tally.name)} has no task in common with it"
    of = f"of {counted(total, 'task')}"
    return f"{named(tally.name)} is better on {found['better']} {of}, worse on {found['worse']}, no evidence on {found['no evidence']}"


def _without_baseline(seen: Overview, tasks: Sequence[str]) -> str:
    """Who is best where the baseline is not."""
    baseline = named(seen.result.baseline or "")
    if not tasks:
        return ""
    if len(tasks) > 1:
        return f"On the {counted(len(tasks), 'task')} that {baseline} did not do: {_wins(seen, tasks, of_all=False)}."
    (task,) = (one for one in seen.result.tasks if one.name == tasks[0])
    return f"On {named(task.name)}, which {baseline} did not do: {said_of_best(seen, task)}."


def _winners(seen: Overview, tasks: Sequence[str]) -> str:
    open_tasks = sum(not seen.clear(task) for task in tasks)
    told = (
        f"on {counted(open_tasks, 'task')} the best cannot be told from others"
        if open_tasks
        else "on every task the best is measurably above all others"
    )
    return f"{_wins(seen, tasks, of_all=True)}; {told}"


def _wins(seen: Overview, tasks: Sequence[str], *, of_all: bool) -> str:
    """On how many of some tasks each model is best, the most first; `of_all` tells how many tasks there are."""
    best = {model.name: [task for task in tasks if model.name in seen.best[task]] for model in seen.result.models}
    ranked = sorted(filter(best.__getitem__, best), key=lambda model: -len(best[model]))
    rest = f" and {len(ranked) - MOST_NAMED} more" if len(ranked) > MOST_NAMED else ""
    shown = [f"{named(model)} on {len(best[model])} ({_clearly(seen, best[model])})" for model in ranked[1:MOST_NAMED]]
    first, total = ranked[0], f" of {counted(len(tasks), 'task')}" if of_all else ""
    lead = f"{named(first)} is best on {len(best[first])}{total} ({_clearly(seen, best[first])})"
    return f"{', '.join([lead, *shown])}{rest}"


def _clearly(seen: Overview, tasks: Sequence[str]) -> str:
    clear = sum(map(seen.clear, tasks))
    return "none clearly" if not clear else "all clearly" if clear == len(tasks) > 1 else f"{clear} clearly"


def tone(seen: Overview) -> Tone:
    """Whether the suite has one answer for all tasks."""
    every = tallies(seen)
    found = [tally.found for tally in every if tally.found is not None]
    if len(found) == 1:
        better, worse = found[0]["better"] > 0, found[0]["worse"] > 0
        return "plain" if better == worse else "good" if better else "bad"
    return "good" if seen.best and any(tally.clear == len(seen.best) for tally in every) else "plain"
