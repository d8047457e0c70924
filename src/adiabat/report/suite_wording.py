"""What a suite says, in sentences and cells: never more than its comparisons allow."""

from collections.abc import Sequence

from adiabat.measure.results import Change, Verdict
from adiabat.measure.samples import Kind
from adiabat.measure.suite_results import Pairing, Score, SuiteModel, SuiteResult, SuiteTask
from adiabat.report import wording
from adiabat.report.headline import Tone, named
from adiabat.report.suite_overview import Mark, Overview, Tally, finding, tallies
from adiabat.report.wording import DASH, NO_BREAK, counted, decimals_for, interval, signed

MOST_NAMED = 4
"""Models, or tasks, that a sentence names."""

EVEN = "\N{ALMOST EQUAL TO}"
"""Beside a value: not measurably worse than the best."""

KINDS: dict[Kind, str] = {
    "retrieval": "retrieval",
    "triplets": "listed candidates",
    "nli_grid": "language grid of sentence pairs",
    "question_grid": "language grid of questions",
    "bitext": "bitext",
    "sts": "sentence similarity",
    "words": "word similarity",
    "pair_classification": "pair classification",
    "classification": "classification",
    "clustering": "clustering",
    "mteb": "mteb",
}
"""What tasks of a kind are called."""

_STATED: dict[Verdict, str] = {"better": "better", "worse": "worse", "no evidence": "no evidence either way"}


def headline(seen: Overview) -> str:
    """Who is best on how many tasks, or better than the baseline.

    Args:
        seen: The result of a suite.

    Returns:
        For instance ``e5 is best on 6 of 10 tasks (4 clearly), minilm on 4 (1 clearly); on 5 tasks the best cannot be told from others.``
    """
    contested = [task for task in seen.result.tasks if task.name in seen.best]
    if not seen.result.tasks:
        return "Nothing was measured."
    if not contested:
        return _levels(seen)
    if len(contested) == 1:
        return _one_task(seen, contested[0])
    return _baseline(seen) if seen.result.baseline is not None else _winners(seen, len(contested))


def _levels(seen: Overview) -> str:
    levels = [f"{named(task.name)} {said}" for task in seen.result.tasks if (said := _first_level(seen, task))]
    rest = f" and {len(levels) - MOST_NAMED} more" if len(levels) > MOST_NAMED else ""
    return f"{'; '.join(levels[:MOST_NAMED])}{rest}. No task was done by two models, so this says nothing about differences."


def _first_level(seen: Overview, task: SuiteTask) -> str:
    return next((f"{task.measure} {level(score)}" for score in seen.on(task.name)), "")


def _one_task(seen: Overview, task: SuiteTask) -> str:
    """The one contest of the suite, with its figures."""
    against = seen.against.get(task.name, "")
    where = f"on {named(task.name)}"
    score = seen.scores[task.name, against]
    lead = "is the baseline" if against == seen.result.baseline else "is best"
    groups: dict[Verdict, list[str]] = {"better": [], "worse": [], "no evidence": []}
    for (name, model), pairing in seen.pairings.items():
        if name == task.name:
            groups[finding(pairing)].append(f"{named(model)} ({difference(pairing.change)})")
    parts = [f"{_STATED[verdict]}: {_listed(names)}" for verdict, names in groups.items() if names]
    return f"{named(against)} {lead} {where}, {task.measure} {level(score)}; {'; '.join(parts)}."


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


def _winners(seen: Overview, tasks: int) -> str:
    ranked = sorted((tally for tally in tallies(seen) if tally.best), key=lambda tally: -tally.best)
    shown = [_wins(tally, tasks if tally is ranked[0] else None) for tally in ranked[:MOST_NAMED]]
    rest = f" and {len(ranked) - MOST_NAMED} more" if len(ranked) > MOST_NAMED else ""
    open_tasks = sum(not seen.clear(task) for task in seen.best)
    told = (
        f"on {counted(open_tasks, 'task')} the best cannot be told from others"
        if open_tasks
        else "on every task the best is measurably above all others"
    )
    return f"{', '.join(shown)}{rest}; {told}."


def _wins(tally: Tally, tasks: int | None) -> str:
    on = f"on {tally.best}" if tasks is None else f"is best on {tally.best} of {counted(tasks, 'task')}"
    return f"{named(tally.name)} {on} ({_clearly(tally)})"


