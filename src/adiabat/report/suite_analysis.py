"""What the result of a suite says over all of its tasks: who is best where, with whom each model is compared, ranks and means."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adiabat.results.evaluation_result import Verdict
from adiabat.results.suite_result import Kind, Pairing, Score, SuiteResult, SuiteTask, equal_values

Place = tuple[str, str]
"""Name of a task and name of a model."""


@dataclass(frozen=True, slots=True)
class Overview:
    """A result with its parts at hand by name.

    Attributes:
        result: Of the suite.
        scores: Main measure of each task.
        pairings: With the model that the others of the task are compared with.
        against: Task to the name of that model; tasks that one model alone did are not in it.
        best: Task to the models with the best value, more than one where they are equal but for rounding; none where one model alone did
            it. Models that were trained on its units are passed over, here and in `ranks`.
        ranks: 1 for the best of a task; equal values share the mean of their ranks; likewise none for a model on its own.
    """

    result: SuiteResult
    scores: dict[Place, Score]
    pairings: dict[Place, Pairing]
    against: dict[str, str]
    best: dict[str, frozenset[str]]
    ranks: dict[Place, float]

    def on(self, task: str) -> list[Score]:
        """Main scores of a task, in the order of the models."""
        return [self.scores[task, model.name] for model in self.result.models if (task, model.name) in self.scores]

    def leaders(self, task: str) -> list[str]:
        """Models with the best value of a task, as a sentence lists them."""
        best = [score.model for score in self.on(task) if score.model in self.best.get(task, ())]
        return sorted(best, key=lambda model: model != self.against.get(task))

    def contests(self, model: str) -> list[str]:
        """Tasks that a model did beside others."""
        return [task.name for task in self.result.tasks if (task.name, model) in self.ranks]

    def beside_best(self) -> list[str]:
        """Tasks whose models are compared with the best of them: all where there is no baseline, else those that it did not do."""
        return [task.name for task in self.result.tasks if self.against.get(task.name, self.result.baseline) != self.result.baseline]

    def mixed(self) -> bool:
        """Whether models are compared with the baseline on some tasks and with the best on others."""
        return self.result.baseline in self.against.values() and bool(self.beside_best())

    def clear(self, task: str) -> bool:
        """Whether one model is measurably above every other on a task."""
        if self.best.get(task) != frozenset({self.against.get(task, "")}):
            return False
        return all(pairing.significant for (name, _), pairing in self.pairings.items() if name == task)

    def even(self, task: str, model: str) -> bool | None:
        """Whether a model is not measurably worse than the best of a task.

        Returns:
            True for the best itself; None where the model was not compared with the best, or did not do the task.
        """
        best = self.best.get(task, frozenset())
        if model in best:
            return True
        pairing = self.pairings.get((task, model))
        return None if pairing is None or pairing.against not in best else not pairing.significant


def overview_of(result: SuiteResult) -> Overview:
    """Sort out a result."""
    seen = Overview(result, {}, {}, {}, {}, {})
    for task in result.tasks:
        main = [score for model in result.models if (score := result.main_score(task.name, model.name)) is not None]
        seen.scores.update({(task.name, score.model): score for score in main})
        main = [score for score in main if score.is_proof]
        if len(main) > 1:
            seen.ranks.update({(task.name, score.model): _rank(score, main) for score in main})
            top = min(seen.ranks[task.name, score.model] for score in main)
            seen.best[task.name] = frozenset(score.model for score in main if seen.ranks[task.name, score.model] == top)
    for pairing in result.pairings:
        seen.pairings[pairing.task, pairing.model] = pairing
        seen.against[pairing.task] = pairing.against
    return seen


def _rank(score: Score, among: Sequence[Score]) -> float:
    sign = -1 if score.lower_is_better else 1
    equal = sum(equal_values(other.value, score.value) for other in among)
    above = sum(sign * other.value > sign * score.value and not equal_values(other.value, score.value) for other in among)
    return 1 + above + (equal - 1) / 2


def finding(pairing: Pairing) -> Verdict:
    """What a comparison says after the correction."""
    if not pairing.significant or not pairing.change.difference:
        return "no evidence"
    return "better" if (pairing.change.difference < 0) == pairing.change.lower_is_better else "worse"


@dataclass(frozen=True, slots=True)
class Mark:
    """What a table of models and tasks says beside a value.

    Attributes:
        best: The best value of the task.
        even: Another that is not measurably worse than the best; False too where the task's models are compared with the baseline.
        found: What the comparison with the baseline says; of one with the best, whether the value is worse. None where there is neither.
    """

    best: bool
    even: bool
    found: Verdict | None


def mark_of(seen: Overview, task: str, model: str) -> Mark:
    """What to say of one value."""
    best = model in seen.best.get(task, ())
    pairing = seen.pairings.get((task, model))
    beside_baseline = pairing is not None and pairing.against == seen.result.baseline
    found = None if pairing is None else finding(pairing)
    even = not best and not beside_baseline and seen.even(task, model) is True
    return Mark(best, even=even, found=found if beside_baseline or (found == "worse" and not best) else None)


@dataclass(frozen=True, slots=True)
class Tally:
    """One model over all tasks that it did beside others.

    Attributes:
        name: Of the model.
        tasks: How many it did, those on its own among them.
        best: On how many it has the best value.
        clear: On how many of those it is measurably above every other.
        even: Of the tasks whose models are compared with the best, on how many it is that or not measurably worse; None where it did
            none of them because there is a baseline.
        found: Verdicts against the baseline, counted; None for the baseline itself, and where there is none.
        rank: Mean rank; None for a model that did not do every task that several models did.
    """

    name: str
    tasks: int
    best: int
    clear: int
    even: int | None
    found: dict[Verdict, int] | None
    rank: float | None


def tallies(seen: Overview) -> list[Tally]:
    """Every model over all tasks."""
    return [_tally(seen, model.name) for model in seen.result.models]


def _tally(seen: Overview, model: str) -> Tally:
    contests = seen.contests(model)
    beside_best = [task for task in seen.beside_best() if task in contests]
    best = [task for task in contests if model in seen.best[task]]
    baseline = seen.result.baseline
    return Tally(
        name=model,
        tasks=sum(name == model for _, name in seen.scores),
        best=len(best),
        clear=sum(seen.clear(task) for task in best),
        even=None if baseline is not None and not beside_best else sum(bool(seen.even(task, model)) for task in beside_best),
        found=None if baseline is None or model == baseline else counted_findings(seen, model),
        rank=sum(seen.ranks[task, model] for task in contests) / len(contests) if len(contests) == len(seen.best) > 0 else None,
    )


def counted_findings(seen: Overview, model: str) -> dict[Verdict, int]:
    """Verdicts of a model against the baseline."""
    found = [finding(one) for (_, name), one in seen.pairings.items() if name == model and one.against == seen.result.baseline]
    return {verdict: found.count(verdict) for verdict in ("better", "no evidence", "worse")}


def by_kind(tasks: Iterable[SuiteTask]) -> list[tuple[Kind, list[SuiteTask]]]:
    """Tasks side by side with others of their kind."""
    kinds: dict[Kind, list[SuiteTask]] = {}
    for task in tasks:
        kinds.setdefault(task.kind, []).append(task)
    return list(kinds.items())


@dataclass(frozen=True, slots=True)
class KindMeans:
    """Plain means over the tasks of one kind, which share their measure.

    Attributes:
        kind: What is asked.
        measure: That of all its tasks.
        tasks: How many.
        lower_is_better: Of the measure.
        values: One for each model; None for a model that did not do all of them.
    """

    kind: Kind
    measure: str
    tasks: int
    lower_is_better: bool
    values: list[float | None]


def kind_means(seen: Overview) -> list[KindMeans]:
    """Means of values over tasks that can be averaged at all."""
    means = []
    for kind, tasks in by_kind(seen.result.tasks):
        if len(tasks) > 1 and len({task.measure for task in tasks}) == 1:
            values = [_mean(seen, tasks, model.name) for model in seen.result.models]
            means.append(KindMeans(kind, tasks[0].measure, len(tasks), tasks[0].lower_is_better, values))
    return means


def _mean(seen: Overview, tasks: Sequence[SuiteTask], model: str) -> float | None:
    scores = [seen.scores[task.name, model].value for task in tasks if (task.name, model) in seen.scores]
    return sum(scores) / len(scores) if len(scores) == len(tasks) else None
