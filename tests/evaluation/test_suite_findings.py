"""From scores to findings: who is compared with whom, what holds after the correction, what is shown."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adiabat.config.tasks import CompareSettings
from adiabat.core.errors import DataError
from adiabat.evaluation.suite_findings import ModelScores, compare_models
from adiabat.results.suite_result import SuiteResult
from adiabat.results.verdict import Reason
from adiabat.stats.paired import paired_changes
from adiabat.stats.ranking_measures import improvement
from adiabat.stats.samples import Sample, TaskScores, TrainingOverlap
from adiabat.stats.significance import benjamini_hochberg
from tests.evaluation.scored import gridded, model, ranked

RANDOM = np.random.default_rng(5)
LOW, MIDDLE, HIGH = (np.clip(RANDOM.random(60) + shift, 0, 1).tolist() for shift in (-0.3, 0.0, 0.3))


def found(
    *models: ModelScores, baseline: str | None = None, seed: int = 3, resamples: int = 500
) -> SuiteResult:
    settings = CompareSettings.model_validate({"measure": {"resamples": resamples}, "run": {"seed": seed}})
    return compare_models(models, settings, title="", command="", baseline=baseline, versions={}, inputs={})


def test_each_model_is_compared_with_the_best_of_the_task() -> None:
    findings = found(model("a", ranked(MIDDLE)), model("b", ranked(HIGH)), model("c", ranked(LOW)))
    assert [(one.model, one.against) for one in findings.pairings] == [("a", "b"), ("c", "b")]
    assert all(one.change.verdict == "worse" and one.significant for one in findings.pairings)


def test_equal_models_share_the_mean_of_their_ranks() -> None:
    middle = [model(name, ranked(MIDDLE)) for name in "acd"]
    (task,) = found(*middle, model("b", ranked(HIGH)), model("e", ranked(LOW))).analysis.tasks
    # Ranks 2, 3 and 4 are shared.
    assert task.ranks == {"a": 3.0, "b": 1.0, "c": 3.0, "d": 3.0, "e": 5.0}


def test_a_lower_discrepancy_is_the_better_one() -> None:
    models = []
    for name, values in (("high", HIGH), ("low", LOW)):
        lower = Sample("PND", np.array(values), "cosine", lower_is_better=True)
        models.append(model(name, replace(ranked(values), kind="triplets", samples=[lower])))
    findings = found(*models)
    assert findings.pairings[0].against == "low"
    assert findings.tasks[0].lower_is_better


def test_with_a_baseline_every_other_model_is_compared_with_it() -> None:
    sides = zip("abc", (MIDDLE, HIGH, LOW), strict=True)
    findings = found(*(model(name, ranked(values)) for name, values in sides), baseline="a")
    verdicts = {(one.model, one.against): one.change.verdict for one in findings.pairings}
    assert verdicts == {("b", "a"): "better", ("c", "a"): "worse"}


def test_a_pairing_is_what_two_samples_alone_would_give() -> None:
    one, other = ranked(MIDDLE), ranked(HIGH)
    findings = found(model("a", one), model("b", other), baseline="a")
    alone = paired_changes(other.samples, one.samples, seed=3, resamples=500)[0]
    assert findings.pairings[0].change == alone
    assert alone.improvement == pytest.approx(
        improvement(float(np.mean(MIDDLE)), float(np.mean(HIGH)), lower_is_better=False)
    )


def test_the_correction_is_over_all_tasks() -> None:
    generator = np.random.default_rng(0)
    base = generator.random(40)
    shifts = [0.0, 0.02, 0.045, 0.06, 0.2, 0.0, 0.01, 0.03]
    before, after = [], []
    for number, shift in enumerate(shifts):
        before.append(ranked(base.tolist(), task=f"t{number}"))
        after.append(ranked((base + shift + generator.normal(0, 0.15, 40)).tolist(), task=f"t{number}"))
    pairings = found(model("a", *before), model("b", *after), baseline="a").pairings
    p_values = np.array([one.change.p for one in pairings], dtype=np.float64)
    held = benjamini_hochberg(p_values)
    assert [one.significant for one in pairings] == held.tolist()
    # A chance finding on its own, which does not stand among eight.
    alone = [one.change.p for one in pairings if Reason.MANY_COMPARISONS in one.change.reasons]
    assert alone
    assert max(alone) < 0.05


def test_a_best_model_that_was_trained_on_many_units_is_tested_as_strictly_as_any_other() -> None:
    """Five models that trained on the same half: each comparison counts for two and a half."""
    overlap = TrainingOverlap(np.arange(60) < 30, np.ones(60, dtype=np.int64), np.zeros(60, dtype=np.int64))
    between = []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        base = generator.uniform(0.3, 0.7, 60)
        sides = (base + 0.04, base + generator.normal(0, 0.1, 60), base - 0.2, base - 0.21, base - 0.22)
        scores = [replace(ranked(values.tolist()), trained=overlap) for values in sides]
        findings = found(*map(model, "abcde", scores), resamples=300)
        assert {score.is_proof for score in findings.scores} == {False}
        near = next(one for one in findings.pairings if {one.model, one.against} == {"a", "b"})
        assert near.change.p is not None
        if 0.05 / 2.5 < near.change.p < 0.05 and near.change.difference_interval is not None:
            low, high = near.change.difference_interval
            between += [near] if low > 0 or high < 0 else []
    assert between
    for pairing in between:
        assert (pairing.significant, Reason.MANY_COMPARISONS in pairing.change.reasons) == (False, True)


def test_a_model_that_cannot_do_a_task_is_left_out_of_it() -> None:
    both = model("a", ranked(LOW), ranked(HIGH, task="more"))
    findings = found(both, model("bm25", ranked(HIGH, similarity="bm25")))
    assert [task.name for task in findings.tasks] == ["asked", "more"]
    assert [(one.task, one.model) for one in findings.pairings] == [("asked", "a")]
    scored = {(one.task, one.model) for one in findings.scores}
    assert scored == {("asked", "a"), ("asked", "bm25"), ("more", "a")}


@pytest.mark.parametrize(
    ("units", "told"),
    [
        (["q0", "q1", "x", "y"], "b lacks 1 and has 2 others, of 3"),
        (["q0", "q1"], "b lacks 1, of 3"),
        (["q0", "q1", "q2", "x"], "b has 1 other, of 3"),
        (["q2", "q1", "q0"], "b has them in another order"),
    ],
)
def test_models_of_other_units_are_refused_with_their_number(units: list[str], told: str) -> None:
    other = ranked([0.1, 0.2, 0.3, 0.4][: len(units)], units=units)
    with pytest.raises(DataError, match=f"{told};"):
        found(model("a", ranked([0.1, 0.2, 0.3])), model("b", other))


def test_runs_of_several_seeds_count_by_their_mean() -> None:
    runs = [[ranked(MIDDLE)], [ranked(HIGH)], [ranked(LOW)]]
    findings = found(model("a", ranked(LOW)), model("b", runs=runs), baseline="a")
    change = findings.pairings[0].change
    assert change.after == pytest.approx(np.mean([MIDDLE, HIGH, LOW]))
    assert change.test == "t test"
    means = ranked(np.mean([MIDDLE, HIGH, LOW], axis=0).tolist())
    alone = found(model("a", ranked(LOW)), model("b", means), baseline="a").pairings[0].change
    # Seeds differ a great deal here, and three of them leave much open.
    assert np.ptp(change.difference_interval) > 2 * np.ptp(alone.difference_interval)


def test_units_are_shown_where_models_differ_most() -> None:
    findings = found(model("a", ranked([0.5, 0.5, 0.5])), model("b", ranked([0.5, 0.9, 0.2])))
    shown = {unit.unit: unit.values for unit in findings.units}
    assert list(shown.items()) == [("q1", {"a": 0.5, "b": 0.9}), ("q2", {"a": 0.5, "b": 0.2})]
    assert findings.units[0].text == "text of q1"


def test_a_grid_is_compared_cell_by_cell() -> None:
    generator = np.random.default_rng(1)
    base = (generator.random((2, 2, 80)) < 0.5).astype(float)
    better = base.copy()
    better[0, 1] = 1.0
    findings = found(model("a", gridded(base)), model("b", gridded(better)), baseline="a")
    assert [(one.model, one.against) for one in findings.grids] == [("a", None), ("b", "a")]
    grid = findings.grids[1].grid
    assert grid.verdicts == [["undecided", "better"], ["undecided", "undecided"]]
    assert (grid.improved, grid.worsened) == (1, 0)
    np.testing.assert_allclose(grid.before or [], base.mean(axis=2), atol=1e-7)


def test_a_note_that_all_models_have_is_the_tasks() -> None:
    one, other = ranked([0.1, 0.2]), ranked([0.3, 0.2])
    noted, other = replace(one, notes=("common", "a")), replace(other, notes=("common", "b"))
    assert found(model("a", noted), model("b", other)).tasks[0].notes == ["common", "a: a", "b: b"]
    three = found(model("a", noted), model("b", one), model("c", noted))
    assert three.tasks[0].notes == ["a, c: common", "a, c: a"]


def test_figures_of_single_models_are_told_in_the_mean_over_runs() -> None:
    one, other = (replace(ranked([0.1, 0.2]), facts={"unknown words": count}) for count in (3.0, 4.0))
    facts = found(model("a", ranked([0.3, 0.3])), model("b", runs=[[one], [other]])).facts
    told = [(fact.model, fact.task, fact.name, fact.value) for fact in facts]
    assert told == [("b", "asked", "unknown words", 3.5)]


NDCG = ranked([0.1, 0.2]).samples[0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"texts": ["text of q0", "other"]}, "b has other texts under the same ids"),
        ({"samples": [replace(NDCG, reference=np.ones(2))]}, "b has other judgements of the same units"),
        ({"samples": [replace(NDCG, measure="RR")]}, "b is judged by RR, not by nDCG@10"),
        ({"grids": gridded(np.ones((2, 2, 2))).grids}, "b has a grid of other languages: de, en, not none"),
    ],
)
def test_what_is_not_measured_alike_is_not_compared(changed: dict[str, Any], message: str) -> None:
    one = ranked([0.1, 0.2])
    with pytest.raises(DataError, match=message):
        found(model("a", one), model("b", replace(one, **changed)))


def test_a_grid_by_another_similarity_too_is_compared_by_the_one_that_both_have() -> None:
    cells = np.random.default_rng(3).random((2, 2, 40))
    one, other = gridded(cells), gridded(cells * 0.5)
    other = replace(other, grids=[*other.grids, replace(other.grids[0], similarity="distance")])
    grids = found(model("a", one), model("b", other)).grids
    assert [(grid.model, grid.grid.similarity) for grid in grids] == [("a", "cosine"), ("b", "cosine")]


def test_runs_with_unlike_measures_are_not_averaged() -> None:
    one = ranked([0.1, 0.2])
    more = replace(one, samples=[NDCG, replace(NDCG, measure="RR")])
    with pytest.raises(DataError, match="b has runs with unlike measures"):
        found(model("a", one), model("b", runs=[[one], [more]]))


def test_half_a_character_that_a_file_could_not_keep_makes_no_other_text() -> None:
    one = replace(ranked([0.1, 0.2]), texts=["broken \ud83d", "whole"])
    assert found(model("a", one), model("b", replace(one, texts=["broken ?", "whole"]))).pairings


def test_of_models_equal_but_for_rounding_the_first_is_the_reference() -> None:
    values = [0.1, 0.2, 0.3, 0.6, 0.7]
    higher = [*values[:-1], np.nextafter(0.7, 1.0)]
    (pairing,) = found(model("a", ranked(values)), model("b", ranked(higher))).pairings
    assert pairing.against == "a"


def test_a_best_model_that_was_chosen_among_equals_is_seldom_called_better() -> None:
    """Eight models alike: without a word for the choice, one was worse than the best in 14 % of trials."""
    generator, found_any = np.random.default_rng(1), 0
    for _ in range(100):
        units = generator.random(60)
        models = [model(str(k), ranked((units + generator.normal(0, 0.1, 60)).tolist())) for k in range(8)]
        found_any += any(one.significant for one in found(*models, seed=0, resamples=100).pairings)
    assert found_any <= 8


def test_cells_of_models_with_several_runs_have_values_and_changes_and_are_undecided() -> None:
    cells = np.random.default_rng(3).random((2, 2, 40))
    runs = [[gridded(cells)], [gridded(cells * 0.5)]]
    alone, beside = found(model("a", gridded(cells)), model("b", runs=runs), baseline="a").grids
    assert (alone.model, alone.against, alone.grid.verdicts) == ("a", None, None)
    assert (beside.model, beside.against, beside.grid.verdicts) == ("b", "a", [["undecided"] * 2] * 2)
    assert beside.grid.reasons == [Reason.CELLS_OVER_RUNS]
    np.testing.assert_allclose(beside.grid.after, cells.mean(axis=2) * 0.75, rtol=1e-6)
    np.testing.assert_allclose(beside.grid.before, cells.mean(axis=2), rtol=1e-6)


def test_pseudo_values_are_not_shown_as_if_they_were_scores_of_units() -> None:
    def pseudo(*values: float) -> TaskScores:
        return replace(ranked(values), samples=[replace(ranked(values).samples[0], pseudo_values=True)])

    assert not found(model("a", pseudo(0.5, 0.5)), model("b", pseudo(0.5, 0.9))).units
