"""The headline of a suite, its reservations and sentences, within what its comparisons allow."""

from collections.abc import Sequence
from dataclasses import dataclass

from adiabat.core.text import DASH, NO_BREAK, counted
from adiabat.report.evaluation_headline import margin_of
from adiabat.report.format import (
    EVEN,
    VERDICT_MARKS,
    bounds,
    difference,
    first_few,
    joined,
    listed,
    named,
    value,
)
from adiabat.report.pages import Tone
from adiabat.results.suite_result import Kind, Pairing, Score, SuiteModel, SuiteResult, SuiteTask, TaskRanking
from adiabat.results.verdict import Word

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


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark beside a value in the table of models and tasks.

    Attributes:
        even: Whether it is not measurably worse than the best; False if the task's models are compared with
            the baseline.
        verdict: Verdict against the baseline; in a comparison with the best, only ``worse``. None for
            neither.
    """

    best: bool
    even: bool
    verdict: Word | None

    @property
    def sign(self) -> str:
        """The mark as a character."""
        return EVEN if self.even else VERDICT_MARKS[self.verdict] if self.verdict else ""


class Overview:
    """A result with its scores, comparisons and rankings by name."""

    def __init__(self, result: SuiteResult) -> None:
        self.result = result
        self.rankings: dict[str, TaskRanking] = {ranking.task: ranking for ranking in result.analysis.tasks}
        self.pairings: dict[tuple[str, str], Pairing] = {
            (pairing.task, pairing.model): pairing for pairing in result.pairings
        }
        measures = {task.name: task.measure for task in result.tasks}
        main = [score for score in result.scores if score.measure == measures[score.task]]
        # Of several similarities the main one comes first.
        self.scores: dict[tuple[str, str], Score] = {
            (score.task, score.model): score for score in reversed(main)
        }

    def on(self, task: str) -> list[Score]:
        """Main scores of a task, in the order of the models."""
        return [
            self.scores[task, model.name] for model in self.result.models if (task, model.name) in self.scores
        ]

    def mark(self, task: str, model: str) -> Mark:
        """The mark beside a value."""
        ranking, pairing = self.rankings[task], self.pairings.get((task, model))
        best = model in ranking.best
        beside_baseline = pairing is not None and pairing.against == self.result.baseline
        verdict = None if pairing is None else pairing.verdict
        even = not best and not beside_baseline and model in ranking.even
        return Mark(best, even, verdict if beside_baseline or (verdict == "worse" and not best) else None)


def level(score: Score) -> str:
    """A value with its interval."""
    return joined(value(score.value), bounds(score.interval, value))


def headline(view: Overview) -> str:
    """Number of tasks on which each model is best, or better than the baseline."""
    result = view.result
    contested = [task for task in result.tasks if view.rankings[task.name].best]
    if not result.tasks:
        return "Nothing was measured."
    if not contested:
        levels = [
            f"{named(task.name)} {task.measure} {level(scores[0])}"
            for task in result.tasks
            if (scores := view.on(task.name))
        ]
        return f"{first_few(levels)}. No task has two models to compare, so differences are unknown."
    if len(contested) == 1:
        return _one_task(view, contested[0])
    names, elsewhere = [task.name for task in contested], result.beside_best
    if result.baseline is None or len(elsewhere) == len(names):
        return f"{_winners(view, names)}."
    return joined(_baseline(result), _without_baseline(view, elsewhere))


def _one_task(view: Overview, task: SuiteTask) -> str:
    """The only comparison of the suite, with its figures."""
    ranking = view.rankings[task.name]
    beside_baseline = ranking.against is not None and ranking.against == view.result.baseline
    first = [ranking.against or ""] if beside_baseline else ranking.best
    lead = "is the baseline" if beside_baseline else "is best" if len(first) == 1 else "are best"
    groups: dict[Word, list[str]] = {"better": [], "worse": [], "not worse": [], "undecided": []}
    for (name, model), pairing in view.pairings.items():
        if name == task.name and model not in first:
            groups[pairing.verdict].append(f"{named(model)} ({joined(*difference(pairing.change, least=3))})")
    value_of_first = f"{task.measure} {level(view.scores[task.name, first[0]])}"
    clauses = [f"{listed([*map(named, first)])} {lead} on {named(task.name)}, {value_of_first}"]
    clauses += [f"{verdict}: {listed(names)}" for verdict, names in groups.items() if names]
    return f"{'; '.join(clauses)}."


def _baseline(result: SuiteResult) -> str:
    margin = margin_of(result.settings)
    clauses = [
        _against_baseline(named(row.model), row.verdicts, margin)
        for row in result.analysis.models
        if row.verdicts is not None
    ]
    return f"Against {named(result.baseline or '')}: {first_few(clauses, location=' in the table')}."


def _against_baseline(model: str, verdicts: dict[Word, int], margin: str) -> str:
    if not (total := sum(verdicts.values())):
        return f"{model} has no task in common with it"
    better = f"better on {verdicts['better']} of {counted(total, 'task')}"
    held = f"not worse by more than {margin} on {verdicts['not worse']}"
    return f"{model} is {better}, worse on {verdicts['worse']}, {held}, undecided on {verdicts['undecided']}"


def _without_baseline(view: Overview, tasks: Sequence[str]) -> str:
    """The best models on tasks that the baseline did not run."""
    baseline = named(view.result.baseline or "")
    if not tasks:
        return ""
    if len(tasks) > 1:
        return f"On the {counted(len(tasks), 'task')} without {baseline}: {_wins(view, tasks)}."
    task = next(task for task in view.result.tasks if task.name == tasks[0])
    return f"On {named(task.name)}, without {baseline}: {best_of(view, task)}."


def _winners(view: Overview, tasks: Sequence[str]) -> str:
    open_tasks = sum(not view.rankings[task].clear for task in tasks)
    clause = "on every task the best is measurably better than all others"
    if open_tasks:
        clause = f"on {counted(open_tasks, 'task')} the best has no measurable lead"
    total = f" of {counted(len(tasks), 'task')}"
    return f"{_wins(view, tasks, total=total)}; {clause}"


def _wins(view: Overview, tasks: Sequence[str], *, total: str = "") -> str:
    """The number of tasks on which each model is best, highest first; `total` states the number of tasks."""
    best = {
        model.name: [task for task in tasks if model.name in view.rankings[task].best]
        for model in view.result.models
    }
    ranked = sorted(filter(best.__getitem__, best), key=lambda model: -len(best[model]))
    counts = [(named(model), len(best[model]), _clearly(view, best[model])) for model in ranked]
    clauses = [f"{model} on {count} ({clearly})" for model, count, clearly in counts[1:]]
    model, count, clearly = counts[0]
    return first_few([f"{model} is best on {count}{total} ({clearly})", *clauses], separator=", ")


def _clearly(view: Overview, tasks: Sequence[str]) -> str:
    clear = sum(view.rankings[task].clear for task in tasks)
    return "none clearly" if not clear else "all clearly" if clear == len(tasks) > 1 else f"{clear} clearly"


def tone(result: SuiteResult) -> Tone:
    """Whether one model is best on all tasks."""
    verdicts = [standing.verdicts for standing in result.analysis.models if standing.verdicts is not None]
    if len(verdicts) == 1:
        better, worse = verdicts[0]["better"] > 0, verdicts[0]["worse"] > 0
        return "plain" if better == worse else "good" if better else "bad"
    contested = sum(bool(ranking.best) for ranking in result.analysis.tasks)
    return (
        "good"
        if contested and any(standing.clear == contested for standing in result.analysis.models)
        else "plain"
    )


def about_pairings(result: SuiteResult) -> list[str]:
    """What the verdicts of the comparisons hold for, and how many are open."""
    comparisons = counted(len(result.pairings), "comparison")
    family = f"all {comparisons}" if len(result.pairings) > 1 else "the one comparison"
    undecided = sum(pairing.verdict == "undecided" for pairing in result.pairings)
    are = "is" if undecided == 1 else "are"
    verdicts = (
        f"Better and worse hold after Benjamini\N{EN DASH}Hochberg at 5{NO_BREAK}% over {family} of main "
        "measures: at most about one in twenty reported differences is expected to be false. Not worse is "
        f"not corrected: each such comparison excludes a loss of {margin_of(result.settings)} for itself, at "
        f"one-sided 95{NO_BREAK}%. Other measures have intervals but no verdicts."
    )
    open_comparisons = (
        f"{undecided} of {comparisons} {are} undecided: the data neither show a "
        "change nor exclude a loss of the margin; "
        "each task states the smallest difference that its data would detect."
    )
    return [*([verdicts] if result.pairings else []), *([open_comparisons] if undecided else [])]


def reservations(result: SuiteResult) -> list[str]:
    """Reservations that an honest reader should know."""
    tasks = len(result.tasks)
    lacking = [
        f"{named(standing.model)} ({standing.tasks})"
        for standing in result.analysis.models
        if standing.tasks < tasks
    ]
    coverage = (
        f"Some models did not run all {tasks} tasks: {listed(lacking)}. "
        "Each model is counted over its own tasks."
    )
    return [
        *about_pairings(result),
        *([joined(coverage, about_ranks(result))] if lacking else []),
        about_runs(result),
        *filter(None, result.notes),
    ]


def about_ranks(result: SuiteResult) -> str:
    """Why some models have no mean rank."""
    contested = any(ranking.best for ranking in result.analysis.tasks)
    if not contested or all(standing.mean_rank is not None for standing in result.analysis.models):
        return ""
    return f"Mean ranks are over all tasks run by several models; {DASH}: a model lacks one of them."


def references(result: SuiteResult) -> str:
    """The model that others are compared with, task by task."""
    baseline, others = result.baseline, result.beside_best
    if not result.pairings:
        return "No task has two models to compare."
    if result.mixed:
        beside = (
            f"{named(baseline or '')} where it ran the task, otherwise with the best of "
            f"the task ({listed([*map(named, others)])}),"
        )
        return f"Models are compared with {beside} on the same units."
    if baseline is not None and others:
        return (
            f"{named(baseline)} shares no task with others: every model is compared "
            "with the best of the task on the same units."
        )
    return (
        "Every model is compared with "
        f"{'the best of the task' if baseline is None else named(baseline)} on the same units."
    )


def beside(view: Overview, task: str) -> str:
    """The reference model of a task, for the head of its column."""
    against = view.rankings[task].against
    if not view.result.mixed:
        return ""
    if against is None:
        return "not compared"
    return f"against {'' if against == view.result.baseline else 'the best, '}{named(against)}"


def about_runs(result: SuiteResult) -> str:
    """Which values are means over seeds, and which variation the intervals cover."""
    several = [f"{named(model.name)} ({runs_of(model)})" for model in result.models if model.runs]
    if not several:
        return "Every model is one run: intervals cover variation between units, not between training seeds."
    others = (
        ""
        if len(several) == len(result.models)
        else "All others are one run; their intervals cover variation between units."
    )
    return joined(
        f"Means over several seeds, with intervals over seeds and units: {listed(several)}.", others
    )


def runs_of(model: SuiteModel) -> int:
    """Number of runs of a model."""
    return 1 + len(model.runs)


def measure(view: Overview, task: SuiteTask) -> str:
    """The main measure of a task, with its similarity if models share one."""
    similarities = {score.similarity for score in view.on(task.name)}
    return ", ".join(filter(None, [task.measure, *similarities])) if len(similarities) == 1 else task.measure


def best_of(view: Overview, task: SuiteTask) -> str:
    """The best of a task, in few words."""
    ranking = view.rankings[task.name]
    if not ranking.best:
        return next((f"{named(score.model)} {level(score)}" for score in view.on(task.name)), "not measured")
    clearly = ", clearly" if ranking.clear else ""
    return (
        f"best {listed([*map(named, ranking.best)])} "
        f"{level(view.scores[task.name, ranking.best[0]])}{clearly}"
    )


def key(result: SuiteResult) -> list[str]:
    """The meaning of the marks in a table of models and tasks."""
    if not any(ranking.best for ranking in result.analysis.tasks):
        return []
    baseline = named(result.baseline or "")
    verdicts = ", ".join(f"{sign} {verdict}" for verdict, sign in VERDICT_MARKS.items())
    worse = VERDICT_MARKS["worse"]
    if result.mixed:
        best = f"in columns against the best: {EVEN} not measurably worse, {worse} measurably worse"
        marks = [f"in columns against {baseline}: {verdicts}", best]
    elif result.beside_best:
        marks = [f"{EVEN} not measurably worse than the best", f"{worse} measurably worse than the best"]
    else:
        marks = [f"{verdicts} against {baseline}"]
    return ["bold: the best value of a task", *marks]