def _clearly(tally: Tally) -> str:
    return "none clearly" if not tally.clear else "all clearly" if tally.clear == tally.best > 1 else f"{tally.clear} clearly"


def tone(seen: Overview) -> Tone:
    """Whether the suite has one answer for all tasks.

    Args:
        seen: The result of a suite.

    Returns:
        ``good`` where one model is clearly best on every task, or the only one beside the baseline is better somewhere and worse nowhere;
        ``bad`` where that one is worse somewhere and better nowhere; else ``plain``.
    """
    every = tallies(seen)
    found = [tally.found for tally in every if tally.found is not None]
    if len(found) == 1:
        better, worse = found[0]["better"] > 0, found[0]["worse"] > 0
        return "plain" if better == worse else "good" if better else "bad"
    return "good" if seen.best and any(tally.clear == len(seen.best) for tally in every) else "plain"


def reservations(seen: Overview) -> list[str]:
    """What the head line leaves out and an honest reader should know.

    Args:
        seen: The result of a suite.

    Returns:
        Plain sentences.
    """
    found = [_about_family(seen), _about_open_cases(seen), _about_coverage(seen), _about_stand_ins(seen), about_runs(seen.result)]
    return [sentence for sentence in [*found, *seen.result.notes] if sentence]


def _about_family(seen: Overview) -> str:
    if not seen.pairings:
        return ""
    family = f"all {counted(len(seen.pairings), 'comparison')}" if len(seen.pairings) > 1 else "the one comparison"
    return (
        f"Verdicts hold after Benjamini\N{EN DASH}Hochberg at 5{NO_BREAK}% over {family} of main measures: of the differences told as "
        "found, at most about one in twenty is expected to be none. Other measures are shown with their intervals and without verdicts."
    )


def _about_open_cases(seen: Overview) -> str:
    undecided = sum(finding(pairing) == "no evidence" for pairing in seen.pairings.values())
    if not undecided:
        return ""
    return (
        f"In {undecided} of {counted(len(seen.pairings), 'comparison')} there is no evidence either way, which is not proof of equality: "
        "each task tells how small a difference its data would have shown."
    )


def _about_coverage(seen: Overview) -> str:
    total = len(seen.result.tasks)
    lacking = [f"{named(tally.name)} ({tally.tasks})" for tally in tallies(seen) if tally.tasks < total]
    if not lacking:
        return ""
    return f"Not every model did all {total} tasks: {_listed(lacking)}. Counts and mean ranks are over the tasks that a model did."


def _about_stand_ins(seen: Overview) -> str:
    """Tasks that the baseline did not do."""
    baseline = seen.result.baseline
    without = [named(task) for task, against in seen.against.items() if against != baseline]
    if baseline is None or not without:
        return ""
    return f"{named(baseline)} did not do {_listed(without)}: there the others are compared with the best."


def about_runs(result: SuiteResult) -> str:
    """Which values are means over seeds, and what the intervals hold.

    Args:
        result: Of a suite.

    Returns:
        One sentence or two.
    """
    several = [f"{named(model.name)} ({runs_of(model)})" for model in result.models if model.runs]
    if not several:
        return "Every model is one run: intervals hold what differs from unit to unit, not what another seed of training would change."
    said = f"Means over several seeds, with intervals over seeds and units: {_listed(several)}."
    if len(several) == len(result.models):
        return said
    return f"{said} All others are one run, whose intervals hold what differs from unit to unit."


def runs_of(model: SuiteModel) -> int:
    """How many runs the values of a model are means of.

    Args:
        model: Of a suite.

    Returns:
        At least 1.
    """
    return 1 + len(model.runs)


