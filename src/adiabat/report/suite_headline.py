"""The headline of a suite, its reservations and sentences, within what its comparisons allow."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
        if self.even:
            return EVEN
        # A colour alone would not reach everyone who reads the table.
        return VERDICT_MARKS[self.verdict] if self.verdict else ""


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
        found = [self.scores.get((task, model.name)) for model in self.result.models]
        return [score for score in found if score is not None]

    def mark(self, task: str, model: str) -> Mark:
        """The mark beside a value."""
        ranking, pairing = self.rankings[task], self.pairings.get((task, model))
        best = model in ranking.best
        beside_baseline = pairing is not None and pairing.against == self.result.baseline
        even = not best and not beside_baseline and model in ranking.even
        mark = Mark(best, even, None)
        if pairing is None:
            return mark
        # Beside the best, only "worse" says more than the value itself.
        if beside_baseline or (pairing.verdict == "worse" and not best):
            return replace(mark, verdict=pairing.verdict)
        return mark


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
        levels = []
        for task in result.tasks:
            only = view.on(task.name)[0]
            levels.append(f"{named(task.name)} {task.measure} {level(only)}")
        return f"{first_few(levels)}. No task has two models to compare, so differences are unknown."
    if len(contested) == 1:
        return _one_task(view, contested[0])
    names, elsewhere = [task.name for task in contested], result.beside_best
    if result.baseline is None or len(elsewhere) == len(names):
        return f"{_wins(view, names)}."
    against = _baseline(result)
    if not elsewhere:
        return against
    # Tasks that the baseline did not run have a best model, but no comparison with it.
    return joined(against, f"Without {named(result.baseline)}: {_wins(view, elsewhere)}.")


def _one_task(view: Overview, task: SuiteTask) -> str:
    """The only comparison of the suite, with its figures."""
    ranking = view.rankings[task.name]
    beside_baseline = ranking.against is not None and ranking.against == view.result.baseline
    first = ranking.best
    lead = "is best" if len(first) == 1 else "are best"
    if beside_baseline:
        first, lead = [ranking.against or ""], "is the baseline"
    groups: dict[Word, list[str]] = {"better": [], "worse": [], "not worse": [], "undecided": []}
    for (name, model), pairing in view.pairings.items():
        if name == task.name and model not in first:
            change = joined(*difference(pairing.change, least=3))
            groups[pairing.verdict].append(f"{named(model)} ({change})")
    # Several models that are best have one value.
    level_of_first = level(view.scores[task.name, first[0]])
    models = listed([*map(named, first)])
    clauses = [f"{models} {lead} on {named(task.name)}, {task.measure} {level_of_first}"]
    clauses += [f"{verdict}: {listed(names)}" for verdict, names in groups.items() if names]
    return f"{'; '.join(clauses)}."


def _baseline(result: SuiteResult) -> str:
    """How many tasks each model improves, worsens or holds, compared with the baseline."""
    margin = margin_of(result.settings)
    clauses = []
    for row in result.analysis.models:
        if row.verdicts is not None:
            clauses.append(_against_baseline(named(row.model), row.verdicts, margin))
    models = first_few(clauses, location=" in the table")
    return f"Against {named(result.baseline or '')}: {models}."


def _against_baseline(model: str, verdicts: dict[Word, int], margin: str) -> str:
    """Numbers of tasks by verdict, of one model."""
    total = sum(verdicts.values())
    if not total:
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
        lead = f"on {count}"
        # Only the first clause says of how many.
        if not clauses:
            lead = f"is best on {count} of {counted(len(tasks), 'task')}"
        clauses.append(f"{named(model)} {lead} ({clear[model]} clearly)")
    return first_few(clauses, separator=", ")


def tone(result: SuiteResult) -> Tone:
    """Whether one model is best on all tasks."""
    verdicts = [standing.verdicts for standing in result.analysis.models if standing.verdicts is not None]
    if len(verdicts) == 1:
        better, worse = verdicts[0]["better"] > 0, verdicts[0]["worse"] > 0
        # Gains on some tasks do not make up for losses on others.
        if better == worse:
            return "plain"
        return "good" if better else "bad"
    contested = sum(bool(ranking.best) for ranking in result.analysis.tasks)
    clear = [standing.clear for standing in result.analysis.models]
    return "good" if contested and contested in clear else "plain"


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
    if against == view.result.baseline:
        return f"against {named(against)}"
    return f"against the best, {named(against)}"


def about_runs(result: SuiteResult) -> str:
    """Which values are means over seeds, and which variation the intervals cover."""
    several = [f"{named(model.name)} ({runs_of(model)})" for model in result.models if model.runs]
    if not several:
        return text_of("suite", "one-run")
    return text_of("suite", "several-runs", models=listed(several))


def runs_of(model: SuiteModel) -> int:
    """Number of runs of a model."""
    return 1 + len(model.runs)


def measure(view: Overview, task: SuiteTask) -> str:
    """The main measure of a task, with its similarity if models share one."""
    similarities = {score.similarity for score in view.on(task.name)}
    if len(similarities) != 1:
        return task.measure
    # Measures without a similarity have "" in its place.
    return ", ".join(filter(None, [task.measure, *similarities]))


def best_of(view: Overview, task: SuiteTask) -> str:
    """The best of a task, in few words."""
    ranking = view.rankings[task.name]
    if not ranking.best:
        # A task without a best one has a single model, or none.
        for score in view.on(task.name):
            return f"{named(score.model)} {level(score)}"
        return "not measured"
    models = listed([*map(named, ranking.best)])
    level_of_best = level(view.scores[task.name, ranking.best[0]])
    clearly = ", clearly" if ranking.clear else ""
    return f"best {models} {level_of_best}{clearly}"


def key() -> str:
    """The meaning of the marks in a table of models and tasks."""
    verdicts = ", ".join(f"{sign} {verdict}" for verdict, sign in VERDICT_MARKS.items())
    return text_of("suite", "marks", even=EVEN, verdicts=verdicts)
