"""The headline of a suite, its reservations and sentences, within what its comparisons allow."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from adiabat.core.text import counted
from adiabat.report.captions import text_of
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
    if not result.tasks:
        return "Nothing was measured."
    contested = [task for task in result.tasks if view.rankings[task.name].best]
    if not contested:
        levels = [
            f"{named(task.name)} {task.measure} {level(view.on(task.name)[0])}" for task in result.tasks
        ]
        return f"{first_few(levels)}. No task has two models to compare, so differences are unknown."
    if len(contested) == 1:
        return _one_task(view, contested[0])
    names, elsewhere = [task.name for task in contested], result.beside_best
    if result.baseline is None or len(elsewhere) == len(names):
        return f"{_wins(view, names)}."
    without = f"Without {named(result.baseline)}: {_wins(view, elsewhere)}." if elsewhere else ""
    return joined(_baseline(result), without)


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


def _wins(view: Overview, tasks: Sequence[str]) -> str:
    """The number of tasks on which each model is best, and measurably so; highest first."""
    best: Counter[str] = Counter()
    clear: Counter[str] = Counter()
    for task in tasks:
        ranking = view.rankings[task]
        best.update(ranking.best)
        if ranking.clear:
            clear.update(ranking.best)
    clauses: list[str] = []
    for model, count in best.most_common():
        lead = f"is best on {count} of {counted(len(tasks), 'task')}" if not clauses else f"on {count}"
        clauses.append(f"{named(model)} {lead} ({clear[model]} clearly)")
    return first_few(clauses, separator=", ")


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


def reservations(result: SuiteResult) -> list[str]:
    """Reservations that an honest reader should know."""
    sentences = []
    if result.pairings:
        undecided = sum(pairing.verdict == "undecided" for pairing in result.pairings)
        counts = {"undecided": undecided, "comparisons": counted(len(result.pairings), "comparison")}
        sentences.append(text_of("suite", "verdicts", margin=margin_of(result.settings), **counts))
    lacking = []
    for standing in result.analysis.models:
        if standing.tasks < len(result.tasks):
            lacking.append(f"{named(standing.model)} ({standing.tasks})")
    if lacking:
        sentences.append(text_of("suite", "coverage", tasks=len(result.tasks), models=listed(lacking)))
    return [*sentences, about_runs(result), *filter(None, result.notes)]


def references(result: SuiteResult) -> str:
    """The model that others are compared with, task by task."""
    if not result.pairings:
        return "No task has two models to compare."
    reference = "the best of the task"
    if result.baseline is not None:
        reference = named(result.baseline)
        if result.beside_best:
            reference += ", or with the best of a task that it did not run"
    return f"Every model is compared with {reference}, on the same units."


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
    return (
        text_of("suite", "several-runs", models=listed(several)) if several else text_of("suite", "one-run")
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


def key() -> str:
    """The meaning of the marks in a table of models and tasks."""
    verdicts = ", ".join(f"{sign} {verdict}" for verdict, sign in VERDICT_MARKS.items())
    return text_of("suite", "marks", even=EVEN, verdicts=verdicts)
