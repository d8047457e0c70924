"""The same 200 scores in nine clusters give the same answer through every verb, and so do others."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import adiabat
from adiabat.core.margin import Margin
from adiabat.evaluation.evaluate import dataset_result
from adiabat.evaluation.score_files import write_scores
from adiabat.experiments.advice_rules import recommend
from adiabat.experiments.evaluator import _outcome
from adiabat.results.advice_result import AdvisedSet, Headroom
from adiabat.results.evaluation_result import Change
from adiabat.results.verdict import Reason
from adiabat.stats.clusters import Clusters
from adiabat.stats.paired import paired_changes
from adiabat.stats.samples import Sample, TaskScores
from tests.commands import write_world
from tests.evaluation.scored import model
from tests.evaluation.test_suite_findings import found

SEED, RESAMPLES = 3, 500
UNITS = 200


def scored(values: np.ndarray, clusters: int) -> TaskScores:
    """200 queries, which share their relevant documents in turn."""
    sample = Sample(
        "nDCG@10", values, "cosine", bounds=(0.0, 1.0), clusters=Clusters(np.arange(UNITS) % clusters)
    )
    names = [f"q{number}" for number in range(UNITS)]
    pooled = replace(sample, measure="PND pooled")
    return TaskScores("asked", "retrieval", "query", names, [sample, pooled], texts=names, documents=50)


def by_evaluate(after: TaskScores, before: TaskScores, _: Path) -> Change:
    return dataset_result([after], before, None, role="target", seed=SEED, resamples=RESAMPLES).main_change()


def by_suite(after: TaskScores, before: TaskScores, _: Path) -> Change:
    pairings = found(
        model("a", before), model("b", after), baseline="a", seed=SEED, resamples=RESAMPLES
    ).pairings
    return pairings[0].change


def by_compare(after: TaskScores, before: TaskScores, folder: Path) -> Change:
    for name, scores in (("a", before), ("b", after)):
        write_scores(scores, folder / name / "asked.parquet", key="", about={"model": name, "source": name})
    return adiabat.compare(folder / "a", folder / "b", resamples=RESAMPLES, seed=SEED).pairings[0].change


def by_sweep(after: TaskScores, before: TaskScores, _: Path) -> Change:
    return _outcome(after, before, seed=SEED, resamples=RESAMPLES, margin=Margin()).main


def by_advice(after: TaskScores, before: TaskScores, _: Path) -> Change:
    """Advice compares the samples themselves."""
    return paired_changes(after.samples, before.samples, seed=SEED, resamples=RESAMPLES)[0]


VERBS = (by_evaluate, by_suite, by_compare, by_sweep, by_advice)


@pytest.mark.parametrize(
    ("shift", "clusters", "answer"),
    [
        (0.03, 9, ("undecided", [Reason.FEW_CLUSTERS])),
        (0.0, 9, ("undecided", [Reason.FEW_CLUSTERS])),
        (-0.03, 9, ("worse", [Reason.FEW_CLUSTERS])),
        (0.03, UNITS, ("better", [])),
        (-0.03, UNITS, ("worse", [])),
        (0.0, UNITS, ("undecided", [Reason.LOSS_POSSIBLE])),
        (0.03, 10, ("better", [])),
    ],
)
def test_five_verbs_give_one_answer(
    tmp_path: Path, shift: float, clusters: int, answer: tuple[str, list[Reason]]
) -> None:
    generator = np.random.default_rng(0)
    before = generator.uniform(0.2, 0.7, UNITS)
    noise = generator.normal(0, 0.03, UNITS)
    after = scored(before + shift + noise - noise.mean(), clusters)
    for verb in VERBS:
        change = verb(after, scored(before, clusters), tmp_path)
        assert (change.verdict, change.reasons) == answer, verb.__name__


def test_advice_takes_no_gain_of_dependent_queries_for_one() -> None:
    before = np.random.default_rng(0).uniform(0.2, 0.7, UNITS)
    few, many = (
        by_advice(scored(before + 0.05, clusters), scored(before, clusters), Path())
        for clusters in (9, UNITS)
    )

    def advised(change: Change) -> str:
        headroom = Headroom(150, 40, 10)
        level = replace(change, before=None)
        target = AdvisedSet("asked", "target", UNITS, UNITS, 50, headroom, level, mapped=change)
        return recommend(target, 1.0, None).choice

    assert (advised(few), advised(many)) == ("get more data", "tune the query tower")


def test_a_model_beside_itself_is_not_worse_in_evaluate_and_in_compare_of_its_scores(tmp_path: Path) -> None:
    """Twenty queries exclude no loss of the margin, but a model loses nothing to itself."""
    write_world(tmp_path)
    world = [tmp_path / name for name in ("model", "store", "pairs.jsonl")]
    result = adiabat.evaluate(*world, baseline=tmp_path / "model", out=tmp_path / "out", resamples=100)
    change = result.datasets[0].main_change()
    scores = tmp_path / "out" / "scores"
    compared = adiabat.compare(scores / "baseline", scores / "model", resamples=100).pairings[0].change
    for each in (change, compared):
        assert (each.verdict, each.reasons, each.loss_bound) == ("not worse", [Reason.ONE_MODEL], 0.0)