def _listed(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def level(score: Score, *, decimals: int = 3) -> str:
    """A value with its interval.

    Args:
        score: Of a model.
        decimals: Digits after the point, at the least.

    Returns:
        For instance ``0.612 [0.590, 0.633]``.
    """
    return f"{value(score.value, decimals=decimals)} {bounds(score, decimals=decimals)}"


def value(number: float, *, decimals: int = 3) -> str:
    """A value of any measure.

    Args:
        number: Finite.
        decimals: Digits after the point; more where those would all be zero.

    Returns:
        For instance ``0.612``.
    """
    return f"{number:.{decimals_for([number], least=decimals, most=6)}f}".replace("-", wording.MINUS)


def bounds(score: Score, *, decimals: int = 3) -> str:
    """The interval of a value.

    Args:
        score: Of a model.
        decimals: Digits after the point, at the least.

    Returns:
        For instance ``[0.590, 0.633]``, not broken over lines.
    """
    low, high = (value(bound, decimals=decimals) for bound in score.interval)
    return f"[{low},{NO_BREAK}{high}]"


def difference(change: Change) -> str:
    """A difference with its interval, with as many digits as keep an end of it from looking like zero.

    Args:
        change: One that has a baseline.

    Returns:
        For instance ``−0.010 [−0.021, −0.002]``.
    """
    if change.difference is None or change.difference_interval is None:
        return DASH
    shown = decimals_for([change.difference, *change.difference_interval], least=3, most=6)
    return f"{signed(change.difference, decimals=shown)} {interval(change.difference_interval, decimals=shown)}"


def measure(seen: Overview, task: SuiteTask) -> str:
    """What carries the verdict of a task.

    Args:
        seen: The result of a suite.
        task: One of its tasks.

    Returns:
        For instance ``nDCG@10, cosine``; the similarity only where all models have the same: BM25 ranks by one of its own.
    """
    similarities = {score.similarity for score in seen.on(task.name)}
    return ", ".join(filter(None, [task.measure, *similarities])) if len(similarities) == 1 else task.measure


def about(seen: Overview, task: SuiteTask) -> str:
    """What a task is made of.

    Args:
        seen: The result of a suite.
        task: One of its tasks.

    Returns:
        For instance ``retrieval; 300 queries, 5,183 documents; nDCG@10, cosine (higher is better)``.
    """
    sizes = [counted(task.units, task.unit)]
    if task.documents:
        sizes.append(counted(task.documents, "document"))
    if task.languages:
        sizes.append(counted(len(task.languages), "language"))
    direction = "lower" if task.lower_is_better else "higher"
    return f"{KINDS[task.kind]}; {', '.join(sizes)}; {measure(seen, task)} ({direction} is better)"


def verdict(pairing: Pairing) -> str:
    """What a comparison says, with its mark.

    Args:
        pairing: Of two models.

    Returns:
        For instance ``▼ worse``.
    """
    found = finding(pairing)
    return f"{wording.VERDICT_MARKS[found]}{NO_BREAK}{found.replace(' ', NO_BREAK)}"


def said_of_best(seen: Overview, task: SuiteTask) -> str:
    """Who is best on a task, in few words.

    Args:
        seen: The result of a suite.
        task: One of its tasks.

    Returns:
        For instance ``best e5 0.612 [0.590, 0.633], clearly``; the value alone where one model did it.
    """
    best = [score for score in seen.on(task.name) if score.model in seen.best.get(task.name, ())]
    if not best:
        return next((f"{named(score.model)} {level(score)}" for score in seen.on(task.name)), "not measured")
    clearly = ", clearly" if seen.clear(task.name) else ""
    return f"best {_listed([named(score.model) for score in best])} {level(best[0])}{clearly}"


def key(seen: Overview) -> list[str]:
    """What the marks in a table of models and tasks mean.

    Args:
        seen: The result of a suite.

    Returns:
        Phrases, each with its mark first.
    """
    if not seen.best:
        return []
    said = ["bold: the best value of a task"]
    if any(against != seen.result.baseline for against in seen.against.values()):
        said.append(f"{EVEN} not measurably worse than the best")
    if seen.result.baseline is not None:
        beside = f"beside {named(seen.result.baseline)}"
        said.append(", ".join(f"{sign} {found}" for found, sign in wording.VERDICT_MARKS.items()) + f" {beside}")
    return said


def sign_of(mark: Mark) -> str:
    """The sign beside a value in a table of models and tasks.

    Args:
        mark: Of the value.

    Returns:
        Such as ``≈`` or ``▲``; nothing for the best, which is bold, and where nothing is known.
    """
    return wording.VERDICT_MARKS[mark.found] if mark.found else EVEN if mark.even else ""


def rank(tally: Tally) -> str:
    """The mean rank of a model.

    Args:
        tally: Of the model.

    Returns:
        For instance ``1.8``; an en dash where it was never measured beside others.
    """
    return DASH if tally.rank is None else f"{tally.rank:.1f}"
