"""Analysis over all tasks of a suite: ranks of models on each task, counts and mean ranks, and means by kind of task."""

from collections.abc import Sequence
from dataclasses import replace

from adiabat.results.evaluation_result import Verdict
from adiabat.results.suite_result import (
    KindMean,
    ModelStanding,
    Score,
    SuiteAnalysis,
    SuiteResult,
    SuiteTask,
    TaskRanking,
    by_kind,
    equal_values,
)

VERDICTS: tuple[Verdict, ...] = ("better", "no evidence", "worse")


def analysed(result: SuiteResult) -> SuiteResult:
    """A result with its analysis."""
    scores = {
        (task.name, model.name): score
        for task in result.tasks
        for model in result.models
        if (score := result.main_score(task.name, model.name)) is not None
    }
    tasks = [_ranking(result, task, [scores[key] for key in scores if key[0] == task.name]) for task in result.tasks]
    models = [_standing(result, tasks, model.name, sum(name == model.name for _, name in scores)) for model in result.models]
    means = []
    for kind, group in by_kind(result.tasks):
        if len(group) > 1 and len({task.measure for task in group}) == 1:
            values = {model.name: _mean(scores, group, model.name) for model in result.models}
            means.append(KindMean(kind, group[0].measure, len(group), group[0].lower_is_better, values))
    return replace(result, analysis=SuiteAnalysis(tasks, models, means))


def _ranking(result: SuiteResult, task: SuiteTask, scores: Sequence[Score]) -> TaskRanking:
    pairings = [pairing for pairing in result.pairings if pairing.task == task.name]
    against = pairings[-1].against if pairings else None
    proofs = [score for score in scores if score.is_proof]
    ranks = {score.model: _rank(score, proofs) for score in proofs} if len(proofs) > 1 else {}
    top = min(ranks.values(), default=0.0)
    best = sorted((model for model, rank in ranks.items() if rank == top), key=lambda model: model != against)
    even = [pairing.model for pairing in pairings if pairing.against in best and not pairing.significant and pairing.model not in best]
    clear = best == [against] and all(pairing.significant for pairing in pairings)
    return TaskRanking(task.name, against, ranks, best, [*best, *even], clear)


def _rank(score: Score, among: Sequence[Score]) -> float:
    sign = -1 if score.lower_is_better else 1
    equal = sum(equal_values(other.value, score.value) for other in among)
    above = sum(sign * other.value > sign * score.value and not equal_values(other.value, score.value) for other in among)
    return 1 + above + (equal - 1) / 2


def _standing(result: SuiteResult, tasks: Sequence[TaskRanking], model: str, measured: int) -> ModelStanding:
    contests = [ranking for ranking in tasks if model in ranking.ranks]
    best = [ranking for ranking in contests if model in ranking.best]
    baseline = result.baseline
    beside_best = [ranking for ranking in contests if ranking.against not in (None, baseline)]
    contested = sum(bool(ranking.ranks) for ranking in tasks)
    verdicts = [pairing.verdict for pairing in result.pairings if (pairing.model, pairing.against) == (model, baseline)]
    return ModelStanding(
        model=model,
        tasks=measured,
        best=len(best),
        clear=sum(ranking.clear for ranking in best),
        not_worse=None if baseline is not None and not beside_best else sum(model in ranking.not_worse for ranking in beside_best),
        verdicts=None if baseline is None or model == baseline else {verdict: verdicts.count(verdict) for verdict in VERDICTS},
        mean_rank=sum(ranking.ranks[model] for ranking in contests) / len(contests) if len(contests) == contested > 0 else None,
    )


def _mean(scores: dict[tuple[str, str], Score], tasks: Sequence[SuiteTask], model: str) -> float | None:
    values = [scores[task.name, model].value for task in tasks if (task.name, model) in scores]
    return sum(values) / len(values) if len(values) == len(tasks) else None
